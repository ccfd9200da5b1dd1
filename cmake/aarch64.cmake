# A toolchain file: cross-compiles for aarch64 Linux, as static programs that qemu-user runs
# (scripts/aarch64.sh). ARES_DEPS_PREFIX holds that machine's libraries.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH ${ARES_DEPS_PREFIX})
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
# of libpng, which a static program needs whole
set(CMAKE_C_STANDARD_LIBRARIES_INIT ${ARES_DEPS_PREFIX}/lib/libz.a)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ARES_DEPS_PREFIX)
