# bench_<name> from benchmarks/<name>.c, made only when asked for (benchmarks/run.sh asks); all of
# them by the target benchmarks.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/benchmarks/*.c)
if(ARES_FUZZ)
    set(sources "")
endif()
add_custom_target(benchmarks)
foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    add_executable(bench_${name} EXCLUDE_FROM_ALL ${source})
    ares_link_rooms(bench_${name})
    add_dependencies(benchmarks bench_${name})
    # parts of a training step (roles/) are private to their room
    target_include_directories(bench_${name} PRIVATE ${CMAKE_SOURCE_DIR}/src/train)
endforeach()
