"""Runs mutants against the tests. scripts/mutate.sh starts it and lists its options.

A mutant is one line of the source changed by one of universalmutator's rules for C. The seed and a
candidate's own text fix its place in the order of candidates, so a sample stays the same when lines
move or a run is resumed. The sample of a room: its first candidates that build and whose objects
differ from the original's. Each is compiled alone and put in the place of the original objects in a
build tree of its own; then the tests are linked and run. The developer's sources and builds are
never touched.
"""

import argparse
import collections
import contextlib
import fcntl
import hashlib
import io
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

from universalmutator import mutator

HOME = "build-mutate"
RESULTS = f"{HOME}/results.jsonl"
EQUIVALENT = "tests/mutants_equivalent.txt"
RULES = ["universal.rules", "c.rules", "c_like.rules"]  # those of its own command for a .c
# room: its folder
ROOMS = {
    "train": "src/train",
    "rollout": "src/rollout",
    "algo": "src/algo",
    "data": "src/data",
    "reward": "src/reward",
    "core": "src/core",
    "model": "src/model",
    "kernels": "src/kernels/cpu",
}
# Rooms that have more than one program of tests.
PROGRAMS = {"core": ["core", "io"], "data": ["data", "media"], "reward": ["reward", "grade"]}
LABELS_LEFT_OUT = "slow,mpi,gpu"
# Of each process: its address space, and its largest file in blocks of 512 bytes.
MEMORY_KIB, FILE_BLOCKS = 6 << 20, 4 << 20
BASELINE_SECONDS, COMPILE_SECONDS = 900, 600
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

Candidate = collections.namedtuple("Candidate", "id room file line original mutated rule")


class Trouble(Exception):
    """A message for the user; the run ends."""


def say(text):
    print(f"mutate: {text}", file=sys.stderr, flush=True)


class Stopped(Exception):
    """The user ended the run."""


# ---------------------------------------------------------------- candidates


def sources(room):
    for at, folders, names in os.walk(ROOMS[room]):
        folders.sort()
        yield from (os.path.join(at, name) for name in sorted(names) if name.endswith((".c", ".h")))


def id_of(path, original, mutated, nth):
    """Stays the same when lines move: nth counts the lines of the file with this text."""
    same = "\0".join((path, original.strip(), mutated.strip(), str(nth)))
    return hashlib.sha256(same.encode()).hexdigest()[:10]


def candidates_of(room, path):
    """The file's lines and mutants. Kept by its content: all rooms take half a minute."""
    with open(path, encoding="utf-8") as file:
        text = file.readlines()
    key = hashlib.sha256(f"{path}\0{''.join(text)}".encode()).hexdigest()[:16]
    kept = f"{HOME}/candidates/{key}.json"
    if os.path.exists(kept):
        with open(kept, encoding="utf-8") as file:
            return len(text), [Candidate(*c) for c in json.load(file)]
    with contextlib.redirect_stdout(io.StringIO()):
        found = mutator.mutants_regexp(
            text, ruleFiles=RULES, ignorePatterns=[], ignoreStringOnly=True
        )
    seen = collections.Counter()
    nth = [seen.update([line.strip()]) or seen[line.strip()] for line in text]
    candidates = []
    for line, mutated, (rule, _), _ in found:
        original = text[line - 1].rstrip("\n")
        mutated = mutated.rstrip("\n").replace("\n", " ")  # so that __LINE__ stays below it
        if mutated.strip() != original.strip():
            name = id_of(path, original, mutated, nth[line - 1])
            candidates.append(Candidate(name, room, path, line, original, mutated, rule))
    candidates = list({c.id: c for c in candidates}.values())
    os.makedirs(os.path.dirname(kept), exist_ok=True)
    with open(kept + ".new", "w", encoding="utf-8") as file:
        json.dump(candidates, file)
    os.replace(kept + ".new", kept)
    return len(text), candidates


def all_candidates(rooms, seed):
    """Of each room its lines, and its candidates in the order of the sample."""
    lines, order = {}, {}
    for room in rooms:
        parts = [candidates_of(room, path) for path in sources(room)]
        lines[room] = sum(n for n, _ in parts)
        order[room] = sorted(
            (c for _, part in parts for c in part),
            key=lambda c: hashlib.sha256(f"{seed}\0{c.id}".encode()).digest(),
        )
    return lines, order


def quotas(count, lines, spread):
    """So many mutants of each room, by largest remainder."""
    weight = {room: 1 if spread == "even" else n for room, n in lines.items()}
    exact = {room: count * w / sum(weight.values()) for room, w in weight.items()}
    quota = {room: int(x) for room, x in exact.items()}
    for room in sorted(exact, key=lambda r: quota[r] - exact[r])[: count - sum(quota.values())]:
        quota[room] += 1
    return quota


# ---------------------------------------------------------------- results


def load_results():
    """The last result of each mutant."""
    results = {}
    if os.path.exists(RESULTS):
        with open(RESULTS, encoding="utf-8") as file:
            for line in file:
                with contextlib.suppress(ValueError):  # a line cut short by a kill
                    result = json.loads(line)
                    results[result["id"]] = result
    return results


def load_equivalent(order):
    """{id: reason}. Warns of an entry that fits no candidate: its line has changed since."""
    entries, at = [], None
    if os.path.exists(EQUIVALENT):
        with open(EQUIVALENT, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                line = line.rstrip("\n")
                if line[:1] == "#" or not line.strip():
                    continue
                if line[0] in "-+=" and at is None:
                    place = f"{EQUIVALENT}:{number}"
                    raise Trouble(f"{place}: belongs to no mutant; put a line FILE:LINE before it")
                if line[0] in "-+=":
                    at[line[0]] = line[1:].strip()
                else:
                    words = line.split()
                    at = {
                        "line": number,
                        "file": words[0].split(":")[0],
                        "#": next((w for w in words if w[0] == "#"), "#1")[1:],
                    }
                    entries.append(at)
    known = {c.id: c for room in order.values() for c in room}
    mutated_files = {c.file for c in known.values()}
    reasons = {}
    for e in entries:
        if not e.get("="):
            place = f"{EQUIVALENT}:{e['line']}"
            raise Trouble(f"{place}: no reason; add a line '= why nobody can see it'")
        key = id_of(e["file"], e.get("-", ""), e.get("+", ""), e["#"])
        if key in known:
            reasons[key] = e["="]
        elif e["file"] in mutated_files or not os.path.exists(e["file"]):
            place = f"{EQUIVALENT}:{e['line']}"
            say(f"{place}: no such mutant any more; judge the line again, or remove the entry")
    return reasons


def sampled(order, quota, results):
    """Of each room the sample's mutants with their results, and what was left out on the way."""
    for room, candidates in order.items():
        mutants, left_out = [], collections.Counter()
        for c in candidates:
            if len(mutants) == quota[room]:
                break
            result = results.get(c.id)
            if result and result["status"] in ("killed", "survived"):
                mutants.append((c, result))
            elif result:
                left_out[result["status"]] += 1
        yield room, mutants, left_out


def standing_of(c, result, reasons):
    """The column of the table that a mutant counts in."""
    if result["status"] == "killed":
        return "killed"
    if c.id in reasons:
        return "equivalent"
    return "open" if result.get("open") else "survived"


def print_table(lines, order, quota, results, reasons):
    columns = "lines mutants killed limit survived open equivalent % same unbuildable".split()
    rows, wrong = [], []
    commits, seconds = collections.Counter(), collections.defaultdict(list)
    for room, mutants, left_out in sampled(order, quota, results):
        row = collections.Counter(left_out, lines=lines[room], mutants=len(mutants))
        rows.append((room, row))
        for c, result in mutants:
            killed = result["status"] == "killed"
            row[standing_of(c, result, reasons)] += 1
            row["limit"] += killed and result["limit"]
            if killed and c.id in reasons:
                wrong.append((c, result))
            commits[result["commit"]] += 1
            for phase, s in result["seconds"].items():
                seconds[phase].append(s)
    total = sum((row for _, row in rows), collections.Counter())
    print("room    " + "".join(f"{name:>12}" for name in columns))
    for room, row in rows + [("all", total)]:
        judged = row["mutants"] - row["equivalent"]
        row["%"] = f"{100 * row['killed'] / judged:.1f}" if judged else "-"
        print(f"{room:8}" + "".join(f"{row[name]:>12}" for name in columns))
    print(
        "limit: of the killed, those that took too long; open: not yet met by test_e2e;\n"
        "%: killed of those not equivalent\n"
        "same, unbuildable: left out of the sample, for the objects are the original's or are none"
    )
    for phase, s in seconds.items():
        print(f"{phase}: {sum(s) / len(s):.1f} s per mutant ({len(s)} got so far)")
    asked = sum(quota.values())
    if total["mutants"] < asked:
        print(f"{asked - total['mutants']} of {asked} mutants are still to meet the tests")
    if len(commits) > 1:
        listed = ", ".join(f"{commit} ({n})" for commit, n in commits.most_common())
        print(f"results of several commits: {listed}; --fresh begins anew")
    for c, result in wrong:
        print(f"{c.file}:{c.line}: {EQUIVALENT} has it, but {result['by']} sees it: remove it")


def survivors(order, quota, results, reasons):
    """Of each room those of the sample that are not judged equivalent."""
    return {
        room: [c for c, r in mutants if r["status"] == "survived" and c.id not in reasons]
        for room, mutants, _ in sampled(order, quota, results)
    }


def print_survivors(order, quota, results, reasons):
    found = survivors(order, quota, results, reasons)
    for room in found:
        for c in found[room]:
            with open(c.file, encoding="utf-8") as file:
                text = [line.strip() for line in file]
            nth = text[: c.line].count(c.original.strip())
            place = f"{c.file}:{c.line}" + (f" #{nth}" if nth > 1 else "")
            print(f"{place} ({room}, {c.id})\n- {c.original}\n+ {c.mutated}\n")
    count = sum(map(len, found.values()))
    print(f"{count} survivors; those that nobody can see belong in {EQUIVALENT}")


# ---------------------------------------------------------------- a build tree


SANDBOX = """
tree=$1
if [ -n "$tree" ]; then
    case $tree in /tmp/*) tmp=/tmp ;; *) tmp=$tree/tmp ;; esac
    mount --bind "$tree" "$tree" && mount --bind "$tmp" /tmp || exit 125
    mount -o remount,bind,ro / || exit 125
fi
shift
ulimit -S -c 0; ulimit -S -v %d; ulimit -S -f %d
"$@"
exit $?
""" % (MEMORY_KIB, FILE_BLOCKS)


def sandbox(tree):
    """
    Words before a test program. A mutant of code that removes folders or ends processes may do so
    in its own tree only, which holds /tmp, too; and nothing it starts outlives it.
    """
    shell = ["sh", "-c", SANDBOX, "sh", tree or ""]
    if tree is None:
        return shell
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return "unshare --mount --pid --fork --kill-child --mount-proc".split() + user + shell


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


# failed: None or why; test: whose check failed; limit: whether by time; tests: [[name, seconds]]
Outcome = collections.namedtuple("Outcome", "failed test limit tests output")


class Tree:
    """A copy of the working tree, its build, and at most one mutant in it."""

    def __init__(self, number, args):
        self.root = os.path.abspath(f"{HOME}/{number}")
        self.source, self.build = f"{self.root}/source", f"{self.root}/build"
        self.saved, self.tmp = f"{self.root}/saved", f"{self.root}/tmp"
        self.jobs = max(1, (os.cpu_count() or 1) // args.jobs)
        self.sandbox = sandbox(None if args.no_sandbox else self.root)
        self.parts = sorted(args.e2e or [])  # of the names of test_e2e's tests; none: all of them
        self.process = None
        self.stopped = False

    # --- making it

    def prepare(self, programs):
        self.copy_sources()
        self.forget_mutant()
        self.configure()
        self.make(["ares-train", *programs], "build.log")
        self.read_commands()
        self.measure(programs)

    def copy_sources(self):
        """The files that git knows or would take. A copy that is still the same keeps its time."""
        names = subprocess.run(
            ["git", "ls-files", "-coz", "--exclude-standard"], check=True, stdout=subprocess.PIPE
        ).stdout
        wanted = {os.fsdecode(n) for n in names.split(b"\0") if n and os.path.isfile(n)}
        for at, _, files in os.walk(self.source):
            for name in files:
                path = os.path.join(at, name)
                if os.path.relpath(path, self.source) not in wanted and not os.path.islink(path):
                    os.remove(path)
        for name in wanted:
            copy = os.path.join(self.source, name)
            if not os.path.exists(copy) or digest(copy) != digest(name):
                os.makedirs(os.path.dirname(copy), exist_ok=True)
                shutil.copy(name, copy)
        for name in ("models", ".venv"):  # too large to copy, and only read
            link = os.path.join(self.source, name)
            if os.path.exists(name) and not os.path.islink(link):
                os.symlink(os.path.abspath(name), link)

    def forget_mutant(self):
        """Removes what a killed run left: objects of a mutant with the time of the original's."""
        with contextlib.suppress(FileNotFoundError, ValueError):  # cut short: none is in place yet
            with open(f"{self.saved}/objects.json", encoding="utf-8") as file:
                objects = json.load(file)
            for object_path in objects:
                self.remove_linked(object_path)
                with contextlib.suppress(FileNotFoundError):
                    os.remove(object_path)
        shutil.rmtree(self.saved, ignore_errors=True)
        os.makedirs(self.saved)

    def configure(self):
        # Without -g objects compare as code and link fast; MPI and CUDA have no tests here.
        words = ["cmake", "-S", self.source, "-B", self.build, "-G", "Ninja"]
        words += ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_FLAGS_RELEASE=-O3"]
        words += ["-DARES_CUDA=OFF", "-DARES_MPI=OFF"]
        if shutil.which("ccache"):
            words += [f"-DCMAKE_{c}_COMPILER_LAUNCHER=ccache" for c in ("C", "CXX")]
        self.log([*words, *shlex.split(os.environ.get("ARES_CMAKE_ARGS", ""))], "configure.log")

    def make(self, targets, log):
        environment = dict(os.environ, CCACHE_BASEDIR=self.root, CCACHE_NOHASHDIR="1")
        self.log(["ninja", "-C", self.build, "-j", str(self.jobs), *targets], log, environment)

    def log(self, words, name, environment=None):
        with open(f"{self.root}/{name}", "w", encoding="utf-8") as file:
            if self.call(words, stdout=file, stderr=subprocess.STDOUT, env=environment) != 0:
                place = f"{os.path.relpath(self.root)}/{name}"
                raise Trouble(f"{words[0]} fails without a mutant; {place} says why")

    def start(self, words, **rest):
        if self.stopped:
            raise Stopped
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, start_new_session=True, **rest
        )
        return self.process

    def call(self, words, timeout=None, **rest):
        try:
            return self.start(words, **rest).wait(timeout)
        finally:
            self.kill()

    def kill(self):
        process = self.process
        if process:
            with contextlib.suppress(ProcessLookupError):
                if process.poll() is None:  # a test program ends what it has started, if it can
                    os.killpg(process.pid, signal.SIGTERM)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(2)
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self):
        self.stopped = True
        self.kill()

    def read_commands(self):
        """How each object is compiled, and the objects that a source is part of."""
        self.commands, self.objects, self.digests = {}, collections.defaultdict(list), {}
        with open(f"{self.build}/compile_commands.json", encoding="utf-8") as file:
            for entry in json.load(file):
                words = shlex.split(entry["command"])
                if os.path.basename(words[0]) == "ccache":  # keeps mutants, and shortens __FILE__
                    words = words[1:]
                self.commands[os.path.join(self.build, words[words.index("-o") + 1])] = words
        deps = subprocess.run(
            ["ninja", "-C", self.build, "-t", "deps"], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        for line in deps.splitlines():
            if line[:1].strip():
                object_path = os.path.join(self.build, line.split(": #deps")[0])
            elif line.strip():
                path = os.path.normpath(os.path.join(self.build, line.strip()))
                if path.startswith(self.source) and os.path.exists(object_path):
                    self.objects[os.path.relpath(path, self.source)].append(object_path)

    # --- a mutant

    def compile(self, c):
        """The mutant's objects that differ, {original: mutant's}; None when it does not compile."""
        path = os.path.join(self.source, c.file)
        stat = os.stat(path)
        with open(path, encoding="utf-8") as file:
            original = file.read()
        lines = original.split("\n")
        if lines[c.line - 1] != c.original:
            raise Trouble(f"{c.file}:{c.line}: has changed since the start; start again")
        lines[c.line - 1] = c.mutated
        for object_path in self.objects[c.file]:
            if object_path not in self.digests:
                scratch = self.compiled(object_path, "original.o")
                if scratch is None:
                    raise Trouble(f"{c.file} does not compile without a mutant")
                self.digests[object_path] = digest(scratch)
        different = {}
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(lines))
            for i, object_path in enumerate(self.objects[c.file]):
                scratch = self.compiled(object_path, f"mutant{i}.o")
                if scratch is None:
                    return None
                if digest(scratch) != self.digests[object_path]:
                    different[object_path] = scratch
            return different
        finally:
            with open(path, "w", encoding="utf-8") as file:
                file.write(original)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def compiled(self, object_path, name):
        """The object as made of the source as it is now, beside the build; None when it fails."""
        words = list(self.commands[object_path])
        words[words.index("-o") + 1] = scratch = f"{self.saved}/{name}"
        if "-MF" in words:
            words[words.index("-MF") + 1] = f"{self.saved}/deps.d"
        try:
            return (
                scratch if self.call(words, COMPILE_SECONDS, cwd=self.build, **QUIET) == 0 else None
            )
        except subprocess.TimeoutExpired:
            return None

    @contextlib.contextmanager
    def planted(self, different):
        """Within the block the mutant's objects stand for the original's, with the same time."""
        with open(f"{self.saved}/objects.json", "w", encoding="utf-8") as file:
            json.dump(list(different), file)
        times = {}
        try:
            for i, (object_path, scratch) in enumerate(different.items()):
                stat = os.stat(object_path)
                times[object_path] = (
                    f"{self.saved}/original{i}.o",
                    (stat.st_atime_ns, stat.st_mtime_ns),
                )
                shutil.copy(object_path, times[object_path][0])
                os.replace(scratch, object_path)
                os.utime(object_path, ns=times[object_path][1])
                self.remove_linked(object_path)
            yield
        finally:
            for object_path, (original, time_ns) in times.items():
                os.replace(original, object_path)
                os.utime(object_path, ns=time_ns)
                self.remove_linked(object_path)
            os.remove(f"{self.saved}/objects.json")

    def remove_linked(self, object_path):
        """Removes what the object's target makes, so that ninja, which sees no change, makes it."""
        target = re.search(r"CMakeFiles/([^/]+)\.dir/", object_path)[1]
        target = re.sub(r"^ares_kernels_.*", "ares_kernels", target)
        for name in (target, f"lib{target}.a", f"lib{target}.so"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(self.build, name))

    def link(self, targets):
        words = ["ninja", "-C", self.build, "-j", str(self.jobs), *targets]
        return self.call(words, **QUIET) == 0

    # --- tests

    def measure(self, programs):
        """Each test's seconds without a mutant; kept while the programs are the same."""
        kept = f"{self.root}/baseline.json"
        self.baseline = {}
        if os.path.exists(kept):
            with open(kept, encoding="utf-8") as file:
                self.baseline = json.load(file)
        for program in programs:
            key = digest(f"{self.build}/{program}") + digest(f"{self.build}/ares-train")
            key = " ".join([key, *self.parts])
            if self.baseline.get(program, {}).get("key") != key:
                self.baseline[program] = dict(self.measured(program), key=key)
                with open(kept, "w", encoding="utf-8") as file:
                    json.dump(self.baseline, file)

    def measured(self, program):
        unsteady = []
        while True:
            start = time.monotonic()
            outcome = self.run(program, lambda _: BASELINE_SECONDS, ignored=unsteady)
            if not outcome.failed:
                break
            if not outcome.test or self.fails_alone(program, outcome.test, BASELINE_SECONDS, 4):
                shown = "".join(outcome.output[-20:])
                raise Trouble(f"{program} fails without a mutant; mend that first\n{shown}")
            unsteady.append(outcome.test)
        skipped = sum(line.startswith("SKIP ") for line in outcome.output)
        say(
            f"{program}: {len(outcome.tests)} tests, {skipped} of them skipped, "
            f"{time.monotonic() - start:.0f} s without a mutant"
        )
        for test in unsteady:
            say(f"{program}: {test} fails at times without a mutant: it kills none")
        return {"tests": outcome.tests, "unsteady": unsteady}

    def run(self, program, limit, names=(), ignored=()):
        """Until a test fails, or takes more seconds than limit(number of tests before it)."""
        names = names or self.parts
        tests, output, rest, forgiven = [], [], b"", 0
        environment = {k: v for k, v in os.environ.items() if k != "CI"}
        environment["TMPDIR"] = "/tmp"  # of the tree: tests would take /dev/shm, which all share
        shutil.rmtree(self.tmp, ignore_errors=True)
        os.makedirs(self.tmp)
        process = self.start(
            [*self.sandbox, f"{self.build}/{program}", "--without", LABELS_LEFT_OUT, *names],
            cwd=self.source,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        last = time.monotonic()
        try:
            while True:
                left = last + limit(len(tests)) - time.monotonic()
                if left <= 0:
                    return Outcome("took too long", None, True, tests, output)
                if not select.select([process.stdout], [], [], left)[0]:
                    continue
                got = os.read(process.stdout.fileno(), 65536)
                if not got:
                    break
                *lines, rest = (rest + got).split(b"\n")
                for line in lines:
                    text = line.decode(errors="replace")
                    output.append(text + "\n")
                    said = re.match(r"(ok  |FAIL|SKIP) (\w+)(: .*)?$", text)
                    if not said:
                        continue
                    now = time.monotonic()
                    tests.append([said[2], now - last])
                    last = now
                    if said[1] == "FAIL" and said[2] in ignored and not said[3]:
                        forgiven += 1
                    elif said[1] == "FAIL":
                        what = said[2] + (said[3] or "").split(";")[0]
                        return Outcome(what, None if said[3] else said[2], False, tests, output)
            code = process.wait()
            totals = re.match(r"\w+: \d+ passed, (\d+) failed", output[-1] if output else "")
            failed = None
            if not totals or int(totals[1]) != forgiven or code != (forgiven > 0):
                failed = f"ended with {code} after {tests[-1][0] if tests else 'no test'}"
            return Outcome(failed, None, False, tests, output)
        finally:
            self.kill()
            process.stdout.close()

    def fails_alone(self, program, test, seconds, times):
        return all(self.run(program, lambda _: seconds, [test]).failed for _ in range(times))

    def meet(self, program):
        """The program against the mutant: None, or (what saw it, whether by the limit)."""
        tests, unsteady = (self.baseline[program][key] for key in ("tests", "unsteady"))
        doubted = set()

        def limit(done, times=1):
            return times * (3 * (tests[done][1] if done < len(tests) else 0) + 10)

        while True:
            outcome = self.run(program, limit, ignored=unsteady)
            at = len(outcome.tests)
            if outcome.limit:  # a busy machine, perhaps: once more with twice the time
                outcome = self.run(program, lambda done: limit(done, 2), ignored=unsteady)
                at = len(outcome.tests)
            if outcome.limit:
                return (
                    f"{program}: {tests[at][0] if at < len(tests) else 'the end'} took too long",
                    True,
                )
            if outcome.failed is None:
                return (
                    None
                    if at >= len(tests)
                    else (f"{program}: {at} of {len(tests)} tests ran", False)
                )
            # A test that fails now and then kills nothing: it has to fail once more.
            again = outcome.test is None or outcome.test in doubted
            if again or self.fails_alone(program, outcome.test, limit(at - 1, 2), 1):
                return f"{program}: {outcome.failed}", False
            doubted.add(outcome.test)

    def judge(self, c, programs):
        """The mutant's result against these programs."""
        seconds, clock = {}, time.monotonic()

        def lap(phase):
            nonlocal clock
            now = time.monotonic()
            seconds[phase] = round(seconds.get(phase, 0) + now - clock, 2)
            clock = now

        def result(status, by=None, limit=False):
            if self.stopped:  # what was killed says nothing
                raise Stopped
            return dict(c._asdict(), status=status, by=by, limit=limit, seconds=seconds)

        different = self.compile(c)
        lap("compile")
        if not different:
            return result("unbuildable" if different is None else "same")
        with self.planted(different):
            for program in programs:
                if not self.link(["ares-train", program]):
                    return result("unbuildable")
                lap("link")
                seen = self.meet(program)
                lap(program)
                if seen:
                    return result("killed", *seen)
        return result("survived")


def near(room):
    """The first wave: the fast programs."""
    own = [f"test_{name}" for name in PROGRAMS.get(room, [room])]
    return list(dict.fromkeys((*own, "test_train")))


def far(_):
    """The second wave: what only the survivors of the first meet that are not equivalent."""
    return ["test_e2e"]


# ---------------------------------------------------------------- the run


class Run:
    """
    Hands candidates to the trees and keeps the results. A room's next candidate is tried only when
    those before it cannot fill the sample, so that any number of trees accepts the same ones.
    """

    def __init__(self, order, quota, results, commit, wave, not_all):
        self.quota, self.results, self.commit, self.wave = quota, results, commit, wave
        self.not_all = not_all  # whether tests are left that the survivors do not meet
        self.left = {room: collections.deque(c) for room, c in order.items()}
        self.accepted, self.trying = collections.Counter(), collections.Counter()
        self.changed = threading.Condition()
        self.trouble = None

    def skip_known(self, room):
        left = self.left[room]
        while left and left[0].id in self.results and self.accepted[room] < self.quota[room]:
            self.accepted[room] += self.results[left.popleft().id]["status"] in (
                "killed",
                "survived",
            )

    def next(self):
        """The next candidate of the room that is furthest behind; None when all is done."""
        with self.changed:
            while not self.trouble:
                for room in self.left:
                    self.skip_known(room)
                open_rooms = [
                    r
                    for r in self.left
                    if self.left[r] and self.accepted[r] + self.trying[r] < self.quota[r]
                ]
                if open_rooms:
                    room = min(
                        open_rooms,
                        key=lambda r: (self.accepted[r] + self.trying[r]) / self.quota[r],
                    )
                    self.trying[room] += 1
                    return self.left[room].popleft()
                if not sum(self.trying.values()):
                    break
                self.changed.wait(1)
        return None

    def finish(self, c, result):
        with self.changed:
            result["commit"] = self.commit
            result["open"] = self.not_all and result["status"] == "survived"
            self.results[c.id] = result
            with open(RESULTS, "a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
            self.trying[c.room] -= 1
            if result["status"] in ("killed", "survived"):
                self.accepted[c.room] += 1
                done = f"{sum(self.accepted.values()):4}/{sum(self.quota.values())}"
                seconds = sum(result["seconds"].values())
                what = f"{result['status']:8} {c.file}:{c.line}  {result['by'] or ''}"
                print(f"{done} {c.room:8} {what} ({seconds:.0f} s)", flush=True)
            self.changed.notify_all()

    def work(self, tree, programs):
        try:
            tree.prepare(programs)
            while (c := self.next()) is not None:
                self.finish(c, tree.judge(c, self.wave(c.room)))
        except Exception as e:  # told by the main thread; the other trees end after their mutant
            with self.changed:
                self.trouble = self.trouble or e
                self.changed.notify_all()


def run(args, order, quota, results, reasons):
    """Every mutant of the sample meets the fast programs, then those that are left test_e2e."""
    if not args.e2e:
        run_wave(args, order, quota, results, near)
    if args.quick:
        return
    left = {
        room: [
            c
            for c, r in mutants
            if r["status"] == "survived"
            and (r.get("open") or args.only)
            and c.id not in reasons
        ]
        for room, mutants, _ in sampled(order, quota, results)
    }
    for c in sum(left.values(), []):
        results.pop(c.id)
    run_wave(args, left, {room: len(found) for room, found in left.items()}, results, far)


def run_wave(args, order, quota, results, wave):
    if not sum(quota.values()):
        return
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    job = Run(order, quota, results, commit, wave, wave is near or bool(args.e2e))
    programs = list(dict.fromkeys(p for room in order if quota[room] for p in wave(room)))
    trees = [Tree(i + 1, args) for i in range(args.jobs)]
    for tree in trees:
        os.makedirs(tree.root, exist_ok=True)
    os.makedirs(trees[0].tmp, exist_ok=True)
    if subprocess.run([*trees[0].sandbox, "true"], **QUIET).returncode != 0:
        raise Trouble(
            "the kernel refuses namespaces (unshare) for the sandbox; run as root, or use "
            "--no-sandbox on a machine where nothing is lost"
        )
    threads = [threading.Thread(target=job.work, args=(tree, programs)) for tree in trees]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        say("stopped; the same command goes on")
        job.trouble = job.trouble or KeyboardInterrupt()
        for tree in trees:
            tree.stop()
        for thread in threads:
            thread.join()
    if job.trouble:
        raise job.trouble


def of_line(args, order, results):
    """Candidates of FILE:LINE and how many: those with results once more, or the first ones."""
    path, _, line = args.only.rpartition(":")
    path = os.path.normpath(path)
    found = {
        room: [c for c in part if c.file == path and str(c.line) == line]
        for room, part in order.items()
    }
    found = {room: part for room, part in found.items() if part}
    if not found:
        raise Trouble(
            f"--only {args.only}: no mutants there; name FILE:LINE of a file in "
            + ", ".join(f for f, _ in ROOMS.values())
        )
    ((room, part),) = found.items()
    met = [c for c in part if results.get(c.id, {}).get("status") in ("killed", "survived")]
    part = part if args.count or not met else met
    for c in [] if args.e2e else part:
        results.pop(c.id, None)
    return {room: part}, {room: args.count or len(met) or 1}


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/mutate.sh")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--room", action="append", choices=ROOMS)
    parser.add_argument("--spread", choices=("lines", "even"), default="lines")
    parser.add_argument("--jobs", type=int, default=1)
    for name in ("again", "fresh", "quick", "no-sandbox", "list-survivors", "table"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--only", metavar="FILE:LINE")
    parser.add_argument("--e2e", metavar="PART", action="append")
    args = parser.parse_args()
    for name in ("count", "jobs"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name} = {getattr(args, name)}: too small; give 1 or more")
    if args.e2e and (args.again or args.quick):
        parser.error("--e2e: meets survivors as they are; leave --again and --quick out")
    return args


def main():
    args = arguments()
    os.makedirs(HOME, exist_ok=True)
    reading = args.table or args.list_survivors  # beside a run, too
    with open(f"{HOME}/lock", "w", encoding="utf-8") as lock:
        if not reading:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Trouble(f"{HOME}: another run works here; wait until it ends") from None
        if args.fresh and os.path.exists(RESULTS) and not reading:
            os.replace(RESULTS, RESULTS + ".old")
        results = load_results()
        lines, order = all_candidates(args.room or ROOMS, args.seed)
        reasons = load_equivalent(order)
        quota = quotas(args.count or 300, lines, args.spread)
        if args.only:
            order, quota = of_line(args, order, results)
        if args.again:
            again = survivors(order, quota, results, reasons)
            for c in sum(again.values(), []):
                results.pop(c.id)
            again_quota = {room: len(found) for room, found in again.items()}
            run(args, again, again_quota, results, reasons)
        elif not reading:
            run(args, order, quota, results, reasons)
        if args.list_survivors or args.only:
            print_survivors(order, quota, results, reasons)
        else:
            print_table(lines, order, quota, results, reasons)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main()
    except Trouble as trouble:
        sys.exit(f"mutate: {trouble}")
    except KeyboardInterrupt:
        sys.exit(130)
