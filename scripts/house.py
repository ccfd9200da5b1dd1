#!/usr/bin/env python3
"""What a reader of the program pays for: files, names, and jumps between files.

    scripts/house.py [ENTRY ...]   the figures of src and include; ENTRY: functions to go down from
    scripts/house.py --list ENTRY  what is reached from it, file by file, and by whom
    scripts/house.py --check       compares with LIMITS; last line `house: N passed, N failed`
    scripts/house.py --self-test   counts in a small tree with known figures; --check may join it

Lines count with comments and blanks; comments are the lines that hold a part of one. A function is
a heading, then a body between a `{` and a `}` in column 0, as clang-format leaves them. A line
MACRO(..) counts, too, where the macro holds such functions; its lines are those of the use. Methods
inside a class and what a list of names makes (X-macros) are not counted; functions written as
MACRO(name) and a body share the macro's name. A call is `name(` in a function's body, unless it is
`->name(`, or a function's name that is handed on there as an argument or in an initializer. A name
means the function of that name in the same file, else an external one or one of a header; tables
outside functions call nothing. An external function is used elsewhere when the code of another
source names it, tables included, unless that source has a function of its own of that name.
"""
import collections
import pathlib
import re
import statistics
import sys
import tempfile

ENTRIES = ["ares_train_step", "collect_groups", "actor_update", "ares_train_config_check"]
DEPTH = 3
SMALL = 100  # lines
# Well above what is there: a limit shows a drift, it refuses no good file. Raise one with a reason.
LIMITS = {
    # 306 when the house was put in order, then adapters (7), the endpoint (24), and what shows runs
    # and machines (22: look, trackers, verify, watch, runs, doctor, completion)
    "files": (390, "files of src and include", "put together what is one subject"),
    "headers": (95, "headers", "keep one private header per room or subject"),
    "small": (35, f"sources of {SMALL} lines or fewer", "put them with their subject"),
}

HEADERS = {".h", ".hpp", ".cuh"}
SOURCES = {".c", ".cc", ".cpp", ".cu"}
COMMENT_OR_TEXT = re.compile(
    r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""", re.S)
WORD = re.compile(r"[A-Za-z_]\w*")
CALL = re.compile(r"(?<![\w.>])([A-Za-z_]\w*)\s*\(")
HANDED_ON = re.compile(r"[=,({&]\s*([A-Za-z_]\w*)\s*(?=[,)};])")
STATIC = re.compile(r"^#define (\w+) static\b", re.M)
MACRO = re.compile(r"^#define (\w+)\(([^()]*)\)((?:[^\n]*\\\n)+[^\n]*)$", re.M)
USE = re.compile(r"^(?:static )?([A-Z]\w*)\(", re.M)
Function = collections.namedtuple("Function", "name file lines static body")


def is_header(file):
    return pathlib.PurePath(file).suffix in HEADERS


def code_of(text):
    """The text less comments and what stands in quotes, line for line; how many had a comment."""
    commented = set()
    line, last = 1, 0

    def left(found):
        nonlocal line, last
        line += text.count("\n", last, found.start())
        last = found.start()
        what = found[0]
        if what[0] != "/":
            return what[0] * 2
        breaks = what.count("\n")
        commented.update(range(line, line + breaks + 1))
        return "\n" * breaks or " "

    return COMMENT_OR_TEXT.sub(left, text), len(commented)


def name_in(heading):
    """The last name before a parenthesis that is in no other: attributes come before it."""
    depth, name = 0, None
    for found in re.finditer(r"([A-Za-z_]\w*)(?:<[^<>()]*>)?\(|[()]", heading):
        if found[1] and depth == 0:
            name = found[1]
        depth += -1 if found[0] == ")" else 1
    if name is None:  # returns a function: int (*name(void))(int)
        found = re.search(r"([A-Za-z_]\w*)\(", heading)
        name = found and found[1]
    return name


def macros_of(codes):
    """By the file that may use them ("": any) and by name: parameters and text of the macros that
    hold a function. One of a source is that source's own."""
    found = collections.defaultdict(dict)
    for file, code in codes.items():
        for name, parameters, text in MACRO.findall(code):
            text = re.sub(r"[ \t]*\\\n    ", "\n", text)
            if "\n{\n" in text:
                found["" if is_header(file) else file][name] = (
                    [p.strip() for p in parameters.split(",")], text)
    return found


def arguments_at(code, at):
    """What stands between commas after the parenthesis before `at`, and where that is closed."""
    depth, arguments = 1, [""]
    while depth:
        c = code[at]
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 1:
            arguments.append("")
        elif depth:
            arguments[-1] += c
        at += 1
    return arguments, at


def made_by_macros(file, code, macros, static_words):
    """Functions of the lines MACRO(..), as if they were written out."""
    code = re.sub(r"^#(?:[^\n]*\\\n)*[^\n]*", "", code, flags=re.M)
    for use in USE.finditer(code):
        name = use[1]
        parameters, text = macros[file].get(name) or macros[""].get(name) or (None, None)
        if text is None:
            continue
        arguments, end = arguments_at(code, use.end())
        rest = ",".join(arguments[len(parameters) - 1:]).strip()
        values = dict(zip(parameters, map(str.strip, arguments)), __VA_ARGS__=rest)
        text = WORD.sub(lambda word: values.get(word[0], word[0]), text)
        text = re.sub(r"\s*##\s*", "", text)
        text = re.sub(r"(\w) \((?=.*\n\{)", r"\1(", text)  # `name parameters`, of a heading
        for f in functions_in(file, text, static_words):
            static = f.static or use[0].startswith("static ")
            yield f._replace(lines=code.count("\n", use.start(), end) + 1, static=static)


def functions_in(file, code, static_words):
    lines = code.split("\n")
    k = 0
    while k < len(lines):
        if lines[k].rstrip() != "{":
            k += 1
            continue
        first = k - 1
        while first > 0 and (not lines[first].strip() or lines[first][0] in " \t#"):
            first -= 1
        heading = "\n".join(x for x in lines[first:k] if not x.startswith("#"))
        name = name_in(heading)
        if name is None:  # a namespace or a class
            k += 1
            continue
        end = next((j for j in range(k, len(lines)) if lines[j].startswith("}")), len(lines) - 1)
        if lines[first].startswith(name + "(") and re.search(r"[\w*]$", lines[first - 1]):
            heading = lines[first - 1] + "\n" + heading  # the type that it returns
        words = re.findall(r"(?<!\[)\b\w+", heading)  # not: char text[static 8]
        static = not static_words.isdisjoint(words)
        yield Function(name, file, end - first + 1, static, "\n".join(lines[k:end + 1]))
        k = end + 1


def calls_of(functions):
    """For each function the numbers of those that it names."""
    here, outside = {}, {}
    for k, f in enumerate(functions):
        here.setdefault((f.file, f.name), k)
        if not f.static or is_header(f.file):
            outside.setdefault(f.name, k)

    calls = []
    for k, f in enumerate(functions):
        called = set(CALL.findall(f.body))
        found = {here.get((f.file, name), outside.get(name)) for name in called}
        for name in set(HANDED_ON.findall(f.body)) - called:
            # `rows`, `value`: a local variable rather than another file's function
            found.add(here.get((f.file, name), outside.get(name) if "_" in name else None))
        calls.append({x for x in found if x is not None and functions[x].name != f.name})
    return calls


def below(entry, functions, calls):
    """The functions at most DEPTH calls below an entry, itself included: number -> calls away."""
    edge = {k for k, f in enumerate(functions) if f.name == entry}
    reached = dict.fromkeys(edge, 0)
    for depth in range(1, DEPTH + 1):
        edge = {callee for k in edge for callee in calls[k]} - reached.keys()
        reached.update(dict.fromkeys(edge, depth))
    return reached


def show_list(entry, functions, calls):
    """What is reached, file by file: calls away, lines, how many call it, and who of these does."""
    reached = below(entry, functions, calls)
    callers = collections.Counter(callee for called in calls for callee in called)
    files = collections.defaultdict(list)
    for k, depth in reached.items():
        by = sorted({functions[c].name for c, d in reached.items()
                     if k in calls[c] and d == depth - 1})
        files[functions[k].file].append((depth, k, " ".join(by)))
    for file, found in sorted(files.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"{file}: {len(found)}")
        for depth, k, by in sorted(found):
            f = functions[k]
            print(f"  {depth} {'' if f.static else 'external '}{f.name}, {f.lines} lines, "
                  f"{callers[k]} callers{by and ': ' + by}")


def used_elsewhere(functions, codes):
    defining, naming = collections.defaultdict(set), collections.defaultdict(set)
    for f in functions:
        defining[f.name].add(f.file)
    for file, code in codes.items():
        if not is_header(file):
            for word in set(WORD.findall(code)):
                naming[word].add(file)
    return {f.name for f in functions
            if not f.static and not is_header(f.file) and naming[f.name] - defining[f.name]}


def read(root):
    """Of every file of src and include its lines and its code; then how many lines have a comment.
    """
    files = sorted(p for part in ("src", "include") for p in (root / part).rglob("*")
                   if p.suffix in HEADERS | SOURCES)
    if not files:
        sys.exit(f"house: {root}: has no sources in src and include")
    codes, lines, commented = {}, {}, 0
    for path in files:
        file = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf8")
        lines[file] = text.count("\n")
        codes[file], comments = code_of(text)
        commented += comments
    return lines, codes, commented


def functions_of(codes):
    macros = macros_of(codes)
    words = {"static"}.union(*map(STATIC.findall, codes.values()))
    return [f for file, code in codes.items()
            for f in (*functions_in(file, code, words), *made_by_macros(file, code, macros, words))]


def figures_of(root, entries):
    lines, codes, commented = read(root)
    functions = functions_of(codes)
    calls = calls_of(functions)
    jumps = [f.file != functions[c].file for f, called in zip(functions, calls) for c in called]
    sizes = [n for file, n in lines.items() if not is_header(file)]
    total = sum(lines.values())
    rooms = sorted(p.name for p in (root / "src").iterdir() if p.is_dir())
    figures = {
        "lines": total,
        "comments": round(100 * commented / total, 1),
        "files": len(lines),
        "headers": len(lines) - len(sizes),
        "median": statistics.median(sizes),
        "longest": max(sizes),
        "small": sum(n <= SMALL for n in sizes),
        "rooms": rooms,
        "functions": len(functions),
        "per 1000": round(1000 * len(functions) / total, 1),
        "elsewhere": len(used_elsewhere(functions, codes)),
        "leaving": round(100 * sum(jumps) / max(1, len(jumps)), 1),
    }
    for entry in entries:
        reached = [functions[k] for k in below(entry, functions, calls)]
        figures[entry] = (len(reached), len({f.file for f in reached}),
                          sum(f.lines for f in reached))
    return figures


def show(figures, entries):
    f = figures
    print(f"lines        {f['lines']}, {f['comments']} % with a comment")
    print(f"files        {f['files']}, of them headers {f['headers']}")
    print(f"sources      median {f['median']:g} lines, longest {f['longest']}, "
          f"{f['small']} of {SMALL} lines or fewer")
    print(f"rooms        {len(f['rooms'])}: {' '.join(f['rooms'])}")
    print(f"functions    {f['functions']}, {f['per 1000']} per 1000 lines")
    print(f"external     {f['elsewhere']} functions that another source uses")
    print(f"calls        {f['leaving']} % leave the file")
    for entry in entries:
        print("%d calls below %s: %d functions, %d files, %d lines" % ((DEPTH, entry) + f[entry]))


def above_limits(figures):
    return [f"house: {what} = {figures[name]}: at most {most}; {remedy}, or raise LIMITS in "
            "scripts/house.py with a reason"
            for name, (most, what, remedy) in LIMITS.items() if figures[name] > most]


def gone(figures, entries):
    return [f"house: entry = '{entry}': no such function in src and include; if it has a new name, "
            "write that in ENTRIES of scripts/house.py"
            for entry in entries if figures[entry][0] == 0]


SELF_TEST = {
    "include/ares/one.h": """\
/* What `{` and "quotes" in a comment say
 * does not count. */
int ares_one(int a, int b);
static inline int one_twice(int a) /* a header's */
{
    return 2 * a;
}
#define KIND(name, ...) const char *kind_of_##name = #__VA_ARGS__ /* makes no function */
#define INLINE static inline __attribute__((unused))
#define NUMBER(type, name, parameters, ...) \\
    type number_##name parameters           \\
    {                                       \\
        return __VA_ARGS__;                 \\
    }
""",
    "src/one/one.c": """\
#include "ares/one.h"
static const char *text = "http://{\\"";
static const char quote = '"', brace = '{'; // a comment
KIND(counts_nothing, a == b)
TEST(counts)
{
    return one_twice(1);
}
static NUMBER(int, small, (int a, int b), two_unused(a),
              b)
#define LOCAL(name)  \\
    TEST(name)       \\
    {                \\
        return name; \\
    }
LOCAL(counts_again)
static int same(int a)
{
    return a;
}
INLINE int hidden_in_one(int a)
{
    return a;
}
__attribute__((noinline)) int ares_one(int a, // returns a
                                       int b)
{
    struct point p = {
        same(a), // "same("
    };
#if B
    if (b)
#endif
    {
        return p->two_unused(two_sort(p, by_size, deepest)); // a variable
    }
    return "in quotes: two_unused()";
}
""",
    "src/two/two.cpp": """\
namespace two
{
class Reader : public Base
{
    int method(void)
    {
        return 0;
    }
};
template <class T> static T
same(T a)
{
    return a;
}
template <> int same<int>(int a)
{
    return a;
}
int by_size(int value, char text[static 8])
{
    return same(value);
}
int (*two_sort(int a, int (*order)(int)))(int)
{
    return order(value) + two_deep(a);
}
int two_deep(int a MAYBE_UNUSED(a)) noexcept
{
    return two_deeper(a);
}
} // namespace two
extern "C" {
int two_deeper(int a)
{
    return deepest(a);
}
int deepest(int a)
{
    return a;
}
int two_unused(void)
{
    return hidden_in_one(0); // some other one
}
}
""",
    "src/two/table.cu": "two_fn *table[] = { two_unused };\n" + "\n" * (SMALL - 1),
    "src/two/long.c": "\n" * (SMALL + 1),
    "src/two/notes.txt": "int no_source(void)\n{\n}\n",
}
SELF_FIGURES = {
    "lines": 298, "comments": 3.4, "files": 5, "headers": 1, "median": 72.5, "longest": 101,
    "small": 3, "rooms": ["one", "two"], "functions": 15, "per 1000": 50.3,
    "elsewhere": 4,  # by_size, two_sort and, as a word, deepest in one.c; two_unused in a table
    "leaving": 44.4,  # 4 of 9
    # itself, both same, two_sort, by_size, two_deep, two_deeper: deepest is four calls below
    "ares_one": (7, 2, 38),
    "number_small": (2, 2, 6),  # itself, as its two lines in one.c, and two_unused
    "gone": (0, 0, 0),
}


def self_test():
    """How many figures are as they should be, and lines for those that are not."""
    entries = ["ares_one", "number_small", "gone"]
    with tempfile.TemporaryDirectory() as root:
        for file, text in SELF_TEST.items():
            path = pathlib.Path(root, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf8")
        figures = figures_of(pathlib.Path(root), entries)
    pairs = [(name, figures[name], want) for name, want in SELF_FIGURES.items()]
    pairs += [("faults at the limits", above_limits({k: v[0] for k, v in LIMITS.items()}), []),
              ("faults above them", len(above_limits({k: v[0] + 1 for k, v in LIMITS.items()})), 3),
              ("entries that are gone", len(gone(figures, entries)), 1)]
    faults = [f"house: self-test: {name} = {got}: should be {want}"
              for name, got, want in pairs if got != want]
    return len(pairs) - len(faults), faults


def main():
    words = sys.argv[1:]
    options = {w for w in words if w.startswith("-")}
    if options & {"-h", "--help"}:
        print(__doc__.strip())
        return
    unknown = options - {"--check", "--list", "--self-test"}
    if unknown:
        sys.exit(f"house: '{min(unknown)}': no such option (see --help)")
    entries = [w for w in words if w not in options] or ENTRIES
    root = pathlib.Path(__file__).resolve().parent.parent
    if "--list" in options:
        functions = functions_of(read(root)[1])
        calls = calls_of(functions)
        for entry in entries:
            show_list(entry, functions, calls)
        known = {f.name for f in functions}
        sys.exit("\n".join(gone({e: [e in known] for e in entries}, entries)) or 0)
    passed, faults = self_test() if "--self-test" in options else (0, [])
    if options != {"--self-test"}:
        figures = figures_of(root, entries)
        show(figures, entries)
        missing = gone(figures, entries)
        if not options:
            sys.exit("\n".join(missing) or 0)
        found = above_limits(figures) + missing
        passed += len(LIMITS) + len(entries) - len(found)
        faults += found
    print(*faults, f"house: {passed} passed, {len(faults)} failed", sep="\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
