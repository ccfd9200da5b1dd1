"""What a study keeps of its runs, and the tables of its RESULTS.md that follow from it.

A study has a tables.py, which gives main() its two functions, and is called so:

    python3 experiments/NAME/tables.py collect   runs/ -> experiments/NAME/results/data.json
    python3 experiments/NAME/tables.py write     data.json -> the tables of RESULTS.md
    python3 experiments/NAME/tables.py check     fails where RESULTS.md says something else

In RESULTS.md the line `<!-- table: NAME -->` stands before a table that is made from the data. Any
other table, and any number with three decimals that is in no table, must stand under a heading that
says "data were not kept". `python3 experiments/results.py` checks every study.
"""
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
UNKEPT = "data were not kept"


def metrics(run):
    """The rows of a run's metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").open(encoding="utf-8")]


def last(rows, name):
    """The last value of a metric that not every row has."""
    return next(r[name] for r in reversed(rows) if name in r)


def means(rows, names, last):
    """{key: mean of a metric over the last of these rows}; one that no row has is left out."""
    found = {key: [r[name] for r in rows[-last:] if name in r] for key, name in names.items()}
    return {key: statistics.mean(values) for key, values in found.items() if values}


def at(points, x):
    """The value there, on straight lines between points (x, y), whose first and last enclose it."""
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 <= x <= x1 and x1 > x0:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    raise ValueError(f"{x} is not within {points[0][0]} to {points[-1][0]}")


def mean(values, sign="", digits=3):
    """Mean and its standard error."""
    values = list(values)
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0
    return f"{statistics.mean(values):{sign}.{digits}f} ± {error:.{digits}f}"


def t_value(values):
    """Mean over its standard error."""
    return statistics.mean(values) / (statistics.stdev(values) / len(values) ** 0.5)


def p_value(values):
    """Two-sided, of Student's t that the mean of these differences is 0."""
    n, steps = len(values) - 1, 20000

    def area(low):  # the incomplete beta function: of cos(x)^(n - 1) over [low, pi / 2]
        width = (math.pi / 2 - low) / steps
        f = [math.cos(low + i * width) ** (n - 1) for i in range(steps)] + [float(n == 1)]
        return width * (sum(f) - (f[0] + f[-1]) / 2)

    return area(math.atan(abs(t_value(values)) / n**0.5)) / area(0)


def p_text(p):
    return f"{p:.3f}" if p >= 0.0005 else "< 0.001"


def holm(p):
    """{name: p} -> the same, corrected: the smallest of n counts n times, the next n - 1 times ...,
    and none less than one before it."""
    held, out = 0.0, {}
    for i, name in enumerate(sorted(p, key=p.get)):
        held = out[name] = max(held, min(1.0, p[name] * (len(p) - i)))
    return out


def per_seed(values, sign="", digits=3):
    return " / ".join(f"{v:{sign}.{digits}f}" for v in values)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]


def machine():
    """The processor, as lscpu tells it."""
    fields = dict(
        (k.strip(), v.strip())
        for k, v in (line.split(":", 1) for line in pathlib.Path("/proc/cpuinfo").open() if ":" in line)
    )
    return f"{fields['model name']} (family {fields['cpu family']}, model {fields['model']})"


def commit():
    """Of the program that made the runs: the second word, or the newest."""
    if len(sys.argv) > 2:
        return sys.argv[2]
    return subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()


def save(folder, about, runs):
    """One run a line, so that a change of one is a change of one line."""
    text = json.dumps(about, ensure_ascii=False)[:-1] + ', "runs": [\n'
    text += ",\n".join(json.dumps(run, ensure_ascii=False) for run in runs) + "\n]}\n"
    path = folder / "results" / "data.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


def load(folder):
    return json.loads((folder / "results" / "data.json").read_text(encoding="utf-8"))


def parts(text):
    """(line number, line, name of the table it belongs to or None, whether its data were kept)"""
    name, kept, fence = None, True, False
    for number, line in enumerate(text.splitlines(), 1):
        fence ^= line.startswith("```")
        if line.startswith("#") and not fence:
            kept = UNKEPT not in line
        mark = re.fullmatch(r"<!-- table: (.+) -->", line)
        if mark:
            name = mark[1]
        elif not line.startswith("|"):
            name = None
        yield number, line, name if line.startswith("|") else None, kept and not fence and not mark


def check(folder, tables):
    """Faults of a page, one a line."""
    page = folder / "RESULTS.md"
    text = page.read_text(encoding="utf-8")
    found, faults, numbers, known = {}, [], [], set()
    for number, line, name, kept in parts(text):
        if name:
            found.setdefault(name, []).append(line)
        elif kept and line.startswith("|"):
            faults.append(f"{page}:{number}: a table that no data stand for")
        elif kept:
            numbers += [(number, n) for n in re.findall(r"(?<![\d.])\d+\.\d{3}(?!\d)", line)]
    for name, lines in tables.items():
        known |= set(re.findall(r"\d+\.\d{3}", "\n".join(lines)))
        if found.get(name) == lines:
            continue
        pairs = zip(found.get(name, []) + [""] * len(lines), lines)
        first = next(((a, b) for a, b in pairs if a != b), ("", "the table is longer"))
        faults.append(f"{page}: table '{name}' says\n  {first[0]}\nand the data give\n  {first[1]}")
    for name in found.keys() - tables.keys():
        faults.append(f"{page}: table '{name}': no such table")
    for number, n in numbers:
        if n not in known:
            faults.append(f"{page}:{number}: {n} is in no table")
    return faults


def write(folder, tables):
    """Puts the tables after their marks."""
    page = folder / "RESULTS.md"
    out, skip = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        skip = skip and line.startswith("|")
        if skip:
            continue
        out.append(line)
        mark = re.fullmatch(r"<!-- table: (.+) -->", line)
        if mark:
            out += tables[mark[1]]
            skip = True
    page.write_text("\n".join(out) + "\n", encoding="utf-8")


def main(folder, collect, tables):
    """collect() -> (about, runs); tables(data) -> {name: lines}"""
    what = sys.argv[1] if len(sys.argv) > 1 else "check"
    if what == "collect":
        save(folder, *collect())
        return
    made = tables(load(folder))
    if what == "write":
        write(folder, made)
    faults = check(folder, made)
    for fault in faults:
        print(fault)
    print(f"{folder.name}: {len(made)} tables, {len(faults)} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    codes = [
        subprocess.run([sys.executable, script, "check"], check=False).returncode
        for script in sorted(HERE.glob("*/tables.py"))
    ]
    sys.exit(any(codes) or not codes)
