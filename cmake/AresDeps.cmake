# ares_deps: the C libraries, from ARES_DEPS_PREFIX or the system. MPI and libtorch as imported
# targets of their own. Everything that is missing is named in one message.

# A value in the environment fills an empty cache entry, also after a first try without it.
foreach(name ARES_DEPS_PREFIX ARES_LIBTORCH)
    if(NOT ${name} AND DEFINED ENV{${name}})
        set(${name} $ENV{${name}} CACHE PATH "" FORCE)
    endif()
endforeach()

add_library(ares_deps INTERFACE)
set(missing "")

function(ares_find name header library package)
    find_path(${name}_INCLUDE ${header} HINTS ${ARES_DEPS_PREFIX}/include)
    find_library(${name}_LIBRARY ${library} HINTS ${ARES_DEPS_PREFIX}/lib)
    mark_as_advanced(${name}_INCLUDE ${name}_LIBRARY)
    if(NOT ${name}_INCLUDE OR NOT ${name}_LIBRARY)
        set(missing ${missing} ${package} PARENT_SCOPE)
        return()
    endif()
    target_link_libraries(ares_deps INTERFACE ${${name}_LIBRARY})
    # as a SYSTEM folder it would hide the compiler's own headers
    if(NOT ${name}_INCLUDE STREQUAL "/usr/include")
        target_include_directories(ares_deps SYSTEM INTERFACE ${${name}_INCLUDE})
    endif()
endfunction()

ares_find(YAML yaml.h yaml libyaml-dev)
ares_find(CJSON cjson/cJSON.h cjson libcjson-dev)
ares_find(PCRE2 pcre2.h pcre2-8 libpcre2-dev)
ares_find(UTF8PROC utf8proc.h utf8proc libutf8proc-dev)
ares_find(MPFR mpfr.h mpfr libmpfr-dev) # before what it needs
ares_find(GMP gmp.h gmp libgmp-dev)
ares_find(PNG png.h png libpng-dev)
ares_find(JPEG jpeglib.h jpeg libjpeg-dev)
ares_find(WEBP webp/decode.h webp libwebp-dev)
if(missing)
    list(JOIN missing " " missing)
    message(FATAL_ERROR "C libraries not found; install ${missing} (scripts/setup.sh does), "
        "or name a prefix made by scripts/bundle_deps.sh in ARES_DEPS_PREFIX "
        "(now '${ARES_DEPS_PREFIX}')")
endif()
target_compile_definitions(ares_deps INTERFACE PCRE2_CODE_UNIT_WIDTH=8)

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
target_link_libraries(ares_deps INTERFACE Threads::Threads m ${CMAKE_DL_LIBS})

set(ARES_HAVE_MPI OFF)
if(NOT ARES_MPI STREQUAL "OFF")
    find_package(MPI QUIET COMPONENTS C)
    if(MPI_C_FOUND)
        set(ARES_HAVE_MPI ON)
    elseif(ARES_MPI STREQUAL "ON")
        message(FATAL_ERROR "ARES_MPI=ON, but no MPI for C was found; "
            "install libopenmpi-dev openmpi-bin")
    endif()
endif()
message(STATUS "MPI: ${ARES_HAVE_MPI}")

# environments behind a WebSocket (type: openenv)
set(ARES_HAVE_WEBSOCKETS OFF)
if(NOT ARES_WEBSOCKETS STREQUAL "OFF")
    ares_find(WEBSOCKETS libwebsockets.h websockets libwebsockets-dev)
    if(NOT missing)
        set(ARES_HAVE_WEBSOCKETS ON)
    elseif(ARES_WEBSOCKETS STREQUAL "ON")
        message(FATAL_ERROR "ARES_WEBSOCKETS=ON, but no libwebsockets was found; "
            "install libwebsockets-dev")
    endif()
endif()
message(STATUS "libwebsockets: ${ARES_HAVE_WEBSOCKETS}")

# rows in *.jsonl.gz and *.jsonl.zst
set(ARES_HAVE_COMPRESSED OFF)
if(NOT ARES_COMPRESSED STREQUAL "OFF")
    set(missing "")
    ares_find(ZLIB zlib.h z zlib1g-dev)
    ares_find(ZSTD zstd.h zstd libzstd-dev)
    if(NOT missing)
        set(ARES_HAVE_COMPRESSED ON)
    elseif(ARES_COMPRESSED STREQUAL "ON")
        list(JOIN missing " " missing)
        message(FATAL_ERROR "ARES_COMPRESSED=ON, but zlib or libzstd was not found; "
            "install ${missing}")
    endif()
endif()
message(STATUS "zlib and libzstd: ${ARES_HAVE_COMPRESSED}")

# trackers that are SQLite files: trainer.logger trackio, mlflow
set(ARES_HAVE_SQLITE OFF)
if(NOT ARES_SQLITE STREQUAL "OFF")
    set(missing "")
    ares_find(SQLITE sqlite3.h sqlite3 libsqlite3-dev)
    if(NOT missing)
        set(ARES_HAVE_SQLITE ON)
    elseif(ARES_SQLITE STREQUAL "ON")
        message(FATAL_ERROR "ARES_SQLITE=ON, but no libsqlite3 was found; install libsqlite3-dev")
    endif()
endif()
message(STATUS "libsqlite3: ${ARES_HAVE_SQLITE}")

if(ARES_TORCH)
    find_package(AresTorch)
endif()
