"""Conversations with environments, turns per second, and steps of environments per second, in
Python: the other side of benchmarks/agents.c.

    python benchmarks/peers/agents.py turns --model DIR [--cache dynamic|static] [--environments 128]
                                            [--turns 5] [--new 100]
    python benchmarks/peers/agents.py steps [--environment lake|lake-made|sokoban|sokoban-tiny]

turns: all environments are one batch of transformers, and its cache stays from turn to turn, so that
a turn computes its new tokens only. A turn ends when every answer has ended. Prompts are those of
the tag FrozenLake, the lakes Gymnasium's. What a trainer would do besides (log-probs, rows to train
on) is left out.
steps: lake: the class of Gymnasium; lake-made: gymnasium.make's, with its wrappers; sokoban:
gym-sokoban as it is; sokoban-tiny: with the smallest picture that it can be told to draw.
"""

import contextlib
import io
import random
import re
import time

from common import emit, options, start

ACTIONS = ("Left", "Down", "Right", "Up")
SYSTEM = (
    "You're a helpful assistant. You are solving the FrozenLake puzzle. Forbid the whole and go to "
    "the target. You may move to the unintended direction due to the slippery ice. Example answer "
    "format: <think>To forbid the hole and go to the target, I should go left then go up.</think>"
    "<answer>Left || Up</answer>\nThe meaning of each symbol in the state is:\nP: player, _: empty, "
    "O: hole, G: goal, X: player in hole, \u221a: player on goal\nYour available actions are:\n"
    'Left, Down, Right, Up\nYou can make up to 10 actions, separated by the action separator " || "'
    "\n"
)
RULE = (
    "You have %d actions left. Always output: <think> [Your thoughts] </think> <answer> [your "
    "answer] </answer> with no extra text. Strictly follow this format. Max response length: 100 "
    "words (tokens).\n"
)
INVALID = (
    "No valid action provided previously. Environment state remains the same. Please try again.\n"
)
ANSWER = re.compile(r"<think>.*?</think>\s*<answer>(.*?)</answer>", re.S)


def lake(seed, **how):
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map

    env = FrozenLakeEnv(
        desc=generate_random_map(4, 0.9, seed=seed), is_slippery=True, success_rate=0.8, **how
    )
    env.reset(seed=seed)
    return env


class Episode:
    def __init__(self, seed):
        self.env = lake(seed)
        self.turn, self.left, self.over, self.warn, self.reward = 0, 10, False, False, 0
        self.cells = [c.decode() for row in self.env.desc for c in row]

    def state(self):
        look = {"H": "O", "G": "G"}
        here = {"H": "X", "G": "\u221a"}
        shown = [look.get(c, "_") for c in self.cells]
        shown[self.env.s] = here.get(self.cells[self.env.s], "P")
        return "\n".join("".join(shown[i : i + 4]) for i in range(0, 16, 4))

    def message(self):
        """What the user says in the next turn."""
        self.turn += 1
        reward = "Reward:\n%d\n" % self.reward if self.turn > 1 else ""
        return "%s\nTurn %d:\nState:\n%s\n%s%s" % (
            reward,
            self.turn,
            self.state(),
            INVALID if self.warn else "",
            RULE % self.left,
        )

    def take(self, text):
        found = ANSWER.search("<think>" + text)
        names = [a.strip() for a in found.group(1).split("||")][:2] if found else []
        known = [ACTIONS.index(a.capitalize()) for a in names if a.capitalize() in ACTIONS]
        self.warn, self.reward = not known, 0
        for action in known:
            _, reward, self.over, _, _ = self.env.step(action)
            self.reward += reward
            self.left -= 1
            self.over |= self.left == 0
            if self.over:
                break


class Batch:
    """All conversations, with one cache. A column of it is a token of each, or is masked."""

    def __init__(self, model, tokenizer, args):
        import torch
        import transformers

        self.model, self.tokenizer, self.args = model, tokenizer, args
        ids = tokenizer.convert_tokens_to_ids
        self.end, self.pad = ids("<|im_end|>"), ids("<|endoftext|>")
        self.stops = torch.tensor(tokenizer.all_special_ids)
        if args.cache == "static":
            self.cache = transformers.StaticCache(config=model.config, max_cache_len=args.length)
        else:
            self.cache = transformers.DynamicCache(config=model.config)
        self.mask = torch.zeros(args.environments, 0, dtype=torch.long)

    def forward(self, ids, real):
        """ids, real [environments, n]: the logits after the last column."""
        import torch

        before = self.mask.sum(-1, keepdim=True)
        self.mask = torch.cat([self.mask, real], -1)
        positions = (before + real.cumsum(-1) - 1).clamp(min=0)
        return self.model(
            input_ids=ids,
            attention_mask=self.mask,
            position_ids=positions,
            past_key_values=self.cache,
            logits_to_keep=1,
        ).logits[:, -1]

    def answer(self, prompts):
        """prompts: new ids of each conversation, none where it is over. What is written to each."""
        import torch

        longest = max(map(len, prompts))
        ids = torch.full((len(prompts), longest), self.pad)
        real = torch.zeros_like(ids)
        for row, p in enumerate(prompts):
            if p:
                ids[row, longest - len(p) :] = torch.tensor(p)
                real[row, longest - len(p) :] = 1
        alive = torch.tensor([bool(p) for p in prompts])
        out = [[] for _ in prompts]
        for i in range(self.args.new):
            logits = self.forward(ids, real)
            ids = torch.multinomial(torch.softmax(logits, -1), 1)
            for row, token in enumerate(ids[:, 0].tolist()):
                if alive[row]:
                    out[row].append(token)
            alive &= ~torch.isin(ids[:, 0], self.stops)
            if not alive.any() or i + 1 == self.args.new:
                return out
            real = alive[:, None].long()


def chat(tokenizer, text):
    return tokenizer(text, add_special_tokens=False).input_ids


def play(model, tokenizer, args, turns):
    """Seconds, a turn count, tokens written and tokens of all prompts."""
    import torch

    begin = time.perf_counter()
    episodes = [Episode(i) for i in range(args.environments)]
    batch = Batch(model, tokenizer, args)
    written = [[] for _ in episodes]
    lengths = [0] * len(episodes)
    total, new, read = 0, 0, 0
    user = "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n<think>"
    with torch.inference_mode():
        for turn in range(turns):
            prompts = []
            for i, e in enumerate(episodes):
                if e.over:
                    prompts.append([])
                    continue
                if turn:  # the last token that was sampled is not in the cache
                    ended = written[i][-1] == batch.end
                    text = ("" if ended else "<|im_end|>") + "\n" + user % e.message()
                    prompts.append(written[i][-1:] + chat(tokenizer, text))
                    lengths[i] += len(written[i]) + len(prompts[i]) - 1
                else:
                    text = "<|im_start|>system\n%s<|im_end|>\n" % SYSTEM + user % e.message()
                    prompts.append(chat(tokenizer, text))
                    lengths[i] += len(prompts[i])
                read += lengths[i]
            written = batch.answer(prompts)
            for i, e in enumerate(episodes):
                if not e.over:
                    e.take(tokenizer.decode(written[i], skip_special_tokens=True))
                    total, new = total + 1, new + len(written[i])
            if all(e.over for e in episodes):
                break
    return time.perf_counter() - begin, total, new, read


def turns(args):
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype="float32").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    play(model, tokenizer, args, 1)
    times = []
    for _ in range(args.repeat):
        seconds, total, new, read = play(model, tokenizer, args, args.turns)
        times.append(seconds / total)
    emit(
        "turns",
        "turns/s",
        args,
        times,
        lambda t: 1 / t,
        model=args.model,
        environments=args.environments,
        turns_per_episode=round(total / args.environments, 3),
        tokens_per_turn=round(new / total, 2),
        prompt_tokens_per_turn=round(read / total, 2),
        peer="transformers, %s cache" % args.cache,
    )


def sokoban(seed, picture):
    from gym_sokoban.envs.sokoban_env import SokobanEnv

    class Env(SokobanEnv):
        def step(self, action):  # its first four actions push, as ours do
            return super().step(action + 1, observation_mode=picture)

    random.seed(seed)
    return Env(dim_room=(6, 6), max_steps=100, num_boxes=1)


def made(seed):
    import gymnasium

    bare = lake(seed)
    env = gymnasium.make(
        "FrozenLake-v1", desc=bare.desc, is_slippery=True, success_rate=0.8, max_episode_steps=10**9
    )
    env.reset(seed=seed)
    return env


ENVIRONMENTS = {
    "lake": (lake, 64),
    "lake-made": (made, 64),
    "sokoban": (lambda seed: sokoban(seed, "rgb_array"), 16),
    "sokoban-tiny": (lambda seed: sokoban(seed, "tiny_rgb_array"), 64),
}


def steps(args):
    make, places = ENVIRONMENTS[args.environment]
    actions = [random.randrange(4) for _ in range(1024)]
    times, resets = [], []
    make(0)
    for k in range(args.repeat):
        begin = time.perf_counter()
        live = [make(k * places + i) for i in range(places)]
        resets.append((time.perf_counter() - begin) / places)
        n, begin = 0, time.perf_counter()
        while live:
            going = []
            for env in live:
                n += 1
                if not env.step(actions[n % 1024])[2]:
                    going.append(env)
            live = going
        times.append((time.perf_counter() - begin) / n)
    for measure, seconds in (("steps", times), ("resets", resets)):
        emit(
            measure,
            measure + "/s",
            args,
            seconds,
            lambda t: 1 / t,
            environment=args.environment,
            peer="gym-sokoban" if "sokoban" in args.environment else "gymnasium",
        )


def main():
    p = options(__doc__)
    p.add_argument("what", choices=["turns", "steps"])
    p.add_argument("--cache", default="dynamic", choices=["dynamic", "static"])
    p.add_argument("--environments", type=int, default=128)
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("--new", type=int, default=100)
    p.add_argument("--length", type=int, default=3600, help="tokens of a static cache")
    p.add_argument("--environment", default="lake", choices=ENVIRONMENTS)
    args = start(p)
    random.seed(args.seed)
    if args.what == "turns":
        return turns(args)
    with contextlib.redirect_stderr(io.StringIO()):  # gym says that nobody maintains it
        steps(args)


main()
