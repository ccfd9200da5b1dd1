"""One GRPO step, seconds: TRL. Every prompt and every sample has the same number of tokens; the
reward is a trivial function.

    python benchmarks/peers/grpo.py --model tiny --prompts 16 --samples 8 --prompt-tokens 32
                                    --new-tokens 64 --beta 0
    python benchmarks/peers/grpo.py --model smol --prompts 4 --samples 8 --prompt-tokens 47
                                    --new-tokens 32 --beta 0.04 --kept
    python benchmarks/peers/grpo.py --model smol ... --lora 16
    python benchmarks/peers/grpo.py --model DIR --pictures FILE --prompts 8 --samples 8
                                    --new-tokens 32 [--freeze]

--lora: PEFT's adapters of that rank on all linear layers, instead of all weights.
--pictures: of a vision model, rows of scripts/data/pictures.py; --freeze: its tower is not trained.
"""

import base64
import contextlib
import io
import json
import logging
import os
import random
import sys
import tempfile
import time
import warnings

from common import TINY, emit, load_model, model_dir, options, start


def seconds_alive():
    """Since the process began."""
    with open("/proc/self/stat") as f:
        ticks = int(f.read().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def word_tokenizer(vocab):
    """Word i is token i: for a model that has no tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    t = Tokenizer(models.WordLevel({"w%d" % i: i for i in range(vocab)}, unk_token="w0"))
    t.pre_tokenizer, t.decoder = pre_tokenizers.WhitespaceSplit(), decoders.WordPiece(prefix="")
    return PreTrainedTokenizerFast(
        tokenizer_object=t,
        pad_token="w%d" % TINY["pad_token_id"],
        eos_token="w%d" % TINY["eos_token_id"],
        unk_token="w0",
    )


def make_prompts(tokenizer, tiny, count, tokens, seed):
    """Texts of exactly so many tokens."""
    rng, out = random.Random(seed), []
    words = (
        ["w%d" % i for i in range(1, 500)]
        if tiny
        else (
            " the of and to in is that for it with as was on be at by this have from or one had not"
            " but what all were when we there can an your which their said if do"
        ).split()
    )
    while len(out) < count:
        text = " ".join(rng.choice(words) for _ in range(tokens))
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        text = tokenizer.decode(ids[:tokens])  # a word may be several tokens
        if len(tokenizer(text, add_special_tokens=False)["input_ids"]) == tokens:
            out.append(text)
    return out


def picture_rows(file, count):
    """Questions about pictures, as TRL's datasets have them."""
    from PIL import Image

    out = {"prompt": [], "images": []}
    with open(file) as f:
        for line in list(f)[:count]:
            row = json.loads(line)
            data = base64.b64decode(row["images"][0].split(",")[1])
            parts = [{"type": "image"}, {"type": "text", "text": row["problem"].replace("<image>", "")}]
            out["prompt"].append([{"role": "user", "content": parts}])
            out["images"].append([Image.open(io.BytesIO(data)).convert("RGB")])
    return out


def prompt_tokens(processor, rows):
    """Of each prompt, pictures included."""
    out = []
    for messages, images in zip(rows["prompt"], rows["images"]):
        text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        out.append(len(processor(text=[text], images=images)["input_ids"][0]))
    return out


def main():
    p = options(__doc__)
    p.add_argument("--prompts", type=int, default=16)
    p.add_argument("--samples", type=int, default=8)
    p.add_argument("--prompt-tokens", type=int, default=32)
    p.add_argument("--new-tokens", type=int, default=64)
    p.add_argument("--beta", type=float, default=0.0)
    p.add_argument("--lora", type=int, default=0, help="rank of PEFT's adapters; 0: all weights")
    p.add_argument("--pictures", help="rows of scripts/data/pictures.py, for a vision model")
    p.add_argument("--freeze", action="store_true", help="of a vision model: its tower")
    p.add_argument(
        "--checkpointing", action="store_true", help="TRL's default; slower, less memory"
    )
    args = start(p)
    warnings.simplefilter("ignore")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    logging.disable(logging.WARNING)
    import datasets
    import peft
    import torch
    import transformers
    import trl

    tiny, steps = args.model == "tiny", args.repeat + 1
    times, tokens, first = [], [], []
    if args.pictures:
        model = None
        tokenizer = transformers.AutoProcessor.from_pretrained(
            model_dir(args.model), padding_side="left"
        )
        rows = picture_rows(args.pictures, args.prompts * steps)
        of_prompts = prompt_tokens(tokenizer, rows)
        args.prompt_tokens = sum(of_prompts) / len(of_prompts)
    else:
        model = load_model(args)
        tokenizer = (
            word_tokenizer(TINY["vocab_size"])
            if tiny
            else transformers.AutoTokenizer.from_pretrained(model_dir(args.model))
        )
        texts = make_prompts(tokenizer, tiny, args.prompts, args.prompt_tokens, args.seed)
        rows = {"prompt": texts * steps}

    class Clock(transformers.TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.begin = time.perf_counter()

        def on_step_end(self, *_, **__):
            times.append(time.perf_counter() - self.begin)
            first.append(seconds_alive())

    def reward(completion_ids, **_):
        tokens.append(sum(len(ids) for ids in completion_ids))
        return [sum(i % 2 for i in ids) / len(ids) for ids in completion_ids]

    with tempfile.TemporaryDirectory() as out:
        model_path = args.model
        if model:  # the reference model is read from there
            model_path = out + "/model"
            model.save_pretrained(model_path)
        config = trl.GRPOConfig(
            output_dir=out,
            use_cpu=True,
            bf16=args.dtype == "bfloat16",
            per_device_train_batch_size=args.prompts * args.samples,
            num_generations=args.samples,
            max_completion_length=args.new_tokens,
            generation_kwargs={"min_new_tokens": args.new_tokens},
            beta=args.beta,
            learning_rate=1e-6,
            max_steps=steps,
            gradient_checkpointing=args.checkpointing,
            report_to="none",
            logging_steps=1000000,
            save_strategy="no",
            disable_tqdm=True,
            seed=args.seed,
            dataloader_num_workers=0,
            model_init_kwargs={"dtype": "float32"},
        )
        trainer = trl.GRPOTrainer(
            model=model_path,
            reward_funcs=reward,
            args=config,
            processing_class=tokenizer,
            callbacks=[Clock()],
            train_dataset=datasets.Dataset.from_dict(rows),
            peft_config=(
                peft.LoraConfig(
                    task_type="CAUSAL_LM",
                    r=args.lora,
                    lora_alpha=64,
                    lora_dropout=0.0,
                    target_modules="all-linear",
                )
                if args.lora
                else None
            ),
        )
        if not args.lora:
            for name, parameter in trainer.model.named_parameters():
                parameter.requires_grad_(not (args.freeze and ".visual." in name))
        torch.set_num_threads(args.threads)
        with contextlib.redirect_stdout(sys.stderr):  # TRL prints a summary
            trainer.train()
    want = args.prompts * args.samples * args.new_tokens
    if any(n != want for n in tokens):
        raise SystemExit(
            "peers: grpo: %s sampled tokens a step; expected %d" % (sorted(set(tokens)), want)
        )
    emit(
        "grpo_step",
        "s",
        args,
        times[1:],
        lambda t: t,
        model=args.model,
        dtype=args.dtype,
        prompts=args.prompts,
        samples=args.samples,
        prompt_tokens=args.prompt_tokens,
        new_tokens=args.new_tokens,
        beta=args.beta,
        lora=args.lora,
        **({"tower": "frozen" if args.freeze else "trained"} if args.pictures else {}),
        first_step_s=round(first[0], 3),
        peer="trl " + trl.__version__ + (", peft " + peft.__version__ if args.lora else ""),
    )


main()
