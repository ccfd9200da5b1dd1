"""The algorithms that touch every token, in eager PyTorch (window entropy: in Python lists, as its
source has it), milliseconds.

    python benchmarks/peers/algo.py [loss windows thresholds thresholds_torch gae] [--kept]

Needs torch alone. `check` is the number that benchmarks/algo.c prints of the same distributions.
"""

from common import emit, options, start, timed


def line(args, name, run, check):
    times = timed(run, args.repeat)
    emit(
        name,
        "ms",
        args,
        times,
        lambda t: 1e3 * t,
        check=float(check()),
        peer="Python lists" if name in ("windows", "thresholds") else "torch eager",
    )


def loss(args):
    """verl's compute_policy_loss_vanilla, kl_penalty low_var_kl and entropy, aggregated by agg_loss
    token-mean, with the metrics it makes."""
    import torch

    n = 1024
    log_prob = torch.randn(n, n) * 0.3 - 1.5
    old, ref = log_prob + torch.randn(n, n) * 0.1, log_prob + torch.randn(n, n) * 0.2
    advantage, entropy = torch.randn(n, n), torch.randn(n, n) * 0.2 + 1
    mask = torch.ones(n, n)
    mask.view(-1)[15::16] = 0
    out = {}

    def masked_mean(x):
        return (x * mask).sum() / (mask.sum() + 1e-8)

    def run():
        lp, h = log_prob.detach().requires_grad_(), entropy.detach().requires_grad_()
        negative = torch.clamp(lp - old, min=-20.0, max=20.0)
        ratio = torch.exp(negative)
        ppo_kl = masked_mean(-negative)
        l1 = -advantage * ratio
        l2 = -advantage * torch.clamp(ratio, 1 - 0.2, 1 + 0.3)
        clipped = torch.maximum(l1, l2)
        clip_frac = masked_mean(torch.gt(l2, l1).float())
        l3 = -advantage * 3.0
        dual = torch.min(l3, clipped)
        clip_frac_lower = masked_mean(torch.gt(clipped, l3) * (advantage < 0).float())
        pg = masked_mean(torch.where(advantage < 0, dual, clipped))
        kl = torch.clamp(ref - lp, min=-20, max=20)
        kl = masked_mean(torch.clamp(torch.exp(kl) - kl - 1, min=-10, max=10))
        total = pg + 0.04 * kl - 0.01 * masked_mean(h)
        total.backward()
        with torch.no_grad():  # the other sums that a pass of ours gives
            out.update(
                total=total.item(),
                ppo_kl=ppo_kl.item(),
                clip=clip_frac.item(),
                lower=clip_frac_lower.item(),
                ratio=masked_mean(ratio).item(),
                off=masked_mean((ratio - 1).abs()).item(),
                low=torch.where(mask > 0, ratio, 1).min().item(),
                high=torch.where(mask > 0, ratio, 1).max().item(),
                k2=masked_mean(negative.square() / 2).item(),
                k3=masked_mean(ratio - 1 - negative).item(),
                size=masked_mean(clipped.abs()).item(),
                bins=torch.histc(negative[mask > 0], 64, -2, 2),
            )

    line(args, "loss", run, lambda: out["total"])


def responses_of(args):
    import random

    random.seed(args.seed)
    return [[abs(random.gauss(1, 0.3)) for _ in range(1024)] for _ in range(1024)]


def windows(args):
    """A list of floats a response: the mean of the w tokens that follow each, where there are so
    many."""
    responses, out = responses_of(args), {}

    def window_entropies(h, w):
        values = []
        for t in range(len(h)):
            following = h[t + 1 : t + 1 + w]
            if len(following) == w:
                values.append(sum(following) / w)
        return values

    def run():
        out["w"] = [window_entropies(h, 4) for h in responses]

    line(
        args,
        "windows",
        run,
        lambda: sorted(w[0] for w in out["w"])[511] / 2 + sorted(w[0] for w in out["w"])[512] / 2,
    )


def thresholds(args):
    """The same; tokens without w followers take the mean so far; then the percentile of a
    response."""
    responses, out = responses_of(args), {}

    def window_entropies(h, w):
        values = []
        for t in range(len(h)):
            following = h[t + 1 : t + 1 + w]
            if len(following) == w:
                values.append(sum(following) / w)
            else:
                values.append(sum(values) / len(values) if values else h[t])
        return values

    def percentile(values, q):
        ordered = sorted(values)
        rank = (len(ordered) - 1) * q / 100
        low = int(rank)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)

    def run():
        out["t"] = [percentile(window_entropies(h, 4), 95) for h in responses]

    line(args, "thresholds", run, lambda: sorted(out["t"])[511] / 2 + sorted(out["t"])[512] / 2)


def thresholds_torch(args):
    import torch

    h = (torch.randn(1024, 1024, dtype=torch.float64) * 0.3 + 1).abs()
    out = {}

    def run():
        w = h.unfold(1, 4, 1)[:, 1:].mean(-1)
        w = torch.cat([w, w.mean(1, keepdim=True).expand(-1, 4)], 1)
        out["t"] = torch.quantile(w, 0.95, dim=1)

    line(args, "thresholds_torch", run, lambda: out["t"].quantile(0.5))


def gae(args):
    """verl's compute_gae_advantage_return with masked_whiten."""
    import torch

    rewards, values = torch.randn(1024, 4096) * 0.1, torch.randn(1024, 4096) * 0.5
    mask = torch.ones(1024, 4096)
    gamma, lam = 1.0, 0.95
    out = {}

    def run():
        with torch.no_grad():
            next_values, carried, reverse = 0, 0, []
            for t in reversed(range(rewards.shape[-1])):
                delta = rewards[:, t] + gamma * next_values - values[:, t]
                now = delta + gamma * lam * carried
                next_values = values[:, t] * mask[:, t] + (1 - mask[:, t]) * next_values
                carried = now * mask[:, t] + (1 - mask[:, t]) * carried
                reverse.append(carried)
            advantages = torch.stack(reverse[::-1], dim=1)
            out["returns"] = advantages + values
            mean = (advantages * mask).sum() / (mask.sum() + 1e-8)
            var = ((advantages - mean).square() * mask).sum() / (mask.sum() + 1e-8)
            n = mask.sum()
            out["a"] = (advantages - mean) * torch.rsqrt(var * n / (n - 1) + 1e-8) * mask

    line(args, "gae", run, lambda: out["a"].square().mean())


MEASURES = {f.__name__: f for f in (loss, windows, thresholds, thresholds_torch, gae)}


def main():
    p = options(__doc__, model=False)
    p.add_argument("only", nargs="*", metavar="MEASURE", help=" ".join(MEASURES))
    args = start(p)
    for name in args.only or MEASURES:
        MEASURES[name](args)


main()
