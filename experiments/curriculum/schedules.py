"""Table and figure of one run of config.yaml, data set by data set, beside the schedules.

    python3 schedules.py RUN_FOLDER OUT.svg

The schedules are computed here once more, and a run that does not follow them is an error. The
table is printed; each of its rows is the mean of ten steps.
"""
import json
import sys

STEPS = 60
PROGRESS = [min(step / (STEPS - 1), 1) for step in range(STEPS)]
WEIGHT = {"easy": [0.9 - 0.8 * p for p in PROGRESS], "hard": [0.1 + 0.8 * p for p in PROGRESS]}
CAP = {"easy": [0.95 - 0.4 * p for p in PROGRESS], "hard": [0.55 + 0.4 * p for p in PROGRESS]}
COLOURS = {"easy": "#0072b2", "hard": "#d55e00"}
WINDOW = 5  # steps of a moving mean, this one in the middle
LEFT, TOP, WIDTH, HEIGHT, ACROSS, DOWN = 56, 96, 400, 210, 480, 296


def read(folder):
    with open(folder + "/metrics.jsonl", encoding="utf-8") as lines:
        return [r for r in map(json.loads, lines) if r["step"] > 0]


def series(rows, metric):
    return {s: [r.get(f"rollout/{s}/{metric}") for r in rows] for s in COLOURS}


def check(name, logged, schedule):
    far = max(abs(x - y) for s in COLOURS for x, y in zip(logged[s], schedule[s]) if x is not None)
    if far > 1e-9:
        sys.exit(f"schedules.py: {name} is {far} away from its schedule")
    print(f"{name}: at most {far:.0e} from its schedule")


def shares(rows):
    counts = series(rows, "sample_count")
    both = [sum(counts[s][i] or 0 for s in counts) for i in range(len(rows))]
    return {s: [(x or 0) / all_ for x, all_ in zip(counts[s], both)] for s in counts}


def mean(values):
    values = [v for v in values if v is not None]
    return sum(values) / len(values) if values else None


def smooth(values):
    return [mean(values[max(0, i - WINDOW // 2):i + WINDOW // 2 + 1]) for i in range(len(values))]


def table(columns):
    print("\n| steps | data set | " + " | ".join(columns) + " |")
    print("|---|---|" + "---|" * len(columns))
    for at in range(0, STEPS, 10):
        for s in COLOURS:
            cells = [mean(of[s][at:at + 10]) for of in columns.values()]
            print(f"| {at + 1} to {at + 10} | {s} | "
                  + " | ".join("-" if c is None else f"{c:.2f}" for c in cells) + " |")


class Panel:
    """A frame with both axes: steps across, 0 to `most` up."""

    def __init__(self, place, title, most=1.0):
        self.left, self.top = LEFT + place % 2 * ACROSS, TOP + place // 2 * DOWN
        self.most = most
        self.out = [f'<text x="{self.left}" y="{self.top - 12}" font-weight="bold">{title}</text>']
        for i in range(6):
            y = self.up(most * i / 5)
            self.out.append(f'<path d="M{self.left} {y:.1f}h{WIDTH}" stroke="#ddd"/>')
            self.out.append(f'<text x="{self.left - 8}" y="{y + 4.5:.1f}" text-anchor="end">'
                            f'{most * i / 5:.1f}</text>')
        for step in range(0, STEPS + 1, 10):
            x = self.across(step)
            self.out.append(f'<path d="M{x:.1f} {self.top + HEIGHT}v5" stroke="#444"/>'
                            f'<text x="{x:.1f}" y="{self.top + HEIGHT + 20}" '
                            f'text-anchor="middle">{step}</text>')
        self.out.append(f'<path d="M{self.left} {self.top}v{HEIGHT}h{WIDTH}" fill="none" '
                        f'stroke="#444"/><text x="{self.left + WIDTH / 2}" '
                        f'y="{self.top + HEIGHT + 40}" text-anchor="middle">training step</text>')

    def across(self, step):
        return self.left + step / STEPS * WIDTH

    def up(self, value):
        return self.top + HEIGHT * (1 - value / self.most)

    def points(self, values):
        return [(self.across(i + 1), self.up(v)) for i, v in enumerate(values) if v is not None]

    def line(self, of, dash="", width=2):
        for s, values in of.items():
            at = " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points(values))
            self.out.append(f'<polyline points="{at}" fill="none" stroke="{COLOURS[s]}" '
                            f'stroke-width="{width}" stroke-dasharray="{dash}"/>')

    def dots(self, of):
        for s, values in of.items():
            for x, y in self.points(values):
                self.out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" '
                                f'fill="{COLOURS[s]}" fill-opacity="0.55"/>')


def figure(weight, share, cap, reward, above, zeros, path):
    panels = [
        Panel(0, "weight: dashes schedule, dots logged; line: share of the batch"),
        Panel(1, "cap: dashes schedule, dots logged; line: mean reward kept"),
        Panel(2, "share of judged groups that the cap drops"),
        Panel(3, "share of judged groups dropped as zeros"),
    ]
    for panel, schedule, logged, kept in ((panels[0], WEIGHT, weight, share),
                                          (panels[1], CAP, cap, reward)):
        panel.line(schedule, "7 4", 1.4)
        panel.dots({s: [v if i % 3 == 0 else None for i, v in enumerate(logged[s])] for s in logged})
        panel.line({s: smooth(kept[s]) for s in kept})
    for panel, rates in ((panels[2], above), (panels[3], zeros)):
        panel.dots(rates)
        panel.line({s: smooth(rates[s]) for s in rates})
    wide, high = LEFT + ACROSS + WIDTH + 20, TOP + 2 * DOWN - 30
    legend = "".join(f'<path d="M{LEFT + 90 * i} 60h30" stroke="{COLOURS[s]}" stroke-width="3"/>'
                     f'<text x="{LEFT + 90 * i + 38}" y="64.5">{s}</text>'
                     for i, s in enumerate(COLOURS))
    with open(path, "w", encoding="utf-8") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" '
                f'viewBox="0 0 {wide} {high}" font-family="Helvetica, Arial, sans-serif" '
                'font-size="12" fill="#222"><rect width="100%" height="100%" fill="#fff"/>'
                f'<text x="{LEFT}" y="26" font-size="17" font-weight="bold">'
                'A curriculum from easy to hard sums, one run</text>'
                f'<text x="{LEFT}" y="45" fill="#555">lines are moving means over {WINDOW} steps'
                f'</text>{legend}\n')
        for panel in panels:
            f.write("\n".join(panel.out) + "\n")
        f.write("</svg>\n")


def main():
    rows = read(sys.argv[1])
    if len(rows) != STEPS:
        sys.exit(f"schedules.py: {sys.argv[1]} has {len(rows)} steps, not {STEPS}")
    weight, cap = series(rows, "weight"), series(rows, "reward_cap")
    for s in cap:  # without a sample, the cap logged is that of step 0
        cap[s] = [c if w is not None else None for c, w in zip(cap[s], weight[s])]
    check("weight", weight, WEIGHT)
    check("cap", cap, CAP)
    share, reward = shares(rows), series(rows, "raw_reward/mean")
    above, zeros = series(rows, "drop_rate_reward_cap"), series(rows, "drop_rate_all_zero")
    table({"weight": weight, "share of the batch": share, "cap": cap, "mean reward kept": reward,
           "dropped above the cap": above, "dropped as zeros": zeros})
    figure(weight, share, cap, reward, above, zeros, sys.argv[2])


main()
