#!/usr/bin/env bash
# Public functions and objects that nobody calls: global symbols ares_* and at_* of the room
# libraries, declared in include/ares, that no other object file of the libraries or of ares-train
# and no .cu file refers to.
#
#   scripts/check_unused.sh [build folder]    default: build, which must be up to date
#
# One that only its own room uses fails too: a header of include/ares/ holds what another room
# calls, and tests may include private headers. Exempt are core, whose functions come in families
# (strings, streams, JSON), and at.h, whose operators the oracles of tests use. tests/unused.txt lists
# what waits for a coming part, one per line: `symbol  the part`. A listed symbol that another room
# calls by now, or that is no longer declared, fails.
# Prints what is wrong; last line `check_unused: N passed, N failed`, one per symbol.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
list=tests/unused.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

main=$(find "$build/CMakeFiles/ares-train.dir" -name '*.o' 2>/dev/null || true)
# of libares_torch.so: the shim, and the part of kernels that stands on it
torch=$(find "$build/CMakeFiles/ares_torch.dir" -name '*.o' 2>/dev/null || true)
if ! ls "$build"/libares_*.a >/dev/null 2>&1 || [[ -z $main ]]; then
    echo "check_unused: no libares_*.a or no ares-train in $build; build first" >&2
    exit 1
fi

# Declared: every name of the public headers once macros are expanded.
printf '#include "%s"\n' include/ares/*.h | "${CC:-cc}" -E -P -Iinclude -I. -x c - |
    grep -oE '\b(ares|at)_[a-z0-9_]+\b' | sort -u >"$work/declared"

# "object type symbol" of every global definition and reference. An object is archive:member, or a
# file of ares-train.
# shellcheck disable=SC2086 # our file names have no spaces
nm -A -g "$build"/libares_*.a $main $torch 2>/dev/null |
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
# name unused variables, and a line names the object file.)
# shellcheck disable=SC2086
readelf -rW "$build"/libares_*.a $main $torch 2>/dev/null |
    awk '/^File:/ { code = 0 } /^Relocation section/ { code = $3 !~ /debug/ } code' |
    grep -oE '\b(ares|at)_[a-z0-9_]+\b' | sort -u >"$work/relocated"
comm -23 "$work/candidates" "$work/relocated" >"$work/unused"

# "symbol room" of every reference from a library, the program or a .cu file, and of every
# definition; main is a room of its own.
room_of='{ room = "main" }
    match($1, /libares_[a-z]+\.a/) { room = substr($1, RSTART + 8, RLENGTH - 10) }
    match($1, /ares_torch\.dir\/src\/[a-z]+/) { room = substr($1, RSTART + 19, RLENGTH - 19) }'
awk "$room_of"' $2 == "U" { print $3, room }' "$work/symbols" >"$work/users"
for folder in src/*/cuda; do
    [[ -d $folder ]] || continue
    grep -rhoE --include='*.cu' --include='*.cuh' '\b(ares|at)_[a-z0-9_]+\b' "$folder" |
        sed "s|\$| $(cut -d/ -f2 <<<"$folder")|" >>"$work/users"
done
awk "$room_of"' $2 != "U" && $2 != "w" { print $3, room }' "$work/symbols" >"$work/owners"
# Inline functions of public headers leave no symbol: whose sources, or headers, name them.
room_of_header() { # include/ares/algo_loss.h -> algo
    local name
    name=$(basename "$1" .h)
    name=${name%%_*}
    case $name in
    at) name=kernels ;;
    grade) name=reward ;;
    io) name=core ;;
    look) name=train ;;
    media) name=data ;;
    esac
    echo "$name"
}
for header in include/ares/*.h; do
    for symbol in $(sed -nE 's/^static inline .*\b(ares_[a-z0-9_]+)\(.*/\1/p' "$header"); do
        echo "$symbol $(room_of_header "$header")" >>"$work/owners"
        echo "$symbol" >>"$work/public"
        { grep -rlwF "$symbol" src || true; } | sed -nE "s|src/([a-z]+)/.*|$symbol \1|p" \
            >>"$work/users"
        for other in $(grep -lwF "$symbol" include/ares/*.h); do
            echo "$symbol $(room_of_header "$other")" >>"$work/users"
        done
    done
done
sort -u -o "$work/public" "$work/public"
# Public symbols without a user in another room.
awk 'NR == FNR { owner[$1] = $2; next } ($1 in owner) && owner[$1] != $2 { used[$1] }
     END { for (s in owner) if (!(s in used) && owner[s] != "core" && s !~ /^at_/) print s }' \
    "$work/owners" "$work/users" | sort | comm -12 - "$work/public" |
    comm -23 - "$work/unused" >"$work/own"

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
    header=$(grep -lwF "$symbol" include/ares/*.h | head -n 1)
    tell "$symbol" "$header declares it, but only its own room calls it; declare it in a header of \
src/$(room_of_header "$header"), without the prefix ares_"
done < <(comm -23 "$work/own" "$work/listed")
while read -r symbol; do tell "$symbol" "listed twice in $list"; done < <(uniq -d "$work/listed")
while read -r symbol; do
    if ! grep -qx "$symbol" "$work/declared"; then
        tell "$symbol" "in $list, but no longer declared; take it out"
    elif grep -qx "$symbol" "$work/public"; then # else it is not in this build
        tell "$symbol" "in $list, but another room calls it; take it out"
    fi
done < <(sort -u "$work/unused" "$work/own" | comm -13 - "$work/listed")
while read -r line; do tell "${line%% *}" "in $list without the part it waits for"; done \
    < <(sed -E 's/#.*//; /^[[:space:]]*$/d' "$list" | awk 'NF < 2')

total=$(wc -l <"$work/public")
echo "check_unused: $((total - failed < 0 ? 0 : total - failed)) passed, $failed failed"
((failed == 0))
