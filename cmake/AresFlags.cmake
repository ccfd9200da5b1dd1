# ares_flags: the warnings, floating point rules and sanitizers of all our code.
include(CheckCCompilerFlag)

add_library(ares_flags INTERFACE)
target_compile_definitions(ares_flags INTERFACE _GNU_SOURCE)
target_include_directories(ares_flags INTERFACE ${CMAKE_SOURCE_DIR}/include)
# FMA only where written: the same bits from every compiler and instruction set.
target_compile_options(ares_flags INTERFACE -ffp-contract=off -fno-math-errno -Wall -Wextra -Werror
    $<$<COMPILE_LANGUAGE:C>:-Wconversion;-Wno-sign-conversion>)

if(ARES_SANITIZE)
    target_compile_options(ares_flags INTERFACE -fsanitize=${ARES_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all)
    target_link_options(ares_flags INTERFACE -fsanitize=${ARES_SANITIZE})
    set(CMAKE_C_FLAGS_RELEASE "-O2 -g")
endif()
