#!/usr/bin/env bash
# Who may include whom: a room sees ares/<room>.h of rooms to its left and its own private headers,
# nothing else of ours. env, reward and algo do not see each other. Prints the offending lines; last
# line `N passed, N failed`, one per room.
set -euo pipefail
cd "$(dirname "$0")/.."

# For each room: the other rooms whose public headers it may include.
declare -A left=([core]="")
left[config]="core"
left[kernels]="${left[config]} config"
left[dist]="${left[kernels]} kernels"
left[text]="${left[dist]} dist"
left[data]="${left[text]} text"
left[model]="${left[data]} data"
left[env]="core config dist text"
left[reward]="${left[model]} model"
left[algo]="${left[model]} model"
left[rollout]="${left[model]} model env reward algo"
left[serve]="${left[rollout]} rollout"
left[train]="${left[serve]} serve"
left[cli]="${left[train]} train"
left[main]="${left[cli]} cli"
left[cuda]="${left[model]}" # kernels, losses, and NCCL of dist

# Headers in include/ares whose name is not that of their room.
declare -A room_of=([at]=kernels [grade]=reward [io]=core [look]=train [media]=data)
passed=0
failed=0

# "line:name" of every include of a file whose name matches the pattern's group.
includes() { # file pattern
    sed -nE "s/^[[:space:]]*#[[:space:]]*include[[:space:]]*$2.*/\\1/;T;=;p" "$1" | paste -d: - -
}

check() { # room file...
    local room=$1 bad=0 file line name owner path
    shift
    for file in "$@"; do
        while IFS=: read -r line name; do
            owner=${room_of[$name]:-$name}
            [[ -v left[$owner] ]] || owner="?" # a second header of a room, named <room>_<what>.h
            [[ $owner == "?" ]] && owner=${name%%_*}
            if [[ $owner != "$room" && " ${left[$room]} " != *" $owner "* ]]; then
                echo "$file:$line: room $room may not include ares/$name.h"
                bad=1
            fi
        done < <(includes "$file" '["<]ares\/([a-z0-9_]+)\.h[">]')
        # A private header must be found inside the room: no path that leaves it, and no name that
        # only another room has.
        while IFS=: read -r line name; do
            if [[ -e include/$name || -e $(dirname "$file")/$name || -e src/$room/$name ]]; then
                path=$(realpath -m "$(dirname "$file")/$name")
                if [[ $name == ../* && $path != "$PWD/src/$room/"* ]]; then
                    echo "$file:$line: \"$name\" leaves the room $room"
                    bad=1
                fi
                continue
            fi
            # the CUDA files of all rooms share one library
            [[ $file == src/*/cuda/*.cu* && -e src/kernels/cuda/$name ]] && continue
            if [[ -n $(find src include -path "*/$name" -print -quit) ]]; then
                echo "$file:$line: \"$name\" is private to another room"
                bad=1
            fi
        done < <(includes "$file" '"([^"]+)"')
    done
    if ((bad)); then failed=$((failed + 1)); else passed=$((passed + 1)); fi
}

for room in "${!left[@]}"; do
    if [[ $room == main ]]; then
        files=$(find src -maxdepth 1 -name '*.[ch]' 2>/dev/null || true)
    else
        files=$(find "src/$room" -name '*.[ch]' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \
            2>/dev/null || true)
    fi
    # shellcheck disable=SC2086 # our file names have no spaces
    [[ -n $files ]] && check "$room" $files
done

# The public headers follow the same order among themselves.
for header in include/ares/*.h; do
    name=$(basename "$header" .h)
    owner=${room_of[$name]:-$name}
    [[ -v left[$owner] ]] || owner=${name%%_*}
    if [[ -v left[$owner] ]]; then
        check "$owner" "$header"
    else
        echo "$header: belongs to no room"
        failed=$((failed + 1))
    fi
done

# C++ stays beside libtorch, and in the one file over Arrow.
if find src include -name '*.cpp' -not -path 'src/kernels/torch/*' \
    -not -path src/core/parquet_arrow.cpp | grep .; then
    echo "C++ outside src/kernels/torch and src/core/parquet_arrow.cpp"
    failed=$((failed + 1))
fi

echo "check_includes: $passed passed, $failed failed"
((failed == 0))
