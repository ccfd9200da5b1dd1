"""Adapters written here, opened by PEFT, and PEFT's, opened here: the same log-probs.

    .venv-peers/bin/python scripts/golden/peft_opens.py [PROGRAM]   (peft 0.21.2, transformers 5.17)

PROGRAM is build/ares-train by default; benchmarks/setup.sh makes the environment. Each adapter is
trained for a few steps, opened by AutoPeftModelForCausalLM by its own path alone, and compared on
random sequences with `ares-train score`; of a critic's, every tensor must arrive in PEFT's model.
Those of vision models, tower included, are compared on a prompt with a picture.
PEFT may warn of nothing. The other way, get_peft_model makes adapters with random B. All in
float32; without models/SmolLM2-135M-Instruct its cases are left out. One line per adapter, exit
status 1 after a failure. Nothing is written outside a temporary folder.
"""

import json
import logging
import pathlib
import subprocess
import sys
import tempfile
import warnings

import peft
import PIL.Image
import safetensors.torch
import torch
import transformers

REPO = pathlib.Path(__file__).resolve().parents[2]
SMOL = REPO / "models/SmolLM2-135M-Instruct"
TOLERANCE = 1e-4  # both sides are float32, whose sums differ by some 1e-6 to 1e-5 in log-probs
LEAST_MOVED = 0.01  # an adapter must change log-probs by more, else it may be absent unseen
SEQUENCES, TOKENS = 3, 40

# name: (words of `init`, words of worker.actor.model.lora)
WRITTEN = {
    "rank 8": ("--arch qwen2", {"rank": 8, "alpha": 16}),
    "rank 1, gaussian": ("--arch llama", {"rank": 1, "alpha": 4, "init": "gaussian"}),
    "patterns": (
        "--arch qwen3",
        {
            "rank": 8,
            "alpha": 16.5,
            "rank_pattern": {"layers.0.self_attn.q_proj": 3, ".*_proj": 5, "down_proj": 2},
            "alpha_pattern": {"mlp.*": 7},
        },
    ),
    "rslora": ("--arch qwen2", {"rank": 8, "alpha": 16, "use_rslora": True}),
    "q, v of blocks 0 and 2": (
        "--arch qwen2",
        {"rank": 4, "target_modules": ["q_proj", "v_proj"], "layers_to_transform": [0, 2]},
    ),
    "expression, without o": (
        "--arch qwen2",
        {
            "rank": 4,
            "target_modules": r".*layers\.[12]\.(self_attn|mlp)\..*_proj",
            "exclude_modules": ["o_proj"],
        },
    ),
    "head, tied": ("--arch qwen2", {"rank": 4, "target_modules": ["lm_head", "q_proj"]}),
    "head, untied": ("--arch llama --untied", {"rank": 4, "target_modules": ["lm_head"]}),
}
SEEING = "--hidden 64 --layers 2 --vision-layers 2 --vision-width 32 --vision-patch 6"
# the same of vision models, whose towers are adapted unless FROZEN
TOWERS = {
    "Qwen2.5-VL, tower": ("--arch qwen2_5_vl " + SEEING, {"rank": 4}),
    "Qwen2-VL, tower": ("--arch qwen2_vl " + SEEING, {"rank": 4}),
    "Qwen2.5-VL, tower alone": (
        "--arch qwen2_5_vl " + SEEING,
        {"rank": 4, "target_modules": ".*visual.*"},
    ),
    "Qwen2.5-VL, frozen tower": ("--arch qwen2_5_vl " + SEEING, {"rank": 4}),
}
FROZEN = "Qwen2.5-VL, frozen tower"
# name: (words of `init`, words of LoraConfig)
MADE_TOWERS = {
    "Qwen2.5-VL, all linear layers": (
        "--arch qwen2_5_vl " + SEEING,
        {"target_modules": "all-linear"},
    ),
    "Qwen2-VL, q, gate, fc1, qkv": (
        "--arch qwen2_vl " + SEEING,
        {"target_modules": ["q_proj", "gate_proj", "fc1", "qkv"]},
    ),
}
# name: words of LoraConfig
MADE = {
    "all linear layers, rank 16": dict(r=16, lora_alpha=32, target_modules="all-linear"),
    "PEFT's defaults": dict(),
    "rslora, patterns": dict(
        r=8,
        use_rslora=True,
        target_modules=["q_proj", "k_proj", "gate_proj", "down_proj"],
        rank_pattern={"k_proj": 3},
        alpha_pattern={r"layers\.1\.mlp.*": 20},
    ),
    "head": dict(r=4, target_modules=["lm_head", "o_proj"]),
}


class Failed(Exception):
    pass


class Words(logging.Handler):
    """What libraries log as warnings or worse."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())


def program(*words, text=None):
    done = subprocess.run(
        [str(w) for w in words],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise Failed("%s\n%s" % (" ".join(map(str, words)), done.stderr[-2000:]))
    return done.stdout


def score(ares, ids, *words):
    lines = "".join(json.dumps({"input_ids": row}) + "\n" for row in ids.tolist())
    out = program(ares, "score", *words, "--threads", 1, text=lines)
    return torch.tensor([json.loads(line)["log_probs"] for line in out.splitlines()])


@torch.no_grad()
def log_probs(model, ids):
    log_p = torch.log_softmax(model(input_ids=ids, use_cache=False).logits[:, :-1], -1)
    return log_p.gather(-1, ids[:, 1:, None])[..., 0]


def compare(name, theirs, ours, base):
    off, moved = ((theirs - x).abs().max().item() for x in (ours, base))
    print("%-44s off by %.1e, moved by %.2g" % (name, off, moved), flush=True)
    if off > TOLERANCE:
        raise Failed("log-probs differ by %.1e" % off)
    if moved < LEAST_MOVED:
        raise Failed("the adapter changes nothing that can be seen")


def train(ares, folder, base, lora, words):
    """The adapter's directory after some steps."""
    lora = {"worker.actor.model.lora.%s=%s" % (k, json.dumps(v)) for k, v in lora.items()}
    program(
        ares,
        *words,
        "worker.actor.model.model_path=%s" % base,
        *lora,
        "trainer.run_dir=%s" % folder,
        "trainer.threads=1",
        "trainer.logger=[file]",
        "trainer.val_freq=-1",
    )
    (found,) = (folder / "checkpoints").glob("step_*/adapter")
    return found


def supervised(steps, rate):
    return [
        "sft",
        "--config",
        REPO / "examples/sft/config.yaml",
        "data.train_files=%s" % (REPO / "examples/data/sums/sft.jsonl"),
        "data.val_files=[]",
        "sft.batch_size=8",
        "worker.actor.optim.lr=%g" % rate,
        "worker.actor.optim.lr_warmup_steps=0",
        "trainer.max_steps=%d" % steps,
    ]


def by_rewards():
    return [
        "--config",
        REPO / "examples/quickstart/config.yaml",
        "data.train_files=%s" % (REPO / "examples/data/arithmetic/train.jsonl"),
        "data.val_files=[]",
        "data.rollout_batch_size=2",
        "worker.actor.global_batch_size=2",
        "worker.actor.optim.lr=1e-3",
        "worker.actor.optim.lr_warmup_steps=0",
        "worker.reward.rewards=[{name: random}]",
        "worker.reward.accuracy=random",
        "worker.reward.unfinished_score=null",
        "trainer.max_steps=2",
    ]


def quietly(open_model):
    """Opens a model; whatever is warned of is a failure."""
    words = Words()
    for name in "peft", "transformers":
        logging.getLogger(name).addHandler(words)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = open_model().eval()
    for name in "peft", "transformers":
        logging.getLogger(name).removeHandler(words)
    said = words.said + [str(w.message) for w in caught if "peft" in w.filename]
    # said of every adapter of a tied head
    said = [x for x in said if "ensure_weight_tying" not in x]
    if said:
        raise Failed("warnings: %s" % "; ".join(said))
    return model


def random_ids(vocab):
    return torch.randint(vocab, (SEQUENCES, TOKENS), generator=torch.Generator().manual_seed(1))


def written(ares, name, folder, base, adapter):
    """An adapter from here: PEFT opens it by its own path alone."""
    model = quietly(
        lambda: peft.AutoPeftModelForCausalLM.from_pretrained(adapter, dtype=torch.float32)
    )
    ids = random_ids(model.config.vocab_size)
    ours = score(ares, ids, "--model", base, "--adapter", adapter)
    if not torch.equal(ours, score(ares, ids, "--model", folder)):
        raise Failed("the run as --model gives other log-probs than its adapter does")
    compare("written here: " + name, log_probs(model, ids), ours, score(ares, ids, "--model", base))


def critic(ares, name, folder, base):
    """A critic's adapter and head: no tensor of the file is lost in PEFT's model."""
    words = [
        *by_rewards(),
        "data.apply_chat_template=false",
        "algorithm.adv_estimator=gae",
        "worker.critic.model.lora.rank=8",
        "worker.critic.optim.lr=1e-2",
    ]
    found = train(ares, folder, base, {"rank": 8}, words).parent / "critic"
    model = transformers.AutoModelForTokenClassification.from_pretrained(
        base, num_labels=1, dtype=torch.float32
    )
    model = quietly(lambda: peft.PeftModel.from_pretrained(model, found))
    theirs = peft.get_peft_model_state_dict(model)
    ours = safetensors.torch.load_file(found / "adapter_model.safetensors")
    if theirs.keys() != ours.keys():
        raise Failed("tensors %s" % sorted(theirs.keys() ^ ours.keys()))
    if not all(torch.equal(theirs[k], ours[k]) for k in ours):
        raise Failed("other numbers")
    print("written here: %-30s all of %d tensors arrive" % (name, len(ours)), flush=True)


def picture(folder):
    """The path of a picture of noise."""
    noise = torch.randint(256, (24, 36, 3), generator=torch.Generator().manual_seed(3))
    path = folder / "noise.png"
    PIL.Image.fromarray(noise.to(torch.uint8).numpy()).save(path)
    return path


def supervised_seeing(folder, frozen):
    rows = [
        {
            "prompt": "<image>What is %d?" % i,
            "images": [str(picture(folder))],
            "response": "It is %d" % i,
        }
        for i in range(8)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [
        *supervised(4, 2e-2),
        "data.train_files=%s" % (folder / "rows.jsonl"),
        "data.apply_chat_template=true",
        "data.min_pixels=null",
        "data.max_pixels=null",
        "worker.actor.model.freeze_vision_tower=%s" % str(frozen).lower(),
    ]


def open_seeing(base):
    return transformers.AutoModelForImageTextToText.from_pretrained(base, dtype=torch.float32)


@torch.no_grad()
def compare_seeing(ares, name, base, adapter, model):
    """A prompt with a picture, by PEFT's model and here."""
    path = picture(pathlib.Path(adapter).parent)
    chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}]
    reader = transformers.AutoProcessor.from_pretrained(base)
    text = reader.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) + "A cat."
    read = reader(text=[text], images=[PIL.Image.open(path)], return_tensors="pt")
    ids = read["input_ids"]

    def ours(*words):
        line = json.dumps({"input_ids": ids[0].tolist(), "images": [str(path)]}) + "\n"
        out = program(ares, "score", "--model", base, *words, text=line)
        return torch.tensor(json.loads(out)["log_probs"])

    log_p = torch.log_softmax(model(**read, use_cache=False).logits[:, :-1], -1)
    theirs = log_p.gather(-1, ids[:, 1:, None])[0, :, 0]
    compare(name, theirs, ours("--adapter", adapter), ours())


def written_seeing(ares, name, folder, base, lora):
    folder.mkdir()
    adapter = train(ares, folder / "run", base, lora, supervised_seeing(folder, name == FROZEN))
    model = quietly(lambda: peft.PeftModel.from_pretrained(open_seeing(base), adapter))
    compare_seeing(ares, "written here: " + name, base, adapter, model)


def with_random_b(model, words):
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **words)).eval()
    for key, p in model.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(p, std=0.02)
    return model


def made_seeing(ares, name, folder, base, words):
    folder.mkdir()
    torch.manual_seed(2)
    model = with_random_b(open_seeing(base), words)
    model.save_pretrained(folder / "adapter")
    compare_seeing(ares, "made by PEFT: " + name, base, folder / "adapter", model)


def made(ares, name, folder, base, words):
    """An adapter of PEFT's with random A and B."""
    torch.manual_seed(2)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a tied head as a target
        model = with_random_b(model, words)
        model.save_pretrained(folder)
    ids = random_ids(model.config.vocab_size)
    compare(
        "made by PEFT: " + name,
        log_probs(model, ids),
        score(ares, ids, "--model", base, "--adapter", folder),
        score(ares, ids, "--model", base),
    )


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    ares = pathlib.Path(sys.argv[1] if sys.argv[1:] else REPO / "build/ares-train").resolve()
    failed = 0
    with tempfile.TemporaryDirectory() as d:
        d = pathlib.Path(d)

        def one(what, name, *arguments):
            try:
                what(ares, name, *arguments)
            except (Failed, ValueError, RuntimeError) as e:
                nonlocal failed
                failed += 1
                print("%s: FAILED: %s" % (name, e), flush=True)

        def write_and_open(ares, name, folder, base, lora, words):
            written(ares, name, folder, base, train(ares, folder, base, lora, words))

        for i, (name, (init, lora)) in enumerate(WRITTEN.items()):
            base = d / ("base %d" % i)
            program(ares, "init", *init.split(), "--seed", i + 1, "--out", base)
            one(write_and_open, name, d / ("written %d" % i), base, lora, supervised(4, 2e-2))
        one(critic, "critic", d / "critic", d / "base 0")
        for all_of, what in (TOWERS, written_seeing), (MADE_TOWERS, made_seeing):
            for name, (init, words) in all_of.items():
                base = d / ("base of " + what.__name__ + name)
                init = init.split() + ["--initializer-range", 0.09, "--out", base]
                program(ares, "init", *init)
                one(what, name, d / (what.__name__ + name), base, words)
        if SMOL.is_dir():
            one(write_and_open, "SmolLM2, 2 steps", d / "smol", SMOL, {"rank": 16}, by_rewards())
        for i, (name, words) in enumerate(MADE.items()):
            base = SMOL if SMOL.is_dir() else d / "base 0"
            one(made, name, d / ("made %d" % i), base, words)
    sys.exit(bool(failed))


main()
