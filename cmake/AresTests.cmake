# test_<room> from tests/<room>/*.c and the runner, ares-golden from the golden_*.c of all rooms,
# and the ctests over them.
# intercept_tls_get_addr=0: the sanitizer guesses the size of a thread's dynamic storage from the bytes
# before it, and its leak check crashes where it guesses wrong
set(ARES_TEST_ENV
    "ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=0:intercept_tls_get_addr=0"
    "LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0"
    "UBSAN_OPTIONS=print_stacktrace=1")

# libares_cuda_emulated.so: what libares_cuda.so is, for machines without a card (tests/gpu/emulate).
# Sanitizers know no fibers.
option(ARES_EMULATOR "build the emulated card, where GCC is the compiler" ON)
if(ARES_EMULATOR AND NOT ARES_SANITIZE AND NOT ARES_FUZZ AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(emulate ${CMAKE_SOURCE_DIR}/tests/gpu/emulate)
    file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*/cuda/*.cu)
    set(sources ${emulate}/cards.cpp ${emulate}/fibers.cpp ${emulate}/memory.cpp ${emulate}/streams.cpp
        ${emulate}/cublas.cpp)
    foreach(kernel IN LISTS kernels) # as C++: in ares_cuda they are CUDA
        string(REGEX REPLACE ".*/([a-z]+)/cuda/(.*)\\.cu$" "\\1_\\2.cpp" name ${kernel})
        set(source ${CMAKE_BINARY_DIR}/generated/emulate/${name})
        file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${kernel}\"\n")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS -w) # nvcc warns
        list(APPEND sources ${source})
    endforeach()
    add_library(ares_cuda_emulated SHARED ${sources})
    target_include_directories(ares_cuda_emulated PRIVATE ${emulate}/include ${emulate}
        ${CMAKE_SOURCE_DIR}/src/kernels/cuda ${CMAKE_SOURCE_DIR}/src/algo)
    target_link_libraries(ares_cuda_emulated PRIVATE ares_flags)
    # fast enough for whole runs; it runs where it is built
    target_compile_options(ares_cuda_emulated PRIVATE -O2 -ftree-vectorize -U_FORTIFY_SOURCE
        $<$<NOT:$<BOOL:${CMAKE_CROSSCOMPILING}>>:-march=native>)
    target_compile_definitions(ares_cuda_emulated PRIVATE ARES_VOCAB_LOGITS=32768)
    target_link_options(ares_cuda_emulated PRIVATE -Wl,-Bsymbolic)
    # NCCL between emulated cards; links the library that the program has opened
    add_library(ares_nccl_fake SHARED ${emulate}/nccl.cpp)
    set_target_properties(ares_nccl_fake PROPERTIES OUTPUT_NAME nccl_fake)
    target_include_directories(ares_nccl_fake PRIVATE ${emulate}/include ${emulate})
    target_link_libraries(ares_nccl_fake PRIVATE ares_flags ares_cuda_emulated)
    target_link_options(ares_nccl_fake PRIVATE LINKER:--allow-shlib-undefined) # the program's
    set(ARES_EMULATED "ARES_CUDA_LIB=$<TARGET_FILE:ares_cuda_emulated>;ARES_REQUIRE_CUDA=1")
endif()

# One more than there are processors: many tests wait, for a signal, for a server, for other ranks.
include(ProcessorCount)
ProcessorCount(processors)
math(EXPR processors "${processors} + 1")
set(ARES_TEST_JOBS ${processors} CACHE STRING "tests of a program that run side by side")

# A ctest for the unlabelled tests of a program, and one for each label that its sources use.
# With sanitizers the tests of tests/<room>/left_out.txt are a ctest of their own (docs/testing.md).
function(ares_add_ctests room program sources)
    set(jobs --jobs ${ARES_TEST_JOBS})
    set(left_out tests/${room}/left_out.txt)
    if(EXISTS ${CMAKE_SOURCE_DIR}/${left_out})
        add_test(NAME check_left_out COMMAND ${program} --list --only ${left_out}
            WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}) # fails where it names a test that is not there
        set_tests_properties(check_left_out PROPERTIES LABELS source ENVIRONMENT "${ARES_TEST_ENV}")
        if(ARES_SANITIZE)
            add_test(NAME ${room}.left_out COMMAND ${program} --only ${left_out} ${jobs}
                WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
            set_tests_properties(${room}.left_out PROPERTIES ENVIRONMENT "${ARES_TEST_ENV}"
                LABELS left_out TIMEOUT 3600)
            list(APPEND jobs --except ${left_out})
        endif()
    endif()
    add_test(NAME ${room} COMMAND ${program} --without slow,mpi,gpu ${jobs}
        WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${room} PROPERTIES ENVIRONMENT "${ARES_TEST_ENV}" TIMEOUT 2400)
    set(text "")
    foreach(source IN LISTS sources)
        file(READ ${source} one)
        string(APPEND text "${one}")
    endforeach()
    set(without "")
    foreach(label slow mpi gpu) # a test with two labels runs once, under the first of them
        string(TOUPPER ${label} upper)
        if(text MATCHES "TEST_${upper}\\(|\"[a-z,]*${label}[a-z,]*\"\\)")
            add_test(NAME ${room}.${label} COMMAND ${program} --label ${label} ${without} ${jobs}
                WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
            set_tests_properties(${room}.${label} PROPERTIES ENVIRONMENT "${ARES_TEST_ENV}"
                LABELS ${label} TIMEOUT 2400)
            # libtorch knows no emulated card
            if(label STREQUAL "gpu" AND TARGET ares_cuda_emulated AND NOT room STREQUAL "torch")
                add_dependencies(${program} ares_cuda_emulated ares_nccl_fake)
                add_test(NAME ${room}.emulated COMMAND ${program} --label gpu ${without} ${jobs}
                    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
                set_tests_properties(${room}.emulated PROPERTIES TIMEOUT 2400
                    ENVIRONMENT "${ARES_TEST_ENV};${ARES_EMULATED}")
            endif()
        endif()
        list(APPEND seen ${label})
        list(JOIN seen "," joined)
        set(without --without ${joined})
    endforeach()
endfunction()

# Rooms that hold several subjects have a test program for each.
set(goldens "")
set(ARES_TEST_ROOMS core io config kernels torch dist text template data media model env reward grade algo
    rollout serve train cli)
set(room_of_io core)
set(room_of_torch kernels)
set(room_of_template text)
set(room_of_media data)
set(room_of_grade reward)
if(ARES_FUZZ) # the fuzz targets alone
    set(ARES_TEST_ROOMS "")
endif()
foreach(room IN LISTS ARES_TEST_ROOMS ITEMS e2e)
    set(of ${room})
    if(room_of_${room})
        set(of ${room_of_${room}})
    endif()
    file(GLOB golden CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${room}/golden_*.c)
    list(APPEND goldens ${golden})
    set_source_files_properties(${golden} PROPERTIES
        INCLUDE_DIRECTORIES ${CMAKE_SOURCE_DIR}/src/${of})
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${room}/*.c)
    list(FILTER sources EXCLUDE REGEX "/golden_[^/]*\\.c$")
    if(NOT sources OR NOT TARGET ares_core)
        continue()
    endif()
    set(oracle "")
    if(room MATCHES "^(torch|kernels|train)$") # libtorch is an oracle of these tests
        set(oracle ares_torch)
        if(NOT TARGET ares_torch)
            continue()
        endif()
    endif()
    add_executable(test_${room} ${sources} ${CMAKE_SOURCE_DIR}/tests/test.c)
    target_include_directories(test_${room} PRIVATE
        ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR}/src/${of})
    target_compile_definitions(test_${room} PRIVATE
        $<$<BOOL:${ARES_HAVE_SQLITE}>:ARES_HAVE_SQLITE>
        ARES_SOURCE_DIR="${CMAKE_SOURCE_DIR}" ARES_BINARY_DIR="${CMAKE_BINARY_DIR}")
    # the tests' own code, most of what is compiled; that of kernels computes what it compares with
    if(ARES_SANITIZE OR (CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT room STREQUAL "kernels"))
        target_compile_options(test_${room} PRIVATE -O1 -g1)
    endif()
    # the room and those to its left, so that a room can be tested while those to its right are
    # being rebuilt
    ares_link_rooms(test_${room} ${oracle} ${ARES_ROOMS_UP_TO_${of}})
    if(room MATCHES "^(torch|kernels)$" AND TARGET ares_torch) # libtorch without memory
        target_sources(test_${room} PRIVATE ${CMAKE_SOURCE_DIR}/tests/torch/scarce.cpp)
        target_link_libraries(test_${room} PRIVATE ares_libtorch)
    endif()
    if(room MATCHES "^(media|e2e)$" AND TARGET ares_video) # opened for files of videos
        add_dependencies(test_${room} ares_video)
    endif()
    if(room MATCHES "^(model|e2e)$" AND TARGET ares_torch) # opened for the aten table
        add_dependencies(test_${room} ares_torch)
    endif()
    ares_add_ctests(${room} test_${room} "${sources}")
endforeach()

# The longest begin first, so that one does not run alone in the end. Most of e2e waits, e2e.slow computes.
foreach(test IN ITEMS e2e.slow:4 e2e:3 e2e.emulated:2 e2e.left_out:2 e2e.mpi:1)
    string(REPLACE ":" ";" test ${test})
    list(GET test 0 name)
    list(GET test 1 cost)
    if(TEST ${name})
        set_tests_properties(${name} PROPERTIES COST ${cost} TIMEOUT 3600)
    endif()
endforeach()

# What the emulator refuses.
if(TARGET ares_cuda_emulated)
    add_executable(test_emulate ${emulate}/test_refusals.cpp ${emulate}/cards.cpp ${emulate}/fibers.cpp
        ${emulate}/memory.cpp ${emulate}/streams.cpp ${emulate}/cublas.cpp ${CMAKE_SOURCE_DIR}/tests/test.c)
    target_include_directories(test_emulate PRIVATE ${emulate}/include ${emulate}
        ${CMAKE_SOURCE_DIR}/tests)
    target_compile_definitions(test_emulate PRIVATE
        ARES_SOURCE_DIR="${CMAKE_SOURCE_DIR}" ARES_BINARY_DIR="${CMAKE_BINARY_DIR}")
    target_compile_options(test_emulate PRIVATE -U_FORTIFY_SOURCE)
    ares_link_rooms(test_emulate ${ARES_ROOMS_UP_TO_core})
    add_test(NAME emulate COMMAND test_emulate WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endif()

# A CUDA that computes nothing, before libtorch's (tests/kernels/test_wiring.c)
if(TARGET test_kernels AND TARGET ares_cuda AND NOT ARES_SANITIZE)
    set(libtorch ${CMAKE_SOURCE_DIR}/tests/gpu/libtorch)
    add_library(ares_fake_cuda SHARED ${libtorch}/runtime.c)
    target_include_directories(ares_fake_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
    add_library(ares_fake_driver SHARED ${libtorch}/driver.c)
    set_target_properties(ares_fake_driver PROPERTIES OUTPUT_NAME cuda SOVERSION 1
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake)
    foreach(library ares_fake_cuda ares_fake_driver)
        target_compile_options(${library} PRIVATE -std=c17 -Wall -Wextra -Wconversion -Werror
            -Wno-unused-parameter)
        add_dependencies(test_kernels ${library})
    endforeach()
endif()

# Tests that bound work by counting it (tests/work.h): objects of these folders of src come first in
# the program and count, so that nothing is taken from the libraries of their rooms.
function(ares_count_work test)
    set(sources "")
    foreach(folder IN LISTS ARGN)
        file(GLOB_RECURSE here CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.c)
        list(APPEND sources ${here})
        string(REGEX REPLACE "/.*" "" room ${folder})
        list(APPEND includes ${CMAKE_SOURCE_DIR}/src/${room})
    endforeach()
    add_library(${test}_counted OBJECT ${sources})
    target_include_directories(${test}_counted PRIVATE ${includes}
        ${CMAKE_BINARY_DIR}/generated/reward)
    target_compile_definitions(${test}_counted PRIVATE
        $<TARGET_PROPERTY:ares_core,COMPILE_DEFINITIONS>)
    target_link_libraries(${test}_counted PRIVATE ares_flags ares_deps)
    target_compile_options(${test}_counted PRIVATE -fsanitize-coverage=trace-pc)
    add_dependencies(${test}_counted ares_reward) # its generated tables
    target_sources(${test} PRIVATE $<TARGET_OBJECTS:${test}_counted>
        ${CMAKE_SOURCE_DIR}/tests/work.c)
    foreach(function memcpy memmove mempcpy memset memchr memrchr memmem memcmp strlen
            malloc calloc realloc)
        target_link_options(${test} PRIVATE LINKER:--wrap=${function})
    endforeach()
endfunction()
if(TARGET test_grade)
    ares_count_work(test_grade reward core)
endif()
if(TARGET test_reward)
    ares_count_work(test_reward reward core)
    foreach(function ares_now_s poll usleep) # tests/reward/clock.h
        target_link_options(test_reward PRIVATE LINKER:--wrap=${function})
    endforeach()
endif()
if(TARGET test_train)
    target_link_options(test_train PRIVATE LINKER:--wrap=read) # tests/train/test_summary.c
endif()
if(TARGET test_algo)
    ares_count_work(test_algo algo/control)
endif()

# LD_PRELOAD for programs that tests start: record writes down their calls that change files
# (tests/e2e/disk.h), memory refuses memory. Without ares_flags: a sanitizer's library would have to
# be loaded first.
if(TARGET test_e2e)
    foreach(name record memory)
        add_library(ares_test_${name} SHARED ${CMAKE_SOURCE_DIR}/tests/e2e/preload/${name}.c)
        target_compile_definitions(ares_test_${name} PRIVATE _GNU_SOURCE)
        target_compile_options(ares_test_${name} PRIVATE -Wall -Wextra -Wconversion -Werror)
        target_link_libraries(ares_test_${name} PRIVATE ${CMAKE_DL_LIBS})
        add_dependencies(test_e2e ares_test_${name})
    endforeach()
endif()

if(EXISTS ${CMAKE_SOURCE_DIR}/tests/golden_main.c AND goldens)
    add_executable(ares-golden ${CMAKE_SOURCE_DIR}/tests/golden_main.c ${goldens})
    target_include_directories(ares-golden PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    ares_link_rooms(ares-golden)
    if(TARGET ares_torch)
        add_dependencies(ares-golden ares_torch)
        target_compile_definitions(ares-golden PRIVATE ARES_HAVE_TORCH)
    endif()
    if(TARGET ares_video)
        add_dependencies(ares-golden ares_video)
    endif()
    # Functions that are still to come are listed in unknown.txt.
    file(GLOB cases CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/golden/*.json)
    set(allow "")
    if(EXISTS ${CMAKE_SOURCE_DIR}/tests/golden/unknown.txt)
        set(allow --allow-unknown tests/golden/unknown.txt)
    endif()
    if(cases)
        add_test(NAME golden COMMAND ares-golden ${cases} ${allow}
            WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
        set_tests_properties(golden PROPERTIES ENVIRONMENT "${ARES_TEST_ENV}" TIMEOUT 900)
        if(TARGET ares_cuda_emulated) # losses and KL by a card's functions
            add_dependencies(ares-golden ares_cuda_emulated)
            add_test(NAME golden.emulated COMMAND ares-golden ${cases} ${allow}
                WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
            set_tests_properties(golden.emulated PROPERTIES TIMEOUT 900
                ENVIRONMENT "${ARES_TEST_ENV};${ARES_EMULATED};ARES_TEST_DEVICE=cuda")
        endif()
    endif()
endif()

# Two steps of every algorithm on the emulator, each beside the same two on the CPU. Conversations take
# it minutes; e2e.emulated has short ones. The dry run of an hour on a card (.ci/run) finds the results.
if(TARGET ares_cuda_emulated AND TARGET ares-train)
    add_test(NAME runs.emulated COMMAND tests/gpu/run.sh --build ${CMAKE_BINARY_DIR}
        --jobs ${ARES_TEST_JOBS} runs WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(runs.emulated PROPERTIES TIMEOUT 2400
        ENVIRONMENT "${ARES_TEST_ENV};${ARES_EMULATED};FRESH=1")
    # some of them again where sums, exp and log are rounded otherwise, as a card's are
    add_test(NAME runs.foreign COMMAND tests/gpu/runs.sh ${CMAKE_BINARY_DIR}
        sft grpo-kl grpo-top-p grpo-two-passes ppo lora-head aepo loss-gspo kl_cov vapor ppo-bf16
        WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(runs.foreign PROPERTIES TIMEOUT 1200 ENVIRONMENT
        "${ARES_TEST_ENV};${ARES_EMULATED};ARES_EMULATE_ROUNDING=foreign;JOBS=${ARES_TEST_JOBS}")
endif()

# fuzz_<what> from tests/fuzz/fuzz_<what>.c: with ARES_FUZZ a libFuzzer program (clang), else it
# replays tests/fuzz/corpus/<what>.
set(openai_sources openai_request.c tools.c cut.c session.c records.c)
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
foreach(source IN LISTS sources)
    get_filename_component(program ${source} NAME_WE)
    string(REGEX REPLACE "^fuzz_" "" what ${program})
    if(ARES_FUZZ)
        add_executable(${program} ${source})
        if(what STREQUAL "http") # the room is left out, this file of it needs nothing
            target_sources(${program} PRIVATE ${CMAKE_SOURCE_DIR}/src/serve/http_parse.c)
        endif()
        target_link_options(${program} PRIVATE -fsanitize=fuzzer)
    else()
        add_executable(${program} ${source} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay.c)
        add_test(NAME fuzz.${what} COMMAND ${program} tests/fuzz/corpus/${what}
            WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
        set_tests_properties(fuzz.${what} PROPERTIES ENVIRONMENT "${ARES_TEST_ENV}" TIMEOUT 900)
    endif()
    target_include_directories(${program} PRIVATE ${CMAKE_SOURCE_DIR}/tests
        ${CMAKE_SOURCE_DIR}/src/data) # sizes before they are reduced
    if(ARES_FUZZ AND what STREQUAL "openai") # the pure part of a room that is left out
        list(TRANSFORM openai_sources PREPEND ${CMAKE_SOURCE_DIR}/src/serve/)
        target_sources(${program} PRIVATE ${openai_sources})
    endif()
    ares_link_rooms(${program})
endforeach()

# Label source: what says the same of every build.
foreach(check includes references)
    add_test(NAME check_${check} COMMAND ${CMAKE_SOURCE_DIR}/scripts/check_${check}.sh
        WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(check_${check} PROPERTIES LABELS source)
endforeach()
if(TARGET ares-train) # reads the libraries and objects that the build left
    add_test(NAME check_unused
        COMMAND ${CMAKE_SOURCE_DIR}/scripts/check_unused.sh ${CMAKE_BINARY_DIR}
        WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(check_unused PROPERTIES LABELS source)
endif()
add_test(NAME check_house COMMAND ${CMAKE_SOURCE_DIR}/scripts/house.py --check --self-test
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(check_house PROPERTIES LABELS source)
add_test(NAME check_format COMMAND ${CMAKE_SOURCE_DIR}/scripts/format.sh --check
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(check_format PROPERTIES LABELS source)
