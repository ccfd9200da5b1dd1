# Where there is ccache, what was compiled before is not compiled again, in another folder either.
find_program(ARES_CCACHE ccache)
if(ARES_CCACHE AND NOT DEFINED CMAKE_C_COMPILER_LAUNCHER AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
        CCACHE_NOHASHDIR=1 ${ARES_CCACHE})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
endif()

# ares_flags: the warnings, floating point rules and sanitizers of all our code.
add_library(ares_flags INTERFACE)
target_compile_definitions(ares_flags INTERFACE _GNU_SOURCE)
target_include_directories(ares_flags INTERFACE ${CMAKE_SOURCE_DIR}/include)
# FMA only where written: the same bits from every compiler and instruction set.
# Warnings are errors with GCC and clang; versions that nobody has tried (docs/cards.md names those that
# were) may warn of more: -DARES_WERROR=OFF.
target_compile_options(ares_flags INTERFACE -ffp-contract=off -fno-math-errno -Wall -Wextra
    $<$<COMPILE_LANGUAGE:C>:-Wconversion;-Wno-sign-conversion;-Wpointer-arith>
    $<$<COMPILE_LANG_AND_ID:C,Clang>:-Wno-enum-float-conversion> # numbers have names by enum
    $<$<AND:$<BOOL:${ARES_WERROR}>,$<C_COMPILER_ID:GNU,Clang>>:-Werror>)

# GCC 12 for aarch64 ends with an internal error where it vectorises a largest number by fmax.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$" AND CMAKE_C_COMPILER_ID STREQUAL "GNU"
   AND CMAKE_C_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(ares_flags INTERFACE -fno-builtin-fmax -fno-builtin-fmin)
endif()

if(ARES_SANITIZE)
    target_compile_options(ares_flags INTERFACE -fsanitize=${ARES_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all)
    target_link_options(ares_flags INTERFACE -fsanitize=${ARES_SANITIZE})
    set(CMAKE_C_FLAGS_RELEASE "-O1 -g1") # half the compiler's time; kernels have flags of their own
endif()
if(ARES_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "ARES_FUZZ=ON needs clang; cmake --preset fuzz chooses it")
    endif()
    target_compile_options(ares_flags INTERFACE -fsanitize=fuzzer-no-link)
    # What a fuzzer does not reach may call rooms that are left out; such a call would crash.
    target_link_options(ares_flags INTERFACE LINKER:--unresolved-symbols=ignore-all,-z,lazy)
endif()
