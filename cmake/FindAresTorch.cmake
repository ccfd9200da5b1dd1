# ares_libtorch: headers and CPU libraries of a libtorch, taken from the first of
#   ARES_LIBTORCH (variable or environment), the project's .venv, the torch of the active Python.
# find_package(Torch) of a CUDA wheel fails without the CUDA toolkit; all we need is -ltorch_cpu
# -lc10 and where they lie. libtorch_cpu.so of a CUDA wheel needs libcudart and libcupti, which the
# wheels nvidia-cuda-* put beside torch.
set(ARES_TORCH_VERSION 2.11.0)
set(ARES_LIBTORCH "" CACHE PATH "a folder with libtorch's include/ and lib/")

set(candidates "")
if(ARES_LIBTORCH)
    set(candidates ${ARES_LIBTORCH})
else()
    file(GLOB candidates ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
    find_program(ARES_PYTHON NAMES python3 python)
    if(ARES_PYTHON AND NOT candidates)
        # looks for torch's folder without importing it, which would take seconds
        string(CONCAT where "import importlib.util as u; s = u.find_spec('torch'); "
            "print(s.submodule_search_locations[0] if s else '')")
        execute_process(COMMAND ${ARES_PYTHON} -c "${where}"
            OUTPUT_VARIABLE candidates OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
endif()

set(ARES_TORCH_DIR "")
foreach(dir IN LISTS candidates)
    if(EXISTS ${dir}/include/ATen/ATen.h AND EXISTS ${dir}/lib/libtorch_cpu.so)
        set(ARES_TORCH_DIR ${dir})
        break()
    endif()
endforeach()

file(GLOB users CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/torch/*.cpp)
if(NOT ARES_TORCH_DIR AND NOT users)
    return()
elseif(NOT ARES_TORCH_DIR)
    message(FATAL_ERROR "libtorch ${ARES_TORCH_VERSION} not found (looked in: "
        "ARES_LIBTORCH='${ARES_LIBTORCH}', .venv, the active Python's torch); run scripts/setup.sh"
        ", or name a folder with its include/ and lib/ in ARES_LIBTORCH")
endif()

set(version "unknown")
if(EXISTS ${ARES_TORCH_DIR}/version.py)
    file(STRINGS ${ARES_TORCH_DIR}/version.py version REGEX "^__version__ = ")
elseif(EXISTS ${ARES_TORCH_DIR}/build-version)
    file(STRINGS ${ARES_TORCH_DIR}/build-version version)
endif()
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" version "${version}")
message(STATUS "libtorch ${version}: ${ARES_TORCH_DIR}")
if(NOT version STREQUAL ARES_TORCH_VERSION)
    message(WARNING "libtorch is ${version}; "
        "this tree is written for and tested with ${ARES_TORCH_VERSION}")
endif()

file(GLOB ARES_TORCH_NVIDIA ${ARES_TORCH_DIR}/../nvidia/*/lib)
add_library(ares_libtorch INTERFACE)
target_include_directories(ares_libtorch SYSTEM INTERFACE
    ${ARES_TORCH_DIR}/include ${ARES_TORCH_DIR}/include/torch/csrc/api/include)
target_link_directories(ares_libtorch INTERFACE ${ARES_TORCH_DIR}/lib)
target_link_options(ares_libtorch INTERFACE LINKER:-rpath,${ARES_TORCH_DIR}/lib)
foreach(dir IN LISTS ARES_TORCH_NVIDIA)
    target_link_options(ares_libtorch INTERFACE LINKER:-rpath,${dir} LINKER:-rpath-link,${dir})
endforeach()
target_link_libraries(ares_libtorch INTERFACE torch_cpu c10)
set(AresTorch_FOUND TRUE)
