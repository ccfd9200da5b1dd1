# libares_cuda.so: the kernels, losses and groups of a CUDA device. The program never links it; it opens
# it when a device is cuda.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
file(GLOB algo_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/algo/cuda/*.cu)
file(GLOB dist_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/dist/cuda/*.cu)
if(ARES_CUDA STREQUAL "OFF" OR NOT sources)
    return()
endif()

include(CheckLanguage)
find_program(ARES_NVCC nvcc HINTS /usr/local/cuda/bin)
if(ARES_NVCC AND NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${ARES_NVCC})
endif()
set(CMAKE_CUDA_ARCHITECTURES OFF)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
    if(ARES_CUDA STREQUAL "ON")
        message(FATAL_ERROR "ARES_CUDA=ON, but no working nvcc was found; install the CUDA 13.0 "
            "toolkit or set CMAKE_CUDA_COMPILER")
    endif()
    message(STATUS "CUDA: OFF (no nvcc)")
    return()
endif()
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -lineinfo")
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
message(STATUS "CUDA: ${CUDAToolkit_VERSION}")

add_library(ares_cuda SHARED ${sources} ${algo_sources} ${dist_sources})
target_include_directories(ares_cuda PRIVATE ${CMAKE_SOURCE_DIR}/include
    ${CMAKE_SOURCE_DIR}/src/kernels/cuda ${CMAKE_SOURCE_DIR}/src/algo)
# f64 arithmetic as the C files are compiled: the same bits as on the CPU
set_source_files_properties(${algo_sources} PROPERTIES COMPILE_OPTIONS --fmad=false)
target_compile_definitions(ares_cuda PRIVATE _GNU_SOURCE)
# Machine code for Hopper; everything from Ampere on by just-in-time compilation. A kernel that
# spills registers to memory is refused: scripts/kernel_resources.sh lists what each one takes.
target_compile_options(ares_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-gencode=arch=compute_90a,code=sm_90a
    -gencode=arch=compute_80,code=compute_80 -Xptxas=-warn-spills -Xcompiler=-Wall,-Wextra
    $<$<BOOL:${ARES_WERROR}>:-Werror=all-warnings;-Xcompiler=-Werror>>)
target_link_libraries(ares_cuda PRIVATE CUDA::cudart CUDA::cublasLt)
# its toolkit is not on every machine's list of libraries, and CMake leaves the folder out by itself
set_target_properties(ares_cuda PROPERTIES INSTALL_RPATH "$ORIGIN;${CUDAToolkit_LIBRARY_DIR}")
