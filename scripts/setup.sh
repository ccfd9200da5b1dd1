#!/usr/bin/env bash
# Installs what the build and the tests need and this machine lacks: Debian packages, libtorch into
# the project's own .venv, and pyarrow, which reads Parquet files, into .venv-parquet. Asks nothing,
# changes nothing when nothing is missing (then it takes a second).
#
#   --openenv          also the Python package openenv, into .venv-openenv (141 MB): the server of
#                      examples/environment_openenv and of some tests, which say SKIP without it
#   --browser          also Chromium (a package of 81 MB), in which a
#                      test looks at reports; it says SKIP without one
#   --parquet          fail where the Python package pyarrow cannot be had: it is fetched in any case,
#                      into .venv-parquet (165 MB), because its C++ reads Parquet files, but without
#                      the option the build goes on and leaves them out. ARES_PARQUET=OFF: not fetched
#
# What is already there is used instead of fetching anything:
#   ARES_LIBTORCH      a folder with libtorch's include/ and lib/ (else .venv, else the torch of the
#                      active Python)
#   ARES_DEPS_PREFIX   a prefix with the C libraries, made by scripts/bundle_deps.sh on a machine
#                      with a network
set -euo pipefail
cd "$(dirname "$0")/.."
torch_version=2.11.0
format_version=19.1.7 # clang-format: other versions lay code out otherwise

openenv_packages=(openenv==0.10.0 fastapi==0.165.0 uvicorn==0.54.0 websockets==17.4
    pydantic==2.14.3 fastmcp==3.4.10)

pyarrow_version=22.0.0 # later ones want C++20

want_openenv=false
want_parquet=false
want_browser=false
for word; do
    [[ $word == --openenv ]] && { want_openenv=true; continue; }
    [[ $word == --browser ]] && { want_browser=true; continue; }
    [[ $word == --parquet ]] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 2; }
    want_parquet=true
done

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

# --- Debian packages: a package is wanted when what it brings is not there
packages=()
optional=() # without these some of the program is left out
command -v gcc >/dev/null || packages+=(gcc libc6-dev)
command -v g++ >/dev/null || packages+=(g++)
command -v cmake >/dev/null || packages+=(cmake)
command -v ninja >/dev/null || packages+=(ninja-build)
command -v unzip >/dev/null || packages+=(unzip)
command -v python3 >/dev/null || packages+=(python3)
# ccache only makes rebuilds quicker, and who has a clone has git: neither is asked for.

header() { # header package
    local dir
    for dir in ${ARES_DEPS_PREFIX:+"$ARES_DEPS_PREFIX/include"} /usr/include \
        /usr/include/*-linux-gnu /usr/local/include; do
        [[ -e $dir/$1 ]] && return
    done
    packages+=("$2")
}
header yaml.h libyaml-dev
header cjson/cJSON.h libcjson-dev
header pcre2.h libpcre2-dev
header utf8proc.h libutf8proc-dev
header gmp.h libgmp-dev
header mpfr.h libmpfr-dev
header png.h libpng-dev
header jpeglib.h libjpeg-dev
header webp/decode.h libwebp-dev
if [[ ${ARES_MPI:-AUTO} != OFF ]]; then
    command -v mpicc >/dev/null || optional+=(libopenmpi-dev)
    command -v mpirun >/dev/null || optional+=(openmpi-bin)
fi

if [[ ${ARES_WEBSOCKETS:-AUTO} != OFF && ! -e /usr/include/libwebsockets.h ]]; then
    optional+=(libwebsockets-dev)
fi

if [[ ${ARES_COMPRESSED:-AUTO} != OFF ]]; then
    [[ -e /usr/include/zlib.h ]] || optional+=(zlib1g-dev)
    [[ -e /usr/include/zstd.h ]] || optional+=(libzstd-dev)
fi

if [[ ${ARES_SQLITE:-AUTO} != OFF && ! -e /usr/include/sqlite3.h ]]; then
    optional+=(libsqlite3-dev)
fi

if [[ ${ARES_VIDEO:-AUTO} != OFF ]]; then
    for name in avformat avcodec swscale avutil; do
        compgen -G "/usr/include/*-linux-gnu/lib$name/$name.h" >/dev/null ||
            [[ -e /usr/include/lib$name/$name.h ]] || optional+=("lib$name-dev")
    done
fi

# --- libtorch: where FindAresTorch.cmake will look
torch_in() { [[ -e $1/include/ATen/ATen.h && -e $1/lib/libtorch_cpu.so ]]; }
find_torch() {
    local dir
    if [[ -n ${ARES_LIBTORCH:-} ]]; then
        torch_in "$ARES_LIBTORCH" ||
            fail "ARES_LIBTORCH = '$ARES_LIBTORCH': no include/ATen/ATen.h and no" \
                "lib/libtorch_cpu.so there"
        echo "$ARES_LIBTORCH"
        return
    fi
    for dir in .venv/lib/python3*/site-packages/torch; do
        torch_in "$dir" && [[ -e .venv/ares-complete ]] && { echo "$dir"; return; }
    done
    # The active Python's own, but not one that belongs to a half-made .venv.
    dir=$(python3 -c "import importlib.util
spec = importlib.util.find_spec('torch')
print(spec.submodule_search_locations[0] if spec else '')" 2>/dev/null || true)
    [[ -n $dir && $dir != "$PWD/.venv/"* ]] && torch_in "$dir" &&
        [[ $(torch_version_of "$dir") == "$torch_version" ]] && echo "$dir"
    return 0
}
torch_version_of() {
    sed -nE "s/^__version__ = '([0-9.]+).*/\1/p" "$1/version.py" 2>/dev/null || true
}
torch=$(find_torch)

# A venv needs ensurepip, which Debian keeps in a package of its own.
if [[ -z $torch ]] && command -v python3 >/dev/null &&
    ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    packages+=(python3-venv)
elif [[ -z $torch && " ${packages[*]} " == *" python3 "* ]]; then
    packages+=(python3-venv)
fi

# Gives 1 when something stays missing, with the way out in $remedy.
install() { # package...
    local command="apt-get install -y --no-install-recommends $*" log rc=0
    remedy="with root and a network: apt-get update && $command"
    if ! command -v apt-get >/dev/null; then
        remedy="install them with this system's packages (the names are Debian's)"
        return 1
    fi
    ((EUID == 0)) || { remedy="run as root: $command"; return 1; }
    say "installing $*"
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    # The lists of a fresh machine are empty or old, and reading them anew takes longer than the
    # rest: first without.
    $command </dev/null >"$log" 2>&1 ||
        { apt-get update && $command; } </dev/null >"$log" 2>&1 || rc=1
    rm -f "$log"
    return $rc
}
# What stays missing is reported together, at the end.
problems=()
if ((${#packages[@]} + ${#optional[@]})) && ! install "${packages[@]}" "${optional[@]}"; then
    if ((${#packages[@]})) &&
        { ((${#optional[@]} == 0 || EUID != 0)) || ! install "${packages[@]}"; }; then
        problem="packages: ${packages[*]} ${optional[*]}; $remedy. With no network: carry a prefix"
        problem+=" made by scripts/bundle_deps.sh here and name it in ARES_DEPS_PREFIX"
        problem+=" (now '${ARES_DEPS_PREFIX:-}'); it holds the C libraries; compiler, cmake and"
        problem+=" ninja come with the system"
        problems+=("$problem")
    else
        say "going on without ${optional[*]}: no several processes, no environments on OpenEnv" \
            "servers, no compressed rows, no files of Trackio and MLflow, or no files of videos;" \
            "$remedy"
    fi
fi

# pip in .venv, which is made where it is missing; all output goes to $log.
make_venv() {
    { [[ -x .venv/bin/python ]] && .venv/bin/python -c 'import pip'; } || python3 -m venv .venv
}
pip_install() { # package...
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-compile \
        "$@" </dev/null
}
# Gives 1 when libtorch cannot be fetched, with the last line of pip's output in $reason.
fetch_torch() {
    local log rc=0 fetch=("torch==$torch_version")
    if nvidia-smi >/dev/null 2>&1; then
        say "fetching libtorch $torch_version with its CUDA libraries into .venv (about 3 GB)"
    else
        # libtorch_cpu.so needs two small libraries of CUDA; without a GPU the other 2 GB stay away.
        say "fetching libtorch $torch_version into .venv (530 MB)"
        fetch+=("nvidia-cuda-runtime==13.0.*" "nvidia-cuda-cupti==13.0.*" --no-deps)
    fi
    log=$(mktemp)
    { make_venv || { rm -rf .venv && make_venv; }; } >"$log" 2>&1 &&
        pip_install "${fetch[@]}" >"$log" 2>&1 || rc=1
    reason=$(grep -v '^$' "$log" | tail -n 1)
    rm -f "$log"
    return $rc
}
name_torch="name a folder with its include/ and lib/ in ARES_LIBTORCH"
if [[ -z $torch ]]; then
    if ! command -v python3 >/dev/null; then
        problems+=("libtorch $torch_version: needs python3 to be fetched; or $name_torch")
    elif fetch_torch; then
        touch .venv/ares-complete
        torch=$(find_torch)
        [[ -n $torch ]] || problems+=("libtorch $torch_version: fetched, but .venv has no\
 libtorch_cpu.so; remove .venv and start again")
    else
        problems+=("libtorch $torch_version: could not be fetched ($reason); with no network,\
 $name_torch, or activate a Python that has torch $torch_version")
    fi
fi
# Only contributors need clang-format: without a network its test says SKIP.
if [[ ! -e .venv/clang-format-$format_version ]] && command -v python3 >/dev/null; then
    log=$(mktemp)
    if make_venv >"$log" 2>&1 && pip_install "clang-format==$format_version" >"$log" 2>&1; then
        touch ".venv/clang-format-$format_version"
    else
        say "going on without clang-format $format_version ($(grep -v '^$' "$log" | tail -n 1))"
    fi
    rm -f "$log"
fi
# A venv of its own: the package brings others in versions that nothing else should depend on.
fetch_openenv() {
    local here=.venv-openenv
    { [[ -x $here/bin/python ]] || python3 -m venv $here; } &&
        $here/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
            "${openenv_packages[@]:1}" &&
        $here/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
            "${openenv_packages[0]}" &&
        $here/bin/python -c 'import openenv.core.env_server.http_server'
}
if $want_openenv && [[ ! -e .venv-openenv/${openenv_packages[0]} ]]; then
    say "fetching ${openenv_packages[0]} into .venv-openenv (141 MB)"
    log=$(mktemp)
    if fetch_openenv </dev/null >"$log" 2>&1; then
        touch ".venv-openenv/${openenv_packages[0]}"
    else
        problems+=("the package openenv: $(grep -v '^$' "$log" | tail -n 1)")
    fi
    rm -f "$log"
fi
if [[ ! -e .venv-parquet/$pyarrow_version && ( $want_parquet == true ||
    ${ARES_PARQUET:-AUTO} != OFF ) ]] && command -v python3 >/dev/null; then
    say "fetching pyarrow $pyarrow_version into .venv-parquet (165 MB)"
    log=$(mktemp)
    if { make_venv && rm -rf .venv-parquet &&
        pip_install --no-deps --target .venv-parquet "pyarrow==$pyarrow_version"; } >"$log" 2>&1; then
        touch ".venv-parquet/$pyarrow_version"
    else
        reason=$(grep -v '^$' "$log" | tail -n 1)
        if $want_parquet; then problems+=("the package pyarrow: $reason")
        else say "going on without pyarrow $pyarrow_version: no Parquet files ($reason)"; fi
    fi
    rm -f "$log"
fi
if $want_browser; then
    found=false
    for name in chromium chromium-browser google-chrome chrome; do
        command -v $name >/dev/null && found=true
    done
    $found || install chromium || problems+=("a browser: chromium; $remedy")
fi
if ((${#problems[@]})); then
    printf 'setup: missing %s\n' "${problems[@]}" >&2
    exit 1
fi

version=$(torch_version_of "$torch")
[[ -z $version || $version == "$torch_version" ]] ||
    say "warning: $torch is libtorch $version; this tree is tested with $torch_version"
say "ready (libtorch ${version:-unknown} in $torch)"
