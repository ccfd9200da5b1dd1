#!/usr/bin/env bash
# Every reference resolves from a clone of the repository: each PAGE.md and PAGE.md#heading that a
# source file, script or page names exists, each relative link of a page too; and nothing refers to
# what lies outside (a specification, numbered sections, folders beside the repository). Prints the
# offending lines; last line `N passed, N failed`, one per reference.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

self=scripts/check_references.sh                  # names what it forbids
generated=" table.md "                            # written by a run, not part of the repository
passed=0
failed=0

mapfile -t files < <(find .ci benchmarks cmake configs docs examples experiments include scripts \
    src tests tools CMakeLists.txt ./*.md \( -path tests/fuzz/corpus -o -path tests/golden/chat \
    -o -path tests/golden/models -o -path tests/golden/tokenizer \) -prune -o -type f \( \
    -name '*.[ch]' -o -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' \
    -o -name '*.cmake' -o -name '*.txt' -o -name '*.sh' -o -name '*.py' -o -name '*.yaml' \
    -o -name '*.md' -o -path .ci/run -o -path 'tests/golden/*.json' \) ! -path "$self" -print |
    sed 's/^\.\///' | sort)

bad() { # place, what is wrong
    echo "$1: $2"
    failed=$((failed + 1))
}

# The anchors that GitHub gives to a page's headings, between blanks; a heading that occurs twice
# gets -1, -2 ...
declare -A anchors_of=()
anchors() { # page: result in $found
    if [[ ! -v anchors_of[$1] ]]; then
        anchors_of[$1]=" $(awk '/^[[:space:]]*```/ { fence = !fence; next }
            !fence && /^#+ / { sub(/^#+ +/, ""); print }' "$1" |
            sed -E 's/\[([^]]*)\]\([^)]*\)/\1/g; s/.*/\L&/; s/[^[:alnum:] _-]//g; s/ /-/g' |
            awk '{ print $0 (seen[$0]++ ? "-" seen[$0] - 1 : "") }' | tr '\n' ' ') "
    fi
    found=${anchors_of[$1]}
}

resolve() { # place, path as found, anchor or nothing, the folders to look in ...
    local place=$1 path=$2 anchor=$3 at folder
    shift 3
    for folder in "$@"; do
        at=$(realpath -m --relative-to=. "$folder/$path")
        [[ $at == ../* || ! -e $at ]] && continue
        if [[ -n $anchor ]]; then
            if [[ $at == *.md ]]; then anchors "$at"; else found=" "; fi
            if [[ $found != *" $anchor "* ]]; then
                bad "$place" "$at has no heading #$anchor"
                return
            fi
        fi
        passed=$((passed + 1))
        return
    done
    bad "$place" "'$path' is not in the repository"
}

# Pages that are named: from the root, or beside the file that names them. Links of pages follow
# below.
while IFS=: read -r file line name; do
    [[ $generated == *" ${name##*/} "* ]] && continue
    [[ ${name#/} == RESULTS.md ]] && continue # of whichever study
    path=${name%%#*}
    anchor=
    [[ $name == *'#'* ]] && anchor=${name#*#}
    resolve "$file:$line" "$path" "$anchor" . "$(dirname "$file")"
done < <(awk '{
    text = $0
    gsub(/[a-z]+:\/\/[^ )>"]*/, "", text)
    gsub(/\]\([^)]*\)/, "", text)
    while (match(text, /[A-Za-z0-9_.\/-]*[A-Za-z0-9_]\.md(#[A-Za-z0-9_-]+)?/)) {
        print FILENAME ":" FNR ":" substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
    }
}' "${files[@]}")

# Links of pages, relative to the page; not those within fences.
for page in "${files[@]}"; do
    [[ $page == *.md ]] || continue
    while IFS=: read -r line target; do
        case $target in
        *://* | mailto:*) continue ;;
        '#'*) resolve "$page:$line" "${page##*/}" "${target#\#}" "$(dirname "$page")" ;;
        *'#'*) resolve "$page:$line" "${target%%#*}" "${target#*#}" "$(dirname "$page")" ;;
        *) resolve "$page:$line" "$target" "" "$(dirname "$page")" ;;
        esac
    done < <(awk '/^[[:space:]]*```/ { fence = !fence; next }
        !fence { text = $0; gsub(/`[^`]*`/, "", text)
                 while (match(text, /\]\([^) ]+\)/)) {
                     print FNR ":" substr(text, RSTART + 2, RLENGTH - 3)
                     text = substr(text, RSTART + RLENGTH)
                 } }' "$page")
done

# What lies outside the repository, and sections by number: pages have headings, papers are named.
forbid() { # pattern, what is wrong
    local file line text
    while IFS=: read -r file line text; do
        bad "$file:$line" "$2: ${text:0:80}"
    done < <(grep -nE "$1" "${files[@]}" /dev/null || true)
}
forbid '\b(DESIGN|STYLE|PERF)\b' "refers to a page that is not in the repository"
forbid '\.\./shared|\bshared/(golden|spec|data)\b' "lies outside the repository"
specification="\\bspec(ification)?(,|'s)? (section )?[0-9]|\\bspec/[a-z]"
forbid "$specification|(the|project's|rewards|agentic) specification|seed document" \
    "refers to a specification that is not in the repository"
forbid '\.md(,)? (section )?[0-9]+(\.[0-9]+)*[a-z]?\b' \
    "names a section by number; name its heading: PAGE.md#heading"
section='(F[0-9]+|[1-9]\.[1-9][0-9]?[a-z]?)' # alone in parentheses, in a comment
forbid "^[[:space:]]*(/?\\*|//|#|[^\"]*/\\*).*[ ,]\\($section((,| and| to) $section)*[);]" \
    "names a section by number; name a page's heading, or a paper"

echo "check_references: $passed passed, $failed failed"
((failed == 0))
