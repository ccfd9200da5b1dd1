# bench_<name> from benchmarks/<name>.c. A build without sanitizers compiles them, so that none of
# them falls behind the headers it includes; they are linked only when asked for (benchmarks/run.sh
# asks), all of them by the target benchmarks.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/benchmarks/*.c)
if(ARES_FUZZ OR ARES_SANITIZE) # nobody measures there
    set(sources "")
endif()
add_custom_target(benchmarks)
foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    add_library(bench_${name}_object OBJECT ${source})
    target_link_libraries(bench_${name}_object PRIVATE ares_flags ${ARES_ROOM_LIBRARIES} ares_deps)
    # parts of a training step (roles/) and of reading a picture are private to their rooms
    target_include_directories(bench_${name}_object PRIVATE ${CMAKE_SOURCE_DIR}/src/train
        ${CMAKE_SOURCE_DIR}/src/data)
    add_executable(bench_${name} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:bench_${name}_object>)
    ares_link_rooms(bench_${name})
    add_dependencies(benchmarks bench_${name})
endforeach()
