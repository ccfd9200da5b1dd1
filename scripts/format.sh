#!/usr/bin/env bash
# Formats every C, C++ and CUDA file in place with the clang-format that scripts/setup.sh installs.
#
#   scripts/format.sh            format
#   scripts/format.sh --check    change nothing; print the lines that would change and those over
#                                100 columns; last line `N passed, N failed`, one per file
set -euo pipefail
cd "$(dirname "$0")/.."
# The program itself: the one in .venv/bin is a script that names the path where it was installed.
installed='.venv/lib/python3*/site-packages/clang_format/data/bin/clang-format'
formatter=$(compgen -G "$installed" || true)
case ${1:-} in
"" | --check) ;;
-h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
*) echo "format: '$1': no such option (see --help)" >&2; exit 2 ;;
esac
if [[ ! -x $formatter ]]; then
    [[ ${CI:-} != true && ${1:-} == --check ]] && { echo "SKIP: no clang-format in .venv"; exit 0; }
    echo "format: no clang-format in .venv; run scripts/setup.sh with a network" >&2
    exit 1
fi
mapfile -t files < <(find benchmarks include src tests tools \( -name '*.[ch]' -o -name '*.cu' \
    -o -name '*.cuh' -o -name '*.cpp' -o -name '*.hpp' \) 2>/dev/null | sort)
[[ ${1:-} == --check ]] || exec "$formatter" -i "${files[@]}"

# A formatter or a grep that cannot work ends the script; grep says 1 where no line is too long.
said=$("$formatter" --dry-run "${files[@]}" 2>&1) ||
    { echo "format: $formatter: $said" >&2; exit 1; }
long=$(LC_ALL=C.UTF-8 grep -nE '^.{101,}' "${files[@]}" /dev/null) || [[ $? == 1 ]]
remedy="not formatted; run scripts/format.sh"
wrong=$(
    sed -nE "s|^([^ :]+:[0-9]+):.*-Wclang-format-violations.*|\1: $remedy|p" <<<"$said"
    sed -nE 's/^([^:]+:[0-9]+):.*/\1: over 100 columns/p' <<<"$long"
)
failed=0
if [[ -n $wrong ]]; then
    sort -u <<<"$wrong" | head -n 50
    failed=$(cut -d: -f1 <<<"$wrong" | sort -u | wc -l)
fi
echo "check_format: $((${#files[@]} - failed)) passed, $failed failed"
((failed == 0))
