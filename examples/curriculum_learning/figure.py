"""Table and figure of a run over two data sets, from its metrics.

    python3 figure.py RUN_FOLDER OUT.svg

The table is printed; each of its rows is the mean of ten steps.
"""

import json
import sys

SOURCES = ("math", "instructions")
COLORS = ("#1f6fb4", "#c8501e")
WIDTH, HEIGHT, LEFT, TOP = 640, 300, 50, 30


def read(path):
    rows = [json.loads(line) for line in open(path + "/metrics.jsonl", encoding="utf-8")]
    return [r for r in rows if r["step"] > 0]


def share(row, source):
    counts = [row.get(f"rollout/{s}/sample_count", 0) for s in SOURCES]
    return row.get(f"rollout/{source}/sample_count", 0) / max(1, sum(counts))


def mean(rows, name):
    values = [r[name] for r in rows if r.get(name) is not None]
    return f"{sum(values) / len(values):.2f}" if values else "-"


def table(rows):
    print("| steps | data set | weight | share of the batch | cap | mean reward kept | "
          "dropped above the cap | dropped as zeros |\n|---|---|---|---|---|---|---|---|")
    for at in range(0, len(rows), 10):
        part = rows[at:at + 10]
        for s in SOURCES:
            shares = sum(share(r, s) for r in part) / len(part)
            print(f"| {at + 1} to {at + len(part)} | {s} | {mean(part, f'rollout/{s}/weight')} | "
                  f"{shares:.2f} | {mean(part, f'rollout/{s}/reward_cap')} | "
                  f"{mean(part, f'rollout/{s}/raw_reward/mean')} | "
                  f"{mean(part, f'rollout/{s}/drop_rate_reward_cap')} | "
                  f"{mean(part, f'rollout/{s}/drop_rate_all_zero')} |")


def line(rows, value, color, dash):
    points = [(i, value(r)) for i, r in enumerate(rows) if value(r) is not None]
    at = " ".join(f"{LEFT + i * (WIDTH - LEFT - 10) / max(1, len(rows) - 1):.1f},"
                  f"{TOP + (1 - v) * (HEIGHT - TOP - 40):.1f}" for i, v in points)
    return (f'<polyline points="{at}" fill="none" stroke="{color}" stroke-width="1.6" '
            f'stroke-dasharray="{dash}"/>')


def figure(rows, path):
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
           f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>']
    for v in (0, 0.5, 1):
        y = TOP + (1 - v) * (HEIGHT - TOP - 40)
        out.append(f'<path d="M{LEFT} {y}H{WIDTH - 10}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{v}</text>')
    for source, color in zip(SOURCES, COLORS):
        out.append(line(rows, lambda r, s=source: r.get(f"rollout/{s}/weight"), color, ""))
        out.append(line(rows, lambda r, s=source: r.get(f"rollout/{s}/reward_cap"), color, "6 3"))
        out.append(line(rows, lambda r, s=source: share(r, s), color, "1 3"))
    out.append(f'<text x="{LEFT}" y="18">weight (line), cap (dashes), share of the batch (dots): '
               f'<tspan fill="{COLORS[0]}">{SOURCES[0]}</tspan>, '
               f'<tspan fill="{COLORS[1]}">{SOURCES[1]}</tspan></text>'
               f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
               f'training steps 1 to {len(rows)}</text></svg>')
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


def main():
    rows = read(sys.argv[1])
    table(rows)
    figure(rows, sys.argv[2])


main()
