"""Writes tests/golden/algo.json: every advantage estimator on random rows, computed in float64.

    python scripts/golden/algo.py        (torch 2.11)

The formulas are those of verl's core_algos, except bi_level_gae (RAGEN's) and vapor (the score less
the group's mean), on padded tensors, one row at a time. The rows have tokens of an environment
between those of the policy, and one group has a single answer.
"""

import json
import pathlib

import torch

SEED = 20260214
OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/algo.json"
GROUPS = [3, 4, 1, 5]
torch.set_default_dtype(torch.float64)


def f32(x):
    return x.to(torch.float32).to(torch.float64)


def masked_whiten(x, mask):
    n = mask.sum()
    mean = (x * mask).sum() / (n + 1e-8)
    var = ((x - mean) ** 2 * mask).sum() / (n + 1e-8) * n / (n - 1)
    return (x - mean) * torch.rsqrt(var + 1e-8) * mask


def draw(groups, generator):
    rows, width = sum(groups), 9
    lengths = torch.randint(2, width + 1, (rows,), generator=generator)
    inside = torch.arange(width) < lengths[:, None]
    mask = ((torch.rand(rows, width, generator=generator) > 0.3) & inside).double()
    mask[torch.arange(rows), lengths - 1] = 1
    last = mask.clone()
    ends = torch.zeros(rows, width)
    for r in range(rows):  # a turn ends where the environment answers, and at the last token
        for t in range(width):
            if mask[r, t] and (t + 1 == width or not mask[r, t + 1]):
                ends[r, t] = 1
    rewards = torch.zeros(rows, width)
    scores = torch.randint(-1, 4, (rows,), generator=generator).double() / 2
    rewards[torch.arange(rows), lengths - 1] = scores
    dense = f32(0.3 * torch.randn(rows, width, generator=generator)) * mask
    values = f32(torch.randn(rows, width, generator=generator)) * inside
    baselines = f32(torch.rand(rows, generator=generator))
    return dict(
        groups=groups,
        lengths=lengths,
        mask=last,
        ends=ends,
        rewards=rewards,
        dense=rewards + dense,
        values=values,
        baselines=baselines,
    )


def grouped(x, rewards, one):
    """Applies one(scores, lengths) to each group.

    In a group of one answer the advantage is the score: mean 0, standard deviation 1.
    """
    scores, lengths, out, at = rewards.sum(1), x["mask"].sum(1), [], 0
    for n in x["groups"]:
        s, k = scores[at : at + n], lengths[at : at + n]
        out.append(one(s, k) if n > 1 else s)
        at += n
    return torch.cat(out)[:, None] * x["mask"]


def passk(s, _, by_std=True):
    best, second = torch.topk(s, 2).values
    a = torch.zeros_like(s)
    a[s.argmax()] = (best - second) / (s.std() + 1e-6 if by_std else 1)
    return a


def gae(x, gamma, lam):
    advantages = torch.zeros_like(x["dense"])
    for r in range(len(advantages)):
        next_value = carried = 0.0
        for t in reversed(range(advantages.shape[1])):
            if not x["mask"][r, t]:
                continue
            carried = (
                x["dense"][r, t] + gamma * next_value - x["values"][r, t] + gamma * lam * carried
            )
            next_value = x["values"][r, t]
            advantages[r, t] = carried
    returns = (advantages + x["values"]) * x["mask"]
    return masked_whiten(advantages, x["mask"]), returns


def bi_level_gae(x, gamma, lam, high):
    rewards = x["dense"].clone()
    for r in range(len(rewards)):
        next_value = carried = 0.0
        for t in reversed(range(rewards.shape[1])):
            if x["ends"][r, t]:
                carried = (
                    x["dense"][r, t] + high * next_value - x["values"][r, t] + high * lam * carried
                )
                next_value = x["values"][r, t]
                rewards[r, t] = carried + x["values"][r, t]
    advantages = torch.zeros_like(rewards)
    for r in range(len(rewards)):
        next_value = carried = 0.0
        for t in reversed(range(rewards.shape[1])):
            if not x["mask"][r, t]:
                continue
            if x["ends"][r, t]:
                next_value = carried = 0.0
            carried = rewards[r, t] + gamma * next_value - x["values"][r, t] + gamma * lam * carried
            next_value = x["values"][r, t]
            advantages[r, t] = carried
    return masked_whiten(advantages, x["mask"]), (advantages + x["values"]) * x["mask"]


def reinforce_plus_plus(x, gamma):
    returns, running = torch.zeros_like(x["dense"]), torch.zeros(len(x["dense"]))
    for t in reversed(range(returns.shape[1])):
        returns[:, t] = running = x["dense"][:, t] + gamma * running
        running = running * x["mask"][:, t]
    return masked_whiten(returns, x["mask"]), returns * x["mask"]


def reinforce_plus_plus_baseline(x):
    return masked_whiten(grouped(x, x["rewards"], lambda s, k: s - s.mean()), x["mask"])


def remax(x):
    return (x["rewards"].sum(1) - x["baselines"])[:, None] * x["mask"]


def gpg(x):
    scores = x["rewards"].sum(1)
    return (
        len(scores)
        / max(1, int((scores != 0).sum()))
        * grouped(x, x["rewards"], lambda s, k: s - s.mean())
    )


def vapor(x):
    a = grouped(x, x["rewards"], lambda s, k: s - s.mean())
    a[[sum(x["groups"][:i]) for i, n in enumerate(x["groups"]) if n == 1]] = 0
    return a


def rows_of(x, column):
    return [column[r, :n].tolist() for r, n in enumerate(x["lengths"])]


def main():
    generator = torch.Generator().manual_seed(SEED)
    cases = []
    for groups in (GROUPS, [2, 2]):
        x = draw(groups, generator)
        some = {k: v for k, v in x.items() if k != "groups"}
        several = dict(x)
        if 1 in groups:  # pass@k needs at least two answers per group
            keep = [
                r
                for i, n in enumerate(groups)
                for r in range(sum(groups[:i]), sum(groups[: i + 1]))
                if n > 1
            ]
            several = dict(
                {k: v[keep] for k, v in some.items()}, groups=[n for n in groups if n > 1]
            )
        mean = lambda s, k: s - s.mean()
        standard = lambda s, k: (s - s.mean()) / (s.std() + 1e-6)
        outcome = {
            "grpo": (x, {}, grouped({**x}, x["rewards"], standard)),
            "grpo ": (x, {"norm_adv_by_std_in_grpo": False}, grouped(x, x["rewards"], mean)),
            "grpo_passk": (several, {}, grouped(several, several["rewards"], passk)),
            "rloo": (
                x,
                {},
                grouped(x, x["rewards"], lambda s, k: (s - s.mean()) * len(s) / (len(s) - 1)),
            ),
            "opo": (x, {}, grouped(x, x["rewards"], lambda s, k: s - (k * s).sum() / k.sum())),
            "gpg": (x, {}, gpg(x)),
            "remax": (x, {}, remax(x)),
            "reinforce_plus_plus_baseline": (x, {}, reinforce_plus_plus_baseline(x)),
            "vapor": (x, {}, vapor(x)),
        }
        dense = {
            "gae": (x, {"gamma": 0.9, "lam": 0.8}, gae(x, 0.9, 0.8)),
            "bi_level_gae": (
                x,
                {"gamma": 0.9, "lam": 0.8, "high_level_gamma": 0.7},
                bi_level_gae(x, 0.9, 0.8, 0.7),
            ),
            "reinforce_plus_plus": (x, {"gamma": 0.95}, reinforce_plus_plus(x, 0.95)),
        }
        for name, (y, options, advantages) in outcome.items():
            cases.append(
                case(name.strip(), y, y["rewards"], options, {"advantages": rows_of(y, advantages)})
            )
        for name, (y, options, (advantages, returns)) in dense.items():
            cases.append(
                case(
                    name,
                    y,
                    y["dense"],
                    options,
                    {"advantages": rows_of(y, advantages), "returns": rows_of(y, returns)},
                )
            )
    version = torch.__version__.split("+")[0]
    about = f"scripts/golden/algo.py: plain formulas in float64, torch {version}, seed {SEED}"
    OUT.write_text(
        json.dumps({"about": about, "count": len(cases), "cases": cases}, indent=None).replace(
            '{"function"', '\n{"function"'
        )
        + "\n"
    )
    print(len(cases), "cases", OUT.stat().st_size, "bytes")


def case(name, x, rewards, options, expected):
    inputs = {
        "estimator": name,
        "groups": x["groups"],
        "mask": rows_of(x, x["mask"].int()),
        "rewards": rows_of(x, rewards),
        **options,
    }
    if name in ("gae", "bi_level_gae"):
        inputs["values"] = rows_of(x, x["values"])
    if name == "bi_level_gae":
        inputs["turn_ends"] = rows_of(x, x["ends"].int())
    if name == "remax":
        inputs["baselines"] = x["baselines"].tolist()
    return {"function": "advantage", "inputs": inputs, "expected": expected, "tolerance": 1e-6}


main()
