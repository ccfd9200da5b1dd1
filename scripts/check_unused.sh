#!/usr/bin/env bash
# Public functions and objects that nobody calls: global symbols ares_* and at_* of the room
# libraries, declared in include/ares, that no other object file of the libraries or of ares-train
# and no .cu file refers to.
#
#   scripts/check_unused.sh [build folder]    default: build, which must be up to date
#
# A function that only its own file uses fails too, unless tests of other rooms or benchmarks call
# it: a header of include/ares/ shows what other rooms call. Tables (ares_option_table functions,
# const data) may be used in their own file. tests/unused.txt lists what waits for a coming part,
# one per line: `symbol  the part`. A listed symbol that is used by now, or no longer declared,
# fails.
# Prints what is wrong; last line `check_unused: N passed, N failed`, one per symbol.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
list=tests/unused.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

main=$(find "$build/CMakeFiles/ares-train.dir" -name '*.o' 2>/dev/null || true)
if ! ls "$build"/libares_*.a >/dev/null 2>&1 || [[ -z $main ]]; then
    echo "check_unused: no libares_*.a or no ares-train in $build; build first" >&2
    exit 1
fi

# Declared: every name of the public headers once macros are expanded.
printf '#include "%s"\n' include/ares/*.h | "${CC:-cc}" -E -P -Iinclude -I. -x c - |
    grep -oE '\b(ares|at)_[a-z0-9_]+\b' | sort -u >"$work/declared"
# Names of option tables: their functions count as tables.
printf '#include "%s"\n' include/ares/*.h | "${CC:-cc}" -E -P -Iinclude -I. -x c - |
    sed -nE 's/^ *(extern +)?ares_option_table +(ares_[a-z0-9_]+) *;.*/\2/p' |
    sort -u >"$work/option_tables"

# "object type symbol" of every global definition and reference. An object is archive:member, or a
# file of ares-train.
# shellcheck disable=SC2086 # our file names have no spaces
nm -A -g "$build"/libares_*.a $main 2>/dev/null |
    sed -nE 's/^(.*):([0-9a-f]* +| +)([A-Za-z]) ((ares|at)_[a-z0-9_]+)$/\1 \3 \4/p' >"$work/symbols"
awk '$2 != "U" && $2 != "w"' "$work/symbols" >"$work/defined"
awk '$2 == "U" { print $3 }' "$work/symbols" | sort -u >"$work/referred"
# What the CUDA library names, whether this build has one or not.
{
    grep -rhoE --include='*.cu' --include='*.cuh' '\b(ares|at)_[a-z0-9_]+\b' src || true
} >>"$work/referred"
sort -u -o "$work/referred" "$work/referred"

awk '{ print $3 }' "$work/defined" | sort -u | comm -12 - "$work/declared" >"$work/public"
comm -23 "$work/public" "$work/referred" >"$work/candidates"

# A candidate that a relocation names all the same is used by its own file. (Those of .debug_* also
# name unused variables.)
# shellcheck disable=SC2086
readelf -rW "$build"/libares_*.a $main 2>/dev/null |
    awk '/^Relocation section/ { code = $3 !~ /debug/ } code' |
    grep -oE '\b(ares|at)_[a-z0-9_]+\b' | sort -u >"$work/relocated"
awk '$2 ~ /[DRBdrb]/ { print $3 }' "$work/defined" | sort -u - "$work/option_tables" >"$work/tables"
comm -23 "$work/candidates" "$work/relocated" >"$work/unused"
: >"$work/own"
while read -r symbol; do
    room=$(awk -v s="$symbol" '$3 == s { print $1; exit }' "$work/defined" |
        sed -nE 's/.*libares_([a-z]+)\.a:.*/\1/p')
    grep -rqwF --include='*.[ch]' --include='*.cu' --exclude-dir="$room" "$symbol" tests \
        benchmarks || echo "$symbol" >>"$work/own"
done < <(comm -12 "$work/candidates" "$work/relocated" | comm -23 - "$work/tables")

sed -E 's/#.*//; /^[[:space:]]*$/d; s/[[:space:]].*//' "$list" | sort >"$work/listed"
failed=0
tell() { # symbol message
    echo "$1: $2"
    failed=$((failed + 1))
}
while read -r symbol; do
    tell "$symbol" "nobody calls it; delete it, or list it in $list with the part it waits for"
done < <(comm -23 "$work/unused" "$work/listed")
while read -r symbol; do
    tell "$symbol" "public, but only its own file and tests of its room use it; make it static, or \
private to the room"
done < <(comm -23 "$work/own" "$work/listed")
while read -r symbol; do tell "$symbol" "listed twice in $list"; done < <(uniq -d "$work/listed")
while read -r symbol; do
    if ! grep -qx "$symbol" "$work/declared"; then
        tell "$symbol" "in $list, but no longer declared; take it out"
    elif grep -qx "$symbol" "$work/public"; then # else it is not in this build
        tell "$symbol" "in $list, but used; take it out"
    fi
done < <(sort -u "$work/unused" "$work/own" | comm -13 - "$work/listed")
while read -r line; do tell "${line%% *}" "in $list without the part it waits for"; done \
    < <(sed -E 's/#.*//; /^[[:space:]]*$/d' "$list" | awk 'NF < 2')

total=$(wc -l <"$work/public")
echo "check_unused: $((total - failed < 0 ? 0 : total - failed)) passed, $failed failed"
((failed == 0))
