#!/usr/bin/env bash
# bundle_deps.sh DIR: copies the headers, shared libraries and pkg-config files of the C
# dependencies from this machine into DIR (4 MB), to be carried to a machine without a network.
# There:
#
#   ARES_DEPS_PREFIX=DIR ARES_LIBTORCH=TORCH scripts/setup.sh
#   cmake --preset release -DARES_DEPS_PREFIX=DIR
#
# TORCH is torch/ of the wheel, unpacked, or leave it out where the active Python has torch.
# Compiler, cmake and ninja come with the system there, and so does an MPI if several processes are
# wanted: its plug-ins do not travel. Nor does libwebsockets, whose headers want those of several
# others: install libwebsockets-dev there for environments on OpenEnv servers, zlib1g-dev and
# libzstd-dev for compressed rows, libsqlite3-dev for the files of Trackio and MLflow,
# libavformat-dev and libswscale-dev for files of videos. For Parquet
# carry the folder pyarrow and name it in ARES_PYARROW.
set -euo pipefail
cd "$(dirname "$0")/.."

if (($# != 1)) || [[ $1 == -* ]]; then
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    exit 2
fi
[[ $1 == /* ]] && prefix=$1 || prefix=$OLDPWD/$1
compiler=${CC:-cc}

# library, pkg-config file, Debian package, headers: the one that is asked for, then those it needs
dependencies="
yaml      yaml-0.1   libyaml-dev      yaml.h
cjson     libcjson   libcjson-dev     cjson/cJSON.h
pcre2-8   libpcre2-8 libpcre2-dev     pcre2.h
utf8proc  libutf8proc libutf8proc-dev utf8proc.h
gmp       gmp        libgmp-dev       gmp.h
mpfr      mpfr       libmpfr-dev      mpfr.h
png       libpng     libpng-dev       png.h pngconf.h pnglibconf.h
jpeg      libjpeg    libjpeg-dev      jpeglib.h jconfig.h jmorecfg.h jerror.h
webp      libwebp    libwebp-dev      webp/decode.h webp/types.h
"

mkdir -p "$prefix"/{include,lib/pkgconfig}
includes=(${ARES_DEPS_PREFIX:+-I"$ARES_DEPS_PREFIX/include"} -D PCRE2_CODE_UNIT_WIDTH=8)
libraries=(${ARES_DEPS_PREFIX:+-L"$ARES_DEPS_PREFIX/lib"})
missing=()
# Where the compiler finds a header: it knows its folders, the multi-arch one included.
find_header() {
    echo "#include <$1>" | "$compiler" "${includes[@]}" -E - 2>/dev/null |
        sed -nE "s|^# [0-9]+ \"(.*/${1//./\\.})\".*|\1|p" | sed -n 1p
}
while read -r library pc package header others; do
    [[ -n $library ]] || continue
    at=$(find_header "$header")
    so=$("$compiler" "${libraries[@]}" -print-file-name="lib$library.so")
    if [[ -z $at || ! -e $so ]]; then
        missing+=("$package")
        continue
    fi
    for name in $header $others; do
        install -D -m 644 "$(find_header "$name")" "$prefix/include/$name"
    done
    # The file under its soname, which programs ask for, and the name the linker looks for.
    real=$(realpath "$so")
    soname=$(objdump -p "$real" | sed -nE 's/^ *SONAME +//p')
    install -m 644 "$real" "$prefix/lib/$soname"
    [[ $soname == "lib$library.so" ]] || ln -sfn "$soname" "$prefix/lib/lib$library.so"
    # what it needs itself, but for the C library's own (libpng: zlib)
    for name in $(objdump -p "$real" | sed -nE 's/^ *NEEDED +//p' | grep -vE '^(libc|libm|ld-)'); do
        install -m 644 "$(realpath "$("$compiler" "${libraries[@]}" -print-file-name="$name")")" \
            "$prefix/lib/$name"
    done
    for folder in "$(dirname "$so")" /usr/lib/*-linux-gnu /usr/share; do
        file=$folder/pkgconfig/$pc.pc
        [[ -e $file ]] || continue
        sed -E -e '1i prefix=${pcfiledir}/../..' -e '/^prefix=/d' \
            -e 's|^exec_prefix=.*|exec_prefix=${prefix}|' \
            -e 's|^libdir=.*|libdir=${prefix}/lib|' \
            -e 's|^includedir=.*|includedir=${prefix}/include|' "$file" \
            >"$prefix/lib/pkgconfig/$pc.pc"
        break
    done
done <<<"$dependencies"
if ((${#missing[@]})); then
    echo "bundle_deps: not on this machine: ${missing[*]}; scripts/setup.sh installs them" >&2
    exit 1
fi
count=$(ls "$prefix"/lib/*.so | wc -l)
echo "bundle_deps: $prefix holds $count libraries, $(du -sh "$prefix" | cut -f1)"
