"""What the peers share: the models called tiny and smol, best of several runs, one JSON line per
measure."""

import argparse
import json
import os
import pathlib
import resource
import sys
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
# glibc told to keep freed pages instead of giving them back: the peer's fair, tuned form.
KEPT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": str(256 << 20),
}
TINY = dict(
    vocab_size=512,
    hidden_size=128,
    intermediate_size=384,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=2048,
    tie_word_embeddings=True,
    bos_token_id=None,
    eos_token_id=511,
    pad_token_id=510,
)


def options(doc, model=True):
    p = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--repeat", type=int, default=3, help="the best of so many runs counts")
    p.add_argument("--kept", action="store_true", help="with glibc told to keep freed pages")
    p.add_argument("--seed", type=int, default=1)
    if model:
        p.add_argument("--model", default="tiny", help="tiny, smol, or a model directory")
        p.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    return p


def start(parser):
    """Parses, and starts this program anew where the allocator must be told something."""
    args = parser.parse_args()
    if args.kept and any(os.environ.get(k) != v for k, v in KEPT.items()):
        os.environ.update(KEPT)
        os.execv(sys.executable, [sys.executable] + sys.argv)
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    return args


def model_dir(name):
    path = REPO / "models/SmolLM2-135M-Instruct" if name == "smol" else pathlib.Path(name)
    if not path.is_dir():
        raise SystemExit(
            "peers: %s: no such model directory; scripts/fetch_smollm2.sh makes the one called smol"
            % path
        )
    return path


def load_model(args):
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if args.model == "tiny":
        return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**TINY))
    return transformers.AutoModelForCausalLM.from_pretrained(
        model_dir(args.model), dtype=torch.float32
    )


def timed(run, repeat):
    """Seconds of `repeat` runs, after one that does not count."""
    run()
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return times


def emit(measure, unit, args, times, value, **more):
    """One line: `value` makes the measured quantity of seconds; the best run's counts, all are
    listed."""
    import torch

    line = {
        "measure": measure,
        "side": "peer",
        "value": value(min(times)),
        "unit": unit,
        "all": [float("%.6g" % value(t)) for t in times],
        **more,
        "kept": args.kept,
        "threads": args.threads,
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3),
        "torch": torch.__version__.split("+")[0],
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
    print(json.dumps(line), flush=True)
