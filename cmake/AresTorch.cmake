# libares_torch.so: the shim over libtorch, and the aten table of kernels that stands on it. The
# program never links it; it opens it when a run asks for that table (trainer.kernels). Tests link it:
# libtorch is their oracle. What it needs of core is the program's, found when it is opened.
if(ARES_FUZZ OR NOT ARES_TORCH)
    return()
endif()
file(GLOB shim CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/torch/*.cpp)
file(GLOB table CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/aten/*.c)
add_library(ares_torch SHARED ${shim} ${table})
# The shim as one source: libtorch's headers, which take longer than all of it, are read once.
set_target_properties(ares_torch PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
set_source_files_properties(${table} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_include_directories(ares_torch PRIVATE ${CMAKE_SOURCE_DIR}/src/kernels/torch
    ${CMAKE_SOURCE_DIR}/src/kernels/aten)
target_link_libraries(ares_torch PRIVATE ares_flags ares_libtorch ${CMAKE_DL_LIBS})
# libtorch's wheel is GCC's: since clang 18 some templates have other names, which are not in it.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 18)
    target_compile_options(ares_torch PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fclang-abi-compat=17>)
endif()
if(TARGET ares-train)
    add_dependencies(ares-train ares_torch)
endif()
