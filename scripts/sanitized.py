#!/usr/bin/env python3
"""Chooses the tests of test_e2e that a build with sanitizers leaves out (docs/testing.md).

    scripts/sanitized.py build      src with a call at every block, and the tests, in build-edges
    scripts/sanitized.py measure [NAME ...]
                                    what each test of test_e2e alone, and each other ctest, takes of
                                    src; goes on where it was stopped. NAME: only these
    scripts/sanitized.py choose [edges|blocks|lines]
                                    writes tests/e2e/left_out.txt so that none of these is lost;
                                    prints edges, lines and seconds with and without its tests

Under the sanitizers every other program runs whole. A test of test_e2e is left out when all that it
takes of src, in whatever process, is taken by what stays: blocks, and edges between two blocks of
a function, which are pairs that a thread came to one after the other. What stays is chosen by the
greatest number of new ones per second of a CPU, one test after the other; then each that has
become superfluous goes. Kernels (src/kernels/cpu) are not looked at: test_kernels stays whole, with
every instruction set of the machine. A test of WHOLE_FILES, one that was skipped or did not pass,
and one that was not measured stay.
"""
import array
import bisect
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-edges"
SEEN = BUILD / "seen"  # a folder per ctest or test: a file of edges per program, and how.json
LIST = ROOT / "tests/e2e/left_out.txt"
PROGRAM = BUILD / "test_e2e"
WHOLE_WITHOUT = {"slow", "gpu", "source", "left_out"}  # labels that CI leaves out
JOBS = 3  # tests side by side: many wait
# What they vary is a byte or an instant, not a line: they stay.
WHOLE_FILES = ["test_bad_input.c", "test_death.c", "test_disk_fails.c", "test_durable.c",
               "test_memory.c"]
HEAD = """\
# Tests of test_e2e that a build with sanitizers leaves out: what they run of src, others run there,
# too. scripts/sanitized.py makes this list; a test that it does not name runs.
"""
COMPILE = """\
#!/bin/sh
# A compiler's command: src with a call at every block, but for kernels; tests that do as under the
# address sanitizer, where some skip.
export CCACHE_BASEDIR='{root}' CCACHE_NOHASHDIR=1
for last; do :; done
case $last in
{root}/src/kernels/cpu/*) exec {ccache} "$@" ;;
{root}/src/*) exec {ccache} "$@" -O1 -g1 -fsanitize-coverage=trace-pc ;;
{root}/tests/*) exec {ccache} "$@" -D__SANITIZE_ADDRESS__=1 ;;
*) exec {ccache} "$@" ;;
esac
"""


def build():
    BUILD.mkdir(exist_ok=True)
    launcher, edges = BUILD / "compile", BUILD / "edges.o"
    launcher.write_text(COMPILE.format(root=ROOT, ccache=shutil.which("ccache") or "env"))
    launcher.chmod(0o755)
    subprocess.run(["gcc", "-std=gnu17", "-D_GNU_SOURCE", "-O2", "-fPIC", "-Wall", "-Wextra",
                    "-Werror", "-c", ROOT / "tests/edges.c", "-o", edges], check=True)
    # edges.o comes first: tests/work.c counts by the same function
    linked = f"{edges} -Wl,-z,muldefs"
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    "-DARES_CUDA=OFF", "-DARES_EMULATOR=OFF",
                    f"-DCMAKE_C_COMPILER_LAUNCHER={launcher}",
                    f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}",
                    f"-DCMAKE_EXE_LINKER_FLAGS={linked}", f"-DCMAKE_SHARED_LINKER_FLAGS={linked}"],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", BUILD, "-j", str(os.cpu_count())], check=True)
    shutil.rmtree(SEEN, ignore_errors=True)  # places in other programs


def tests_of_e2e(*files):
    """Of all labels that run under sanitizers."""
    out = subprocess.run([PROGRAM, "--list", "--without", "slow,gpu", *files], check=True,
                         text=True, stdout=subprocess.PIPE).stdout
    return [line.split()[0] for line in out.splitlines()]


def other_programs():
    """The ctests that stay whole: name -> (command, folder, environment)."""
    out = subprocess.run(["ctest", "--show-only=json-v1"], cwd=BUILD, check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    programs = {}
    for test in json.loads(out)["tests"]:
        properties = {p["name"]: p["value"] for p in test["properties"]}
        if WHOLE_WITHOUT & set(properties.get("LABELS", [])) or test["name"].startswith("e2e"):
            continue
        if "command" not in test:
            print(f"{test['name']}: its program is not built")
            continue
        environment = dict(word.split("=", 1) for word in properties.get("ENVIRONMENT", []))
        programs[test["name"]] = (test["command"], properties["WORKING_DIRECTORY"], environment)
    return programs


def run(name, command, folder, environment, kept):
    """Runs a ctest or test; SEEN/name appears when it has ended."""
    environment = os.environ | environment | {"ARES_TEST_KEPT": kept, "ARES_TEST_PATIENCE": "5"}
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as tables:
        start = time.monotonic()
        child = subprocess.Popen(command, cwd=folder, env=environment | {"ARES_EDGES": tables},
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, errors="replace")
        output = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = status
        how = {"status": status, "wall_s": time.monotonic() - start,
               "cpu_s": used.ru_utime + used.ru_stime,
               "skipped": bool(re.search(r"^SKIP ", output, re.M)),
               "end": output[-2000:] if status else ""}
        part = SEEN / (name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for table in pathlib.Path(tables).iterdir():
            places = array.array("Q")
            places.frombytes(table.read_bytes())
            with open(part / table.name, "wb") as file:
                array.array("Q", sorted(set(places) - {0})).tofile(file)
    (part / "how.json").write_text(json.dumps(how))
    part.rename(SEEN / name)
    return how


def measure(names):
    known = {test: ([str(PROGRAM), "=" + test], str(ROOT), {}) for test in tests_of_e2e()}
    known |= {"ctest." + name: what for name, what in other_programs().items()}
    todo = iter([name for name in known if not (SEEN / name).exists()
                 and (not names or name.removeprefix("ctest.") in names)])
    lock = threading.Lock()
    kept = tempfile.mkdtemp()

    def work():
        while True:
            with lock:
                name = next(todo, None)
            if name is None:
                return
            how = run(name, *known[name], kept)
            print(f"{how['wall_s']:7.1f} s, {how['cpu_s']:6.1f} of a CPU  {name}"
                  f"{' SKIP' * how['skipped']}{' FAIL' * bool(how['status'])}", flush=True)

    try:
        workers = [threading.Thread(target=work) for _ in range(JOBS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        shutil.rmtree(kept)


class Places:
    """The blocks of a program or library by names that are the same in every program."""

    def __init__(self, path, places):
        symbols = []
        for line in subprocess.run(["nm", "--defined-only", path], check=True, text=True,
                                   stdout=subprocess.PIPE).stdout.splitlines():
            address, kind, name = line.split(maxsplit=2)
            if kind in "tTwW":
                symbols.append((int(address, 16), name))
        symbols.sort()
        starts = [address for address, _ in symbols]
        at = {place: bisect.bisect_right(starts, place - 1) - 1 for place in places}
        asked = sorted(places) + sorted({starts[i] for i in at.values()})
        text = "".join(f"{a - 1 if a in at else a:x}\n" for a in asked)
        lines = subprocess.run(["addr2line", "-e", path], input=text, check=True, text=True,
                               stdout=subprocess.PIPE).stdout.splitlines()
        line_of = dict(zip(asked, (line.split(" ")[0] for line in lines)))
        self.function, self.block, self.line = {}, {}, {}
        for place, i in at.items():
            file = line_of[starts[i]].rsplit(":", 1)[0]
            function = f"{self.short(file)}:{symbols[i][1]}"
            self.function[place] = function
            self.block[place] = f"{function}+{place - starts[i]:x}"
            self.line[place] = self.short(line_of[place])

    @staticmethod
    def short(file):
        found = re.search(r"(?:^|/)((?:src|include)/.*)$", file)
        return found[1] if found else file


class Seen:
    """Edges by number, and what each test has taken."""

    def __init__(self):
        self.numbers, self.line_of, self.block_of = {}, [], []
        self.programs = {}

    def read(self, names):
        raw = {}
        places = collections.defaultdict(set)
        for name in names:
            for file in (SEEN / name).iterdir():
                if file.name == "how.json":
                    continue
                edges = array.array("Q")
                edges.frombytes(file.read_bytes())
                raw[name, file.name] = edges
                places[file.name].update(edges)
        edge_of = {}
        for program, edges in places.items():
            if not (BUILD / program).exists():  # a copy of ares-train that a test made
                continue
            both = {edge >> 32 for edge in edges} | {edge & 0xffffffff for edge in edges}
            named = Places(BUILD / program, both - {0})
            edge_of[program] = {edge: self.number(named, edge >> 32, edge & 0xffffffff)
                                for edge in edges}
        taken = {name: set() for name in names}
        for (name, program), edges in raw.items():
            if program in edge_of:
                taken[name].update(map(edge_of[program].__getitem__, edges))
        return taken

    def number(self, named, before, here):
        same = named.function.get(before) == named.function[here]  # else a call or a return
        key = (named.block[before] if same else "", named.block[here])
        if key not in self.numbers:
            self.numbers[key] = len(self.numbers)
            self.line_of.append(named.line[here])
            self.block_of.append(named.block[here])
        return self.numbers[key]

    def lines(self, edges):
        return {line for line in map(self.line_of.__getitem__, edges)
                if line.startswith(("src/", "include/")) and line[-1] not in "?0"}

    def blocks(self, edges):
        return set(map(self.block_of.__getitem__, edges))


def cover(taken, seconds, fixed, covered):
    """The tests that stay, `fixed` and others until all is taken; how many take each of it."""
    chosen = list(fixed)
    covered = set(covered)
    for test in fixed:
        covered |= taken[test]
    left = {test: taken[test] - covered for test in taken if test not in fixed}
    while True:
        left = {test: new for test, new in left.items() if new}
        if not left:
            break
        best = max(left, key=lambda test: (len(left[test]) / seconds[test], test))
        chosen.append(best)
        new = left.pop(best)
        for others in left.values():
            others -= new
    times = collections.Counter(one for test in chosen for one in taken[test])
    return chosen, times


def choose(by="edges"):
    tests = [name for name in tests_of_e2e() if (SEEN / name).exists()]
    whole = [entry.name for entry in SEEN.glob("ctest.*") if entry.suffix != ".part"]
    hows = {name: json.loads((SEEN / name / "how.json").read_text()) for name in tests + whole}
    seen = Seen()
    taken = seen.read(tests + whole)
    # that a test waits is not for free: another test has the processor meanwhile, but not always
    seconds = {name: hows[name]["cpu_s"] + 0.1 for name in tests}
    base = set().union(*(taken[name] for name in whole))
    units = {"edges": range(len(seen.line_of)), "blocks": seen.block_of, "lines": seen.line_of}[by]
    wanted = {name: set(map(units.__getitem__, taken[name])) for name in tests}
    given = set(map(units.__getitem__, base))
    unsure = [name for name in tests if hows[name]["status"] or hows[name]["skipped"]]
    fixed = sorted({*unsure, *tests_of_e2e(*WHOLE_FILES)} & {*tests})
    chosen, times = cover(wanted, seconds, fixed, given)
    for test in sorted(chosen, key=lambda test: -seconds[test]):
        if test not in fixed and all(times[one] > 1 or one in given for one in wanted[test]):
            chosen.remove(test)
            times.subtract(wanted[test])
    before = base.union(*(taken[name] for name in tests))
    after = base.union(*(taken[name] for name in chosen))
    out = sorted(set(tests) - set(chosen))
    LIST.write_text(HEAD + "".join(name + "\n" for name in out))
    print(f"{len(whole)} other programs: {len(base)} edges, {len(seen.lines(base))} lines")
    print(f"{len(fixed)} stay in any case; failed or skipped: {' '.join(unsure) or 'none'}")
    for what, names, edges in (("all of test_e2e", tests, before), ("what stays", chosen, after)):
        cpu_s = sum(hows[name]["cpu_s"] for name in names)
        print(f"{what}: {len(names)} tests, {cpu_s:.0f} s of a CPU; with the others {len(edges)} "
              f"edges, {len(seen.blocks(edges))} blocks, {len(seen.lines(edges))} lines")
    lost = before - after
    print(f"lost: {len(lost)} edges, {len(seen.lines(before) - seen.lines(after))} lines")


def main():
    words = sys.argv[1:]
    if words == ["build"]:
        return build()
    if words[:1] == ["measure"]:
        return measure(words[1:])
    if words[:1] == ["choose"] and words[1:] in ([], ["edges"], ["blocks"], ["lines"]):
        return choose(*words[1:])
    print(__doc__, end="")
    return 2


if __name__ == "__main__":
    sys.exit(main())
