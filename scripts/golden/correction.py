"""Writes tests/golden/correction.json: rollout correction and the optimal token baseline, in float64.

    python scripts/golden/correction.py        (torch 2.11)

Plain formulas on padded tensors, from the definitions of verl's rollout correction (its k1, k2, k3
of a token, sum, mean and largest of a row, and its metrics) and of its optimal token baseline. Rows
have tokens of an environment between those of the policy, and one row has none of the policy.
"""

import json
import math
import pathlib

import torch

SEED = 20261129
OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/correction.json"
GROUPS = [3, 2, 4]
BOUND = 20.0
torch.set_default_dtype(torch.float64)


def draw(groups, spread, generator):
    rows, width = sum(groups), 9
    lengths = torch.randint(3, width + 1, (rows,), generator=generator)
    inside = torch.arange(width) < lengths[:, None]
    mask = (torch.rand(rows, width, generator=generator) > 0.25) & inside
    mask[torch.arange(rows), lengths - 1] = True
    mask[1] = False
    f32 = lambda x: x.float().double()
    old = f32(-2 * torch.rand(rows, width, generator=generator) - 0.01)
    rollout = f32(old + spread * torch.randn(rows, width, generator=generator))
    own = torch.exp(old) ** 2
    squares = f32(own + (1 - torch.exp(old)) ** 2 * torch.rand(rows, width, generator=generator))
    rewards = torch.zeros(rows, width)
    rewards[torch.arange(rows), lengths - 1] = (
        torch.randint(-1, 4, (rows,), generator=generator).double() / 2
    )
    dense = f32(rewards + 0.2 * torch.randn(rows, width, generator=generator)) * inside
    return dict(
        groups=groups,
        lengths=lengths,
        mask=mask,
        old=old,
        rollout=rollout,
        squares=squares,
        rewards=dense,
    )


def row(x, mask, how):
    """Of each row with a token: the sum, mean or largest of x where the mask is."""
    pick = {"sum": torch.sum, "mean": torch.mean, "max": torch.max}[how]
    return torch.stack([pick(a[m]) for a, m in zip(x, mask) if m.any()])


def spread_of(values, mask):
    """The value of a row at each of its tokens of the mask, all in one list."""
    some = mask[mask.any(1)]
    return torch.cat([v.repeat(int(m.sum())) for v, m in zip(values, some)])


def about(values):
    n = len(values)
    return {
        "seq_mean": values.mean(),
        "seq_std": values.std() if n > 1 else torch.zeros(()),
        "seq_min": values.min(),
        "seq_max": values.max(),
    }


def divergences(x):
    mask, ratio = x["mask"], x["old"] - x["rollout"]
    old, rollout = row(x["old"], mask, "mean"), row(x["rollout"], mask, "mean")
    some, gap = ratio[mask], rollout - old
    return {
        "training_ppl": torch.exp(-old).mean(),
        "training_log_ppl": -old.mean(),
        "rollout_ppl": torch.exp(-rollout).mean(),
        "rollout_log_ppl": -rollout.mean(),
        "kl": -some.mean(),
        "k3_kl": (torch.exp(some) - some - 1).mean(),
        "log_ppl_diff": gap.mean(),
        "log_ppl_abs_diff": gap.abs().mean(),
        "log_ppl_diff_max": gap.max(),
        "log_ppl_diff_min": gap.min(),
        "ppl_ratio": torch.exp(gap).mean(),
        "chi2_token": (torch.exp(some.clamp(-BOUND, BOUND)) ** 2).mean() - 1,
        "chi2_seq": torch.exp(2 * row(ratio, mask, "sum").clamp(-BOUND, BOUND)).mean() - 1,
    }


def weights(x, level, upper, normalize):
    mask, ratio = x["mask"], x["old"] - x["rollout"]
    lower = 1 / upper
    if level == "token":
        token = torch.exp(ratio[mask].clamp(-BOUND, BOUND))
        padded = torch.zeros_like(ratio)
        padded[mask] = token
        rows = row(padded, mask, "mean")
        ends, judged = token, token
    else:
        how = "sum" if level == "sequence" else "mean"
        rows = torch.exp(row(ratio, mask, how).clamp(-BOUND, BOUND))
        token = spread_of(rows, mask)
        ends, judged = rows, rows
    inner = token.clamp(lower, upper)
    metrics = {
        "mean": token.mean(),
        "min": ends.min(),
        "max": ends.max(),
        "ratio_fraction_high": (judged > upper).double().mean(),
        "ratio_fraction_low": (judged < lower).double().mean(),
        "std": ((inner**2).mean() - inner.mean() ** 2).clamp(min=0).sqrt(),
        "eff_sample_size": 1 / ((inner / inner.mean()) ** 2).mean(),
        "seq_max_deviation": (rows - 1).abs().max(),
        "seq_fraction_high": (rows > upper).double().mean(),
        "seq_fraction_low": (rows < lower).double().mean(),
        **about(rows),
    }
    capped = token.clamp(max=upper)
    if normalize:
        factor = capped.mean() if level == "token" else rows.clamp(max=upper).mean()
        capped = capped / factor
        metrics["batch_norm_factor"] = factor
    out = torch.zeros_like(ratio)
    out[mask] = capped
    return out, {"rollout_is_" + k: v for k, v in metrics.items()}


def value(ratio, k):
    z = ratio.clamp(-BOUND, BOUND)
    return {"k1": -z, "k2": z**2 / 2, "k3": torch.exp(z) - 1 - z}[k]


def rejected(x, option, threshold):
    mask = x["mask"]
    level, k = option.rsplit("_", 1)
    token = value(x["old"] - x["rollout"], k)
    if k == "k1":
        low, _, high = threshold.partition("_")
        low, high = (float(low), float(high)) if high else (1 / float(low), float(low))
        low, high = math.log(low), math.log(high)
    else:
        low, high = None, float(threshold)
    least = -math.inf if low is None else low
    if level == "token":
        at, rows = token[mask], row(token, mask, "mean")
        ends = judged = at
    else:
        rows = row(token, mask, level[4:])
        at = spread_of(rows, mask)
        ends = judged = rows
    ok = (at >= least) & (at <= high)
    kept = torch.zeros_like(mask)
    kept[mask] = ok
    inner = at.clamp(0.0 if low is None else low, high)
    touched = (mask & ~kept).any(1)[mask.any(1)]
    metrics = {
        "mean": at.mean(),
        "min": ends.min(),
        "max": ends.max(),
        "fraction_high": (judged > high).double().mean(),
        "fraction_low": (judged < least).double().mean(),
        "std": ((inner**2).mean() - inner.mean() ** 2).clamp(min=0).sqrt(),
        "seq_max_deviation": rows.abs().max(),
        "seq_fraction_high": (rows > high).double().mean(),
        "masked_fraction": 1 - ok.double().mean(),
        "seq_masked_fraction": touched.double().mean(),
        **about(rows),
    }
    if low is not None:
        metrics["seq_fraction_low"] = (rows < low).double().mean()
    return kept, {"rollout_rs_%s_%s" % (option, k): v for k, v in metrics.items()}


def otb(x, rho):
    mask = x["mask"]
    returns = torch.flip(torch.cumsum(torch.flip(x["rewards"] * mask, [1]), 1), [1])
    one = (1 - 2 * torch.exp(x["old"]) + x["squares"]) * rho**2 * mask
    energy = torch.cumsum(one, 1)
    advantages, at = torch.zeros_like(returns), 0
    for n in x["groups"]:
        g, w, m = returns[at : at + n], energy[at : at + n], mask[at : at + n]
        baseline = (g * w * m).sum(0) / ((w * m).sum(0) + 1e-8)
        advantages[at : at + n] = (g - baseline) * m
        at += n
    return advantages, returns * mask


def rows_of(x, column):
    return [column[r, :n].tolist() for r, n in enumerate(x["lengths"])]


def correction(x, options):
    metrics, expected = divergences(x), {}
    if "rollout_is" in options:
        out, more = weights(
            x,
            options["rollout_is"],
            options.get("rollout_is_threshold", 2.0),
            options.get("rollout_is_batch_normalize", False),
        )
        metrics.update(more)
        expected["weights"] = rows_of(x, out)
    if "rollout_rs" in options:
        names, bounds = options["rollout_rs"].split(","), options["rollout_rs_threshold"].split(",")
        bounds = bounds * len(names) if len(bounds) == 1 else bounds
        kept = x["mask"]
        for name, bound in zip(names, bounds):
            one, more = rejected(x, name, bound)
            kept = kept & one
            metrics.update(more)
        some = x["mask"].any(1)
        metrics["rollout_rs_masked_fraction"] = (x["mask"] & ~kept).sum() / x["mask"].sum()
        metrics["rollout_rs_seq_masked_fraction"] = (
            (x["mask"] & ~kept).any(1)[some].double().mean()
        )
    if "rollout_token_veto_threshold" in options:
        below = (x["old"] - x["rollout"] < math.log(options["rollout_token_veto_threshold"])) & x["mask"]
        metrics["rollout_is_veto_fraction"] = below.any(1)[x["mask"].any(1)].double().mean()
        metrics["rollout_is_catastrophic_token_fraction"] = below.sum() / x["mask"].sum()
        kept = (kept if "rollout_rs" in options else x["mask"]) & ~below.any(1)[:, None]
    if "rollout_rs" in options or "rollout_token_veto_threshold" in options:
        expected["kept"] = rows_of(x, kept.int())
    expected["metrics"] = {"rollout_corr/" + k: float(v) for k, v in metrics.items()}
    return {
        "function": "rollout_correction",
        "inputs": {
            "groups": x["groups"],
            "mask": rows_of(x, x["mask"].int()),
            "old_log_probs": rows_of(x, x["old"]),
            "rollout_log_probs": rows_of(x, x["rollout"]),
            **options,
        },
        "expected": expected,
        "tolerance": 1e-6,
    }


def advantage(x, rho):
    advantages, returns = otb(x, torch.ones(()) if rho is None else rho)
    inputs = {
        "estimator": "optimal_token_baseline",
        "groups": x["groups"],
        "mask": rows_of(x, x["mask"].int()),
        "rewards": rows_of(x, x["rewards"]),
        "old_log_probs": rows_of(x, x["old"]),
        "sum_pi_squared": rows_of(x, x["squares"]),
    }
    if rho is not None:
        inputs["rollout_is_weights"] = rows_of(x, rho)
    return {
        "function": "advantage",
        "inputs": inputs,
        "expected": {"advantages": rows_of(x, advantages), "returns": rows_of(x, returns)},
        "tolerance": 1e-6,
    }


OPTIONS = [
    {"rollout_is": "token"},
    {"rollout_is": "token", "rollout_is_threshold": 1.5, "rollout_is_batch_normalize": True},
    {"rollout_is": "sequence", "rollout_is_threshold": 3.0},
    {"rollout_is": "sequence", "rollout_is_batch_normalize": True},
    {"rollout_is": "geometric", "rollout_is_threshold": 1.2, "rollout_is_batch_normalize": True},
    {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.6_1.6"},
    {"rollout_rs": "token_k1", "rollout_rs_threshold": "2.0"},
    {"rollout_rs": "token_k2,token_k3", "rollout_rs_threshold": "0.1"},
    {"rollout_rs": "seq_sum_k1,seq_sum_k2", "rollout_rs_threshold": "0.4_2.0,0.5"},
    {"rollout_rs": "seq_sum_k3,seq_mean_k1", "rollout_rs_threshold": "0.6,0.8_1.3"},
    {"rollout_rs": "seq_mean_k2,seq_mean_k3", "rollout_rs_threshold": "0.06,0.09"},
    {"rollout_rs": "seq_max_k2,seq_max_k3", "rollout_rs_threshold": "0.2,0.25"},
    {"rollout_token_veto_threshold": 0.5},
    {
        "rollout_is": "token",
        "rollout_is_batch_normalize": True,
        "rollout_rs": "token_k1,seq_max_k2",
        "rollout_rs_threshold": "0.6_1.6,2.5",
        "rollout_token_veto_threshold": 0.4,
    },
]


def main():
    generator = torch.Generator().manual_seed(SEED)
    cases = []
    for options in OPTIONS:
        cases.append(correction(draw(GROUPS, 0.4, generator), options))
    # beyond the bounds of exponents
    cases.append(
        correction(
            draw(GROUPS, 9.0, generator),
            {"rollout_is": "sequence", "rollout_rs": "seq_sum_k1", "rollout_rs_threshold": "9.0"},
        )
    )
    for rho in (False, True):
        x = draw(GROUPS, 0.4, generator)
        capped = weights(x, "token", 1.5, False)[0].float().double() if rho else None
        cases.append(advantage(x, capped))
    version = torch.__version__.split("+")[0]
    about_it = f"scripts/golden/correction.py: plain formulas in float64, torch {version}, seed {SEED}"
    OUT.write_text(
        json.dumps({"about": about_it, "count": len(cases), "cases": cases}).replace(
            '{"function"', '\n{"function"'
        )
        + "\n"
    )
    print(len(cases), "cases", OUT.stat().st_size, "bytes")


main()
