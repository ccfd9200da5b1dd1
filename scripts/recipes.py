#!/usr/bin/env python3
"""Published recipes through --check, with a tiny model and rows of its own.

    scripts/recipes.py [PROGRAM] [-v]      PROGRAM: build/ares-train by default

Prints how many of the recipes of scripts/recipes.txt pass, and for each other one what it is
refused for; -v prints all faults. Every recipe is checked for one machine of eight cards, less
those that share a model by Megatron's sizes: each process has the whole model, and the rollout's
tensor_parallel_size is left out, as is the kind of card (npu). TRL's commands start one process, and
slime's smallest have fewer prompts than cards. TRL's scripts that load a data set in their code get
rows and a verifier. What the machine at hand lacks in memory counts for nothing.
Model, rows and reward functions are stand-ins. The word @verb is the verb.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PREFIXES = {"A:": "actor_rollout_ref.actor.", "R:": "actor_rollout_ref.rollout.",
            "F:": "actor_rollout_ref.ref.", "M:": "actor_rollout_ref.model."}


def read(path):
    """{name: {word: value}}, in order."""
    recipes, words = {}, None
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            continue
        if not line.startswith(" "):
            name, _, base = line.partition("  as ")
            words = recipes[name] = dict(recipes[base]) if base else {}
            continue
        for one in line.split():
            plus, one = re.match(r"(\+*)(.*)", one).groups()
            gone = one.startswith("~")
            one = one.lstrip("~")
            plus2, one = re.match(r"(\+*)(.*)", one).groups()
            one = PREFIXES.get(one[:2], one[:2]) + one[2:]
            word, _, value = one.partition("=")
            if gone:
                words.pop(plus2 + word, None)
            else:
                words[plus + word] = value
    return recipes


def stand_ins(program):
    for arch, name, width in (("qwen2", "model", "16"), ("qwen2_5_vl", "model_vl", "64")):
        subprocess.run([program, "init", "--arch", arch, "--out", name, "--hidden", width,
                        "--layers", "1", "--intermediate", "16", "--max-position", "1000000",
                        "--seed", "1"],
                       check=True, capture_output=True)
    stand_in_adapter(pathlib.Path("ad"), 16, 16)
    rows, chats, pairs = [], [], []
    for i in range(64):
        ask, tell = "%d + 1" % i, str(i + 1)
        asked = {"role": "user", "content": ask}
        rows.append({"prompt": ask, "problem": ask, "messages": [asked], "answer": tell,
                     "solution": tell, "solutions": [tell], "label": tell,
                     "data_source": "openai/gsm8k"})
        chats.append({"messages": [asked, {"role": "assistant", "content": tell}]})
        pairs.append({"query": ask, "response": "The answer is: " + tell})
    for name, items in (("rows", rows), ("chats", chats), ("metamath", pairs)):
        pathlib.Path(name + ".jsonl").write_text("\n".join(map(json.dumps, items)))
    pathlib.Path("chats").mkdir()
    for split in ("train", "test"):
        pathlib.Path("chats/%s.jsonl" % split).symlink_to("../chats.jsonl")


EASYR1 = '''REWARD_TYPE = "batch"
def compute_score(reward_inputs, **more):
    return [{"overall": 0.0} for _ in reward_inputs]
'''
VERL = '''def compute_score(data_source, solution_str, ground_truth, extra_info=None, **more):
    return 0.0
'''


def stand_in_adapter(path, hidden, intermediate):
    """An adapter of rank 1 of the gates of one block, all numbers 0."""
    path.mkdir()
    name = "base_model.model.model.layers.0.mlp.gate_proj.lora_%s.weight"
    header = json.dumps({
        name % "A": {"dtype": "F32", "shape": [1, hidden], "data_offsets": [0, 4 * hidden]},
        name % "B": {"dtype": "F32", "shape": [intermediate, 1],
                     "data_offsets": [4 * hidden, 4 * (hidden + intermediate)]}}).encode()
    (path / "adapter_model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + bytes(4 * (hidden + intermediate)))
    (path / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 1, "lora_alpha": 1,
         "target_modules": ["gate_proj"]}))


def stand_in_files(words):
    for word, value in words.items():
        if word.endswith("format_prompt"):
            pathlib.Path(value).write_text("{{ content }}")
        if word == "worker.reward.reward_function" and ".py" in value:
            pathlib.Path(value.partition(":")[0]).write_text(EASYR1)
        if word.endswith("custom_reward_function.path"):
            pathlib.Path(value).write_text(VERL)


def processes(words):
    """Of eight cards: how many have rows of their own, where Megatron shares a model."""
    cards = 8
    for before in ("", "actor_rollout_ref.actor.megatron.", "actor.model."):
        for kind in ("tensor_model", "pipeline_model", "context"):
            cards //= int(words.get(before + kind + "_parallel_size", 1)) if cards else 1
    return max(cards, 1)


def cards(name, words):
    """Of the machine: as many as the recipe's own batch is for. TRL's start one process unless they
    say more; slime's name their cards; an optimizer step has a prompt for each process."""
    if name.startswith("TRL/"):
        return 1
    per_step = words.get("num_steps_per_rollout"), words.get("rollout_batch_size")
    groups = int(per_step[1]) // int(per_step[0]) if all(per_step) else 8
    if name.startswith("slime/") and "global_batch_size" in words:
        samples = int(words["global_batch_size"]) // int(words.get("n_samples_per_prompt", 1))
        groups = min(groups, samples) if samples else groups
    return min(processes(words), max(groups, 1))


def faults(program, name, words):
    stand_in_files(words)
    rows = {"dataset_name", "data.train_files"} & set(words)
    if name.startswith("TRL/") and "@verb" not in words and not rows:
        # its script loads a data set that it names in its code, and makes rows of it
        words = {**words, "dataset_name": "rows.jsonl"}
        if "reward_funcs" not in words:
            words["worker.reward.rewards"] = "[{name: math_verify}]"
    sees = "vl" in name.lower() or "geo3k" in name
    machine = ("rollout.tensor_model_parallel_size", "rollout.tensor_parallel_size",
               "trainer.device")
    words = {word: value for word, value in words.items() if not word.endswith(machine)}
    verb = [words.pop("@verb")] if "@verb" in words else []
    teacher = re.compile(r"\+?distillation\.teacher_models\.\w+\.model_path$")
    if sum(bool(teacher.match(word)) for word in words) == 1:
        words = {word: "model" if teacher.match(word) else value for word, value in words.items()}
    line = ["%s=%s" % (word, "model_vl" if value == "model" and sees else value)
            for word, value in words.items()]
    place = ["trainer.nnodes=1", "trainer.n_gpus_per_node=%d" % cards(name, words)]
    if verb or "num_processes" in words:
        place = []
    run = subprocess.run([program] + verb + ["--check"] + place + line, capture_output=True,
                         text=True)
    found = [re.sub(r"^(error: )?config: (command line: )?", "", one)
             for one in run.stderr.splitlines()
             if " -> " not in one and ": adapters want " not in one
             and not one.startswith(("warning", "config: defaults of"))]
    memory = [one for one in found if one.startswith("a process needs")]
    return [one for one in found if one not in memory] if run.returncode else []


def main():
    verbose = "-v" in sys.argv
    names = [a for a in sys.argv[1:] if a != "-v"]
    program = os.path.abspath(names[0] if names else HERE.parent / "build" / "ares-train")
    recipes = read(HERE / "recipes.txt")
    passed, tried = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        stand_ins(program)
        for name, words in recipes.items():
            if name.endswith("/config"):  # what the others begin with
                continue
            trainer = name.split("/")[0]
            found = faults(program, name, words)
            tried[trainer] = tried.get(trainer, 0) + 1
            passed[trainer] = passed.get(trainer, 0) + (not found)
            for one in found[: None if verbose else 1]:
                print("%s: %s" % (name, one[:200]))
        os.chdir("/")
    for trainer in tried:
        print("%s: %d of %d pass" % (trainer, passed[trainer], tried[trainer]))
    print("%d of %d pass" % (sum(passed.values()), sum(tried.values())))


main()
