#!/usr/bin/env bash
# Cross-builds ares-train and ares-golden for aarch64 Linux into build-aarch64/, runs them in qemu-user
# and compares: goldens, and the files of whole runs, byte for byte with those of build/ares-train.
# Without libtorch, MPI and the other optional parts: static programs, because dynamic ones hang in
# threads under qemu 7.2. Installs the cross compiler, qemu-user and that machine's C libraries.
# Last line: N passed, N failed.
#
#   --deps    only install the compiler and fetch the libraries; exit status 1 where that cannot be
set -euo pipefail
cd "$(dirname "$0")/.."
deps_only=false
[[ ${1:-} == --deps ]] && { deps_only=true; shift; }
if (($#)); then
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '/^set /d'
    [[ $1 == -h || $1 == --help ]] && exit 0
    exit 2
fi
build=build-aarch64
deps=$PWD/$build/deps
say() { echo "aarch64: $*"; }
fail() { echo "aarch64: $*" >&2; exit 1; }
[[ $(uname -m) == x86_64 ]] || fail "this machine is $(uname -m): scripts/test.sh tests it itself"
$deps_only || [[ -x build/ares-train ]] || fail "no build/ares-train to compare with; run scripts/test.sh first"

# --- the cross compiler, the emulator, and libraries that the linker can take whole
root() { if ((EUID)); then sudo "$@"; else "$@"; fi; }
packages=()
command -v aarch64-linux-gnu-gcc >/dev/null || packages+=(gcc-aarch64-linux-gnu)
command -v aarch64-linux-gnu-g++ >/dev/null || packages+=(g++-aarch64-linux-gnu)
command -v qemu-aarch64-static >/dev/null || packages+=(qemu-user-static)
if ((${#packages[@]})); then
    command -v apt-get >/dev/null || fail "install ${packages[*]}: no apt-get here that could"
    say "installing ${packages[*]}"
    root apt-get update -qq
    root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${packages[@]}" >/dev/null
fi

# Debian's packages of that machine, unpacked beside the build; nothing of them is installed. cJSON's
# has no static library: it is made from the source package.
fetch_deps() {
    local new=$deps.new apt
    command -v apt-get >/dev/null || fail "no apt-get here to fetch Debian's packages for arm64"
    rm -rf "$new"
    mkdir -p "$new"/{debs,lists/partial,archives/partial,include/cjson,lib}
    # Debian's own sources of this machine, in either form, those of source packages added
    if [[ -e /etc/apt/sources.list.d/debian.sources ]]; then
        sed 's/^Types: deb$/Types: deb deb-src/' /etc/apt/sources.list.d/debian.sources \
            >"$new/debian.sources"
    else
        sed -nE 's/^deb (.*)/deb \1\ndeb-src \1/p' /etc/apt/sources.list >"$new/debian.list"
    fi
    apt=(apt-get -qq -o APT::Architectures::=amd64 -o APT::Architectures::=arm64
        -o Dir::Etc::sourcelist="$(ls "$new"/debian.*)" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::State::lists="$new/lists" -o Dir::Cache="$new" -o APT::Sandbox::User=root)
    "${apt[@]}" update
    (
        cd "$new/debs"
        "${apt[@]}" download lib{yaml,pcre2,utf8proc,gmp,mpfr,png,jpeg62-turbo,webp}-dev:arm64 \
            zlib1g-dev:arm64
        "${apt[@]}" --download-only source cjson
        for deb in *.deb; do dpkg -x "$deb" "$new/unpacked"; done
        mkdir cjson && tar -xf cjson_*.orig.tar.* -C cjson --strip-components=1
        aarch64-linux-gnu-gcc -O2 -c cjson/cJSON.c -o cjson.o
        aarch64-linux-gnu-ar rcs "$new/lib/libcjson.a" cjson.o
        cp cjson/cJSON.h "$new/include/cjson/"
    )
    cp -r "$new"/unpacked/usr/include/. "$new/include/"
    cp -r "$new"/unpacked/usr/include/aarch64-linux-gnu/. "$new/include/" # gmp.h, jconfig.h
    cp "$new"/unpacked/usr/lib/aarch64-linux-gnu/*.a "$new/lib/"
    rm -rf "$new"/{debs,lists,archives,unpacked}
    rm -rf "$deps"
    mv "$new" "$deps"
}
[[ -e $deps/lib/libcjson.a ]] || { say "fetching that machine's C libraries"; fetch_deps; }
$deps_only && exit 0

cmake -G Ninja -B "$build" -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" \
    -DCMAKE_BUILD_TYPE=Release -DARES_DEPS_PREFIX="$deps" -DARES_TORCH=OFF -DARES_MPI=OFF \
    -DARES_CUDA=OFF -DARES_WEBSOCKETS=OFF -DARES_COMPRESSED=OFF -DARES_PARQUET=OFF \
    -DARES_VIDEO=OFF -DARES_SQLITE=OFF >"$build/cmake.log" || { cat "$build/cmake.log"; exit 1; }
cmake --build "$build" -j "$(nproc)" --target ares-train ares-golden
say "built after $SECONDS s"

# --- what both machines make of the same commands
passed=0
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
check() { # name command...
    local name=$1
    shift
    if "$@" >"$work/log" 2>&1; then passed=$((passed + 1)); echo "ok   $name"
    else failed=$((failed + 1)); cat "$work/log"; echo "FAIL $name"; fi
}
# The program reserves address space, not memory; qemu has a record for each page of it: the limit keeps
# these few.
arm() { (ulimit -v 12000000; exec qemu-aarch64-static "$build/ares-train" "$@"); }
x86() { build/ares-train "$@"; }

printf '%s\n' '{"prompt":"12+5=?","response":"17"}' '{"prompt":"40+2=?","response":"42 ünd"}' \
    >"$work/sft.jsonl"
printf '{"prompt":"%s+2=?","answer":"%s"}\n' 1 3 7 9 13 15 40 42 >"$work/rl.jsonl"
printf '%s\n' '{"prompt":"12+5=","response":"17"}' '{"prompt":"ja,","response":" wohl – 42"}' \
    >"$work/score.jsonl"

# Every command into the folder $1, by the program that is named; one thread, as qemu has it.
make_all() {
    local dir=$1 run=$2 step
    local rl=(data.train_files="$work/rl.jsonl" data.apply_chat_template=false
        data.max_prompt_length=16 data.max_response_length=12 data.rollout_batch_size=4
        worker.actor.global_batch_size=2 worker.rollout.n=4 trainer.val_freq=-1
        trainer.val_before_train=false trainer.save_freq=1 trainer.rollout_log=tokens
        'trainer.logger=[console]' trainer.threads=1 'worker.reward.rewards=[{name: random}]')
    mkdir "$dir"
    "$run" init --arch qwen2 --hidden 64 --layers 2 --heads 4 --kv-heads 2 --vocab 384 --seed 3 \
        --out "$dir/model"
    "$run" sft worker.actor.model.model_path="$dir/model" data.train_files="$work/sft.jsonl" \
        data.apply_chat_template=false sft.batch_size=2 sft.max_length=48 trainer.max_steps=2 \
        trainer.threads=1 trainer.run_dir="$dir/sft" 'trainer.logger=[console]'
    "$run" "${rl[@]}" worker.actor.model.model_path="$dir/sft" trainer.max_steps=3 \
        algorithm.adv_estimator=grpo algorithm.disable_kl=false algorithm.use_kl_loss=true \
        trainer.run_dir="$dir/grpo"
    "$run" "${rl[@]}" worker.actor.model.model_path="$dir/sft" trainer.max_steps=2 \
        algorithm.adv_estimator=gae algorithm.disable_kl=true worker.rollout.top_p=0.9 \
        worker.actor.fsdp.torch_dtype=bf16 trainer.run_dir="$dir/ppo"
    "$run" generate --model "$dir/grpo" --raw --prompt "12+5=?" --max-new-tokens 24 --seed 5 --threads 1 \
        >"$dir/generate.txt"
    "$run" score --model "$dir/grpo" --threads 1 --input "$work/score.jsonl" >"$dir/score.jsonl"
}
check "this machine's runs" make_all "$work/x86" x86
check "the same runs as aarch64" make_all "$work/arm" arm

# Weights, states of the optimizer, answers with their log-probs, texts and scores.
same_files() {
    local n=0 file
    while read -r file; do
        cmp "$work/x86/$file" "$work/arm/$file" || return 1
        n=$((n + 1))
    done < <(cd "$work/x86" && find . -name '*.safetensors' -o -path '*/rollouts/*' -type f \
        -o -name generate.txt -o -name score.jsonl)
    echo "$n files" && ((n >= 20))
}
check "their files are the same to the last byte" same_files
check "aarch64 makes a step of this machine's run again" arm verify "$work/x86/grpo" --step 2
echo "media/media_row # one is a file of a video, which wants FFmpeg" >"$work/unknown.txt"
for isa in neon plain; do
    check "goldens, ARES_ISA=$isa" env ARES_ISA=$isa qemu-aarch64-static "$build/ares-golden" \
        tests/golden/*.json --allow-unknown tests/golden/unknown.txt --allow-unknown "$work/unknown.txt"
done
echo "$passed passed, $failed failed"
((failed == 0))
