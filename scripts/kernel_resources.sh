#!/usr/bin/env bash
# What ptxas says of every CUDA kernel for Hopper (sm_90a): registers per thread, bytes of static
# shared memory and of stack per thread, and bytes of registers that are spilled to memory.
#
#   scripts/kernel_resources.sh [FILE.cu ...]     (default: every .cu of src)
#   scripts/kernel_resources.sh --page            writes the table of docs/kernels.md
#
# A line per kernel; last line `N kernels, N with spills`. Exit status 1 when one spills, 2 when one
# does not compile. Dynamic shared memory is not included: it is chosen where a kernel is launched.
# No card is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [[ ! -x $nvcc ]]; then
    echo "kernel_resources: no nvcc; install the CUDA 13.0 toolkit" >&2
    exit 1
fi
page=""
[[ ${1:-} == --page ]] && page=docs/kernels.md && shift
files=("$@")
[[ $# -gt 0 ]] || mapfile -t files < <(find src -name '*.cu' | sort)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

list() { # what ptxas says of one file, a line per kernel
    local file=$1 contract=()
    [[ $file == src/algo/* ]] && contract=(--fmad=false)
    "$nvcc" -std=c++17 -O3 "${contract[@]}" -D_GNU_SOURCE -Iinclude -Isrc/kernels/cuda -Isrc/algo \
        -arch=sm_90a -Xptxas -v -cubin "$file" -o "$work/cubin" >"$work/said" 2>&1 ||
        { cat "$work/said" >&2; return 2; }
    c++filt -p <"$work/said" | awk -v file="${file#src/}" '
            /Compiling entry function/ { split($0, part, "\047"); name = part[2] }
            /bytes stack frame/ { stack = $1; spills = $5 + $9 }
            /Used [0-9]+ registers/ {
                shared = 0
                for (i = 2; i <= NF; i++) {
                    if ($i == "registers," || $i == "registers") regs = $(i - 1)
                    if ($i ~ /^smem/) shared = $(i - 2)
                }
                printf "%-28s %-40s %5d %7d %6d %6d\n", file, name, regs, shared, stack, spills
            }' | LC_ALL=C sort
}
{
    printf '%-28s %-40s %5s %7s %6s %6s\n' file kernel regs shared stack spills
    for file in "${files[@]}"; do list "$file" || exit 2; done
} >"$work/table"
if [[ -n $page ]]; then
    sed -n '/^## /,$p' "$page" >"$work/rest" # what is written by hand stays
    {
        echo "# Registers and shared memory of the kernels"
        echo
        echo "Written by \`scripts/kernel_resources.sh --page\` from what ptxas of CUDA" \
            "$("$nvcc" --version | sed -n 's/.*release.*V//p')"
        echo "says for Hopper (sm_90a): registers per thread, bytes of static shared memory per block,"
        echo "of stack per thread, and of registers that are spilled to memory. A kernel that spills"
        echo "does not build (\`cmake/AresCuda.cmake\`). Dynamic shared memory is not included."
        echo
        echo '```'
        cat "$work/table"
        echo '```'
        [[ ! -s $work/rest ]] || { echo && cat "$work/rest"; }
    } >"$page"
fi
awk '{ print } NR > 1 { n++; spilled += $NF > 0 }
    END { printf "%d kernels, %d with spills\n", n, spilled; exit spilled > 0 }' "$work/table"
