# ares_<room> from src/<room>, each linked against the rooms to its left; then ares-train.
# src/kernels/torch and src/kernels/aten are a library of their own (AresTorch.cmake).
set(ARES_ROOM_LIBRARIES "") # those that exist, rightmost first: the order a linker wants

# The vectorised kernels: one source, a build for each instruction set, chosen at run time. Only these files are
# compiled with -m flags.
function(ares_kernel_isas room)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cpu/*.c)
    if(NOT sources)
        return()
    endif()
    set(optimise -O3) # in a debug build too
    if(ARES_SANITIZE) # watching the scope of every lane's temporaries triples the time to compile
        set(optimise -O2 -g1 -fno-sanitize-address-use-after-scope)
    endif()
    set(isas plain)
    set(flags_plain "")
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU") # for sixteen lanes in a row: half the time
        set(flags_plain "SHELL:--param sccvn-max-alias-queries-per-access=100")
    endif()
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
        list(APPEND isas avx2 avx512 avx512bf16)
        set(flags_avx2 -mavx2 -mfma -mf16c)
        set(flags_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512cd -mavx2 -mfma -mf16c)
        set(flags_avx512bf16 ${flags_avx512} -mavx512bf16)
    elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
        list(APPEND isas neon) # part of every aarch64
    endif()
    foreach(isa IN LISTS isas)
        string(TOUPPER ${isa} upper)
        add_library(ares_kernels_${isa} OBJECT ${sources})
        target_compile_definitions(ares_kernels_${isa} PRIVATE ARES_ISA=${isa} ARES_ISA_${upper})
        if(isa STREQUAL "avx512bf16") # all of avx512, and one instruction for bf16 arithmetic
            target_compile_definitions(ares_kernels_${isa} PRIVATE ARES_ISA_AVX512)
        endif()
        target_compile_options(ares_kernels_${isa} PRIVATE ${flags_${isa}} ${optimise})
        target_include_directories(ares_kernels_${isa} PRIVATE ${CMAKE_SOURCE_DIR}/src/kernels)
        target_link_libraries(ares_kernels_${isa} PRIVATE ares_flags)
        target_sources(${room} PRIVATE $<TARGET_OBJECTS:ares_kernels_${isa}>)
    endforeach()
endfunction()

# The word lists of the instruction-following checks, written as C by a program that runs while the
# build does.
function(ares_instruction_tables room)
    set(generated ${CMAKE_BINARY_DIR}/generated/reward)
    set(json ${CMAKE_SOURCE_DIR}/src/reward/ifeval/tables.json)
    add_executable(instruction_tables ${CMAKE_SOURCE_DIR}/tools/instruction_tables.c)
    target_include_directories(instruction_tables PRIVATE
        ${CMAKE_SOURCE_DIR}/src/reward/ifeval ${CMAKE_SOURCE_DIR}/include)
    target_link_libraries(instruction_tables PRIVATE ${CJSON_LIBRARY})
    if(NOT CJSON_INCLUDE STREQUAL "/usr/include")
        target_include_directories(instruction_tables SYSTEM PRIVATE ${CJSON_INCLUDE})
    endif()
    file(MAKE_DIRECTORY ${generated})
    add_custom_command(OUTPUT ${generated}/tables_data.h
        COMMAND instruction_tables ${json} ${generated}/tables_data.h
        DEPENDS instruction_tables ${json} VERBATIM)
    target_sources(${room} PRIVATE ${generated}/tables_data.h)
    target_include_directories(${room} PRIVATE ${generated})
endfunction()

# commit.h, which run.json takes the commit of the sources from: "" where they are no checkout. It is
# made again when the checkout's HEAD moves.
function(ares_commit room)
    set(header ${CMAKE_BINARY_DIR}/generated/train/commit.h)
    execute_process(COMMAND git rev-parse --path-format=absolute --git-path logs/HEAD
        WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE moves OUTPUT_STRIP_TRAILING_WHITESPACE
        RESULT_VARIABLE failed ERROR_QUIET)
    if(failed OR NOT EXISTS "${moves}")
        file(GENERATE OUTPUT ${header} CONTENT "#define ARES_COMMIT \"\"\n")
    else()
        add_custom_command(OUTPUT ${header} COMMAND sh -c
            "echo \"#define ARES_COMMIT \\\"$(git rev-parse HEAD)\\\"\" > '${header}'"
            WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} DEPENDS ${moves} VERBATIM)
    endif()
    target_sources(${room} PRIVATE ${header})
    target_include_directories(${room} PRIVATE ${CMAKE_BINARY_DIR}/generated/train)
endfunction()

# The script and the style of the report, as arrays of bytes.
function(ares_page_bytes room)
    set(generated ${CMAKE_BINARY_DIR}/generated/look)
    file(MAKE_DIRECTORY ${generated})
    foreach(kind js css)
        set(from ${CMAKE_SOURCE_DIR}/src/train/look/page.${kind})
        add_custom_command(OUTPUT ${generated}/page_${kind}.h
            COMMAND ${CMAKE_COMMAND} -DIN=${from} -DOUT=${generated}/page_${kind}.h
                -DNAME=page_${kind} -P ${CMAKE_SOURCE_DIR}/cmake/AresBytes.cmake
            DEPENDS ${from} ${CMAKE_SOURCE_DIR}/cmake/AresBytes.cmake VERBATIM)
        target_sources(${room} PRIVATE ${generated}/page_${kind}.h)
    endforeach()
    target_include_directories(${room} PRIVATE ${generated})
endfunction()

foreach(room IN LISTS ARES_ROOMS)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${room}/*.c)
    if(room STREQUAL "kernels")
        list(FILTER sources EXCLUDE REGEX "/src/kernels/(cpu|aten|torch)/")
        if(ARES_FUZZ)
            list(FILTER sources INCLUDE REGEX "/(scalar_math|host).c$")
        endif()
    endif()
    if(room STREQUAL "data") # libares_video.so (AresVideo.cmake)
        list(FILTER sources EXCLUDE REGEX "/src/data/media/ffmpeg.c$")
    endif()
    if(NOT sources)
        set(ARES_ROOMS_UP_TO_${room} ${ARES_ROOM_LIBRARIES})
        continue()
    endif()
    add_library(ares_${room} STATIC ${sources})
    target_include_directories(ares_${room} PRIVATE ${CMAKE_SOURCE_DIR}/src/${room})
    target_link_libraries(ares_${room} PUBLIC ares_flags ${ARES_ROOM_LIBRARIES} ares_deps)
    if(room STREQUAL "kernels" AND NOT ARES_FUZZ)
        ares_kernel_isas(ares_kernels)
    elseif(room STREQUAL "reward")
        ares_instruction_tables(ares_reward)
    elseif(room STREQUAL "core")
        target_compile_definitions(ares_core PRIVATE
            $<$<BOOL:${ARES_HAVE_COMPRESSED}>:ARES_HAVE_COMPRESSED>
            $<$<BOOL:${ARES_HAVE_SQLITE}>:ARES_HAVE_SQLITE>)
    elseif(room MATCHES "^(env|serve)$" AND ARES_HAVE_WEBSOCKETS)
        target_compile_definitions(ares_${room} PRIVATE ARES_HAVE_WEBSOCKETS)
    elseif(room MATCHES "^(train|cli)$")
        target_compile_definitions(ares_${room} PRIVATE ARES_VERSION="${PROJECT_VERSION}")
        foreach(part MPI WEBSOCKETS COMPRESSED SQLITE) # doctor says what is built
            if(room STREQUAL "cli" AND ARES_HAVE_${part})
                target_compile_definitions(ares_cli PRIVATE ARES_HAVE_${part})
            endif()
        endforeach()
        if(room STREQUAL "train")
            ares_commit(ares_train)
        endif()
    elseif(room STREQUAL "dist" AND ARES_HAVE_MPI)
        target_compile_definitions(ares_dist PRIVATE ARES_HAVE_MPI)
        target_link_libraries(ares_dist PRIVATE MPI::MPI_C)
    endif()
    if(room STREQUAL "train")
        ares_page_bytes(ares_train)
        # what exactness.json says of the build, and nothing is made of
        string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
        string(STRIP "${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_${type}} -ffp-contract=off" flags)
        string(REPLACE "\"" "" flags "${flags}")
        set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/train/run/exactness.c PROPERTY COMPILE_DEFINITIONS
            ARES_BUILD_FLAGS="${flags}"
            ARES_BUILD_COMPILER="${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}")
    endif()
    list(PREPEND ARES_ROOM_LIBRARIES ares_${room})
    set(ARES_ROOMS_UP_TO_${room} ${ARES_ROOM_LIBRARIES})
endforeach()

# Links the rooms given, or every room; --as-needed leaves out the shared libraries that nothing in
# the program calls; -rdynamic lets the libraries that it opens find its functions.
function(ares_link_rooms target)
    target_link_options(${target} PRIVATE LINKER:--as-needed -rdynamic)
    set(rooms ${ARGN})
    if(NOT rooms)
        set(rooms ${ARES_ROOM_LIBRARIES})
    endif()
    target_link_libraries(${target} PRIVATE ares_flags ${rooms} ares_deps)
endfunction()

if(EXISTS ${CMAKE_SOURCE_DIR}/src/main.c AND NOT ARES_FUZZ)
    add_executable(ares-train src/main.c)
    ares_link_rooms(ares-train)
    target_compile_definitions(ares-train PRIVATE ARES_VERSION="${PROJECT_VERSION}")
endif()
