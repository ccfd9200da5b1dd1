"""The `tokenizers` library on one thread: the other side of benchmarks/tokenizer.c, the same JSON
line.

python benchmarks/peers/tokenizer.py MODEL_DIR FILE.jsonl [PASSES]
"""

import json
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
)  # noqa: E402

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def load(path):
    if os.path.exists(path + "/tokenizer.json"):
        return Tokenizer.from_file(path + "/tokenizer.json")
    t = Tokenizer(models.BPE.from_file(path + "/vocab.json", path + "/merges.txt"))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    t.decoder = decoders.ByteLevel()
    added = json.load(open(path + "/tokenizer_config.json"))["added_tokens_decoder"]
    t.add_tokens([AddedToken(**v) for _, v in sorted(added.items(), key=lambda x: int(x[0]))])
    return t


def main():
    begin = time.process_time()
    t = load(sys.argv[1])
    load_s = time.process_time() - begin
    text = open(sys.argv[2], encoding="utf-8", newline="\n").read()
    lines = text.removesuffix("\n").split("\n")
    mb = len(text.encode()) / 1e6
    passes = int(sys.argv[3]) if len(sys.argv) > 3 else 7
    for what, offsets in (("encode", False), ("encode", True), ("decode", False)):
        encode = (
            t.encode_batch if offsets else t.encode_batch_fast
        )  # one call: no cost of Python a line
        seconds = []
        for _ in range(passes + 1):
            begin = time.process_time()
            out = encode(lines, add_special_tokens=False)
            if what == "decode":
                ids = [e.ids for e in out]
                begin = time.process_time()
                t.decode_batch(ids, skip_special_tokens=False)
            seconds.append(time.process_time() - begin)
        total = checksum = 0
        for e in out:
            ids = e.ids
            total += len(ids)
            for i in ids:
                checksum = (checksum * 31 + i) & 0xFFFFFFFFFFFFFFFF
        cold, warm = seconds[0], sorted(seconds[1:])
        print(
            json.dumps(
                {
                    "bench": "tokenizer",
                    "side": "tokenizers",
                    "what": what,
                    "offsets": offsets,
                    "tokens": total,
                    "sum": "%016x" % checksum,
                    "load_s": round(load_s, 3),
                    "mb_per_s": round(mb / warm[passes // 2], 2),
                    "min": round(mb / warm[-1], 2),
                    "max": round(mb / warm[0], 2),
                    "cold": round(mb / cold, 2),
                }
            )
        )


main()
