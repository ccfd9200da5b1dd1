# test_<room> from tests/<room>/*.c and the runner, ares-golden from the golden_*.c of all rooms, and the ctests over them.
set(ARES_TEST_ENV
    "ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=0"
    "LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0"
    "UBSAN_OPTIONS=print_stacktrace=1")

# A ctest for the unlabelled tests of a program, and one for each label that its sources use.
function(ares_add_ctests room program sources)
    add_test(NAME ${room} COMMAND ${program} --without slow,mpi,gpu WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${room} PROPERTIES ENVIRONMENT "${ARES_TEST_ENV}" TIMEOUT 1500)
    set(text "")
    foreach(source IN LISTS sources)
        file(READ ${source} one)
        string(APPEND text "${one}")
    endforeach()
    set(without "")
    foreach(label slow mpi gpu) # a test with two labels runs once, under the first of them
        string(TOUPPER ${label} upper)
        if(text MATCHES "TEST_${upper}\\(|\"[a-z,]*${label}[a-z,]*\"\\)")
            add_test(NAME ${room}.${label} COMMAND ${program} --label ${label} ${without} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
            set_tests_properties(${room}.${label} PROPERTIES ENVIRONMENT "${ARES_TEST_ENV}" LABELS ${label} TIMEOUT 2400)
        endif()
        list(APPEND seen ${label})
        list(JOIN seen "," joined)
        set(without --without ${joined})
    endforeach()
endfunction()

set(goldens "")
foreach(room IN LISTS ARES_ROOMS ITEMS e2e)
    file(GLOB golden CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${room}/golden_*.c)
    list(APPEND goldens ${golden})
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${room}/*.c)
    list(FILTER sources EXCLUDE REGEX "/golden_[^/]*\\.c$")
    if(NOT sources OR NOT TARGET ares_core)
        continue()
    endif()
    add_executable(test_${room} ${sources} ${CMAKE_SOURCE_DIR}/tests/test.c)
    target_include_directories(test_${room} PRIVATE ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR}/src/${room})
    target_compile_definitions(test_${room} PRIVATE
        ARES_SOURCE_DIR="${CMAKE_SOURCE_DIR}" ARES_BINARY_DIR="${CMAKE_BINARY_DIR}")
    ares_link_rooms(test_${room})
    ares_add_ctests(${room} test_${room} "${sources}")
endforeach()

if(EXISTS ${CMAKE_SOURCE_DIR}/tests/golden_main.c AND goldens)
    add_executable(ares-golden ${CMAKE_SOURCE_DIR}/tests/golden_main.c ${goldens})
    target_include_directories(ares-golden PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    ares_link_rooms(ares-golden)
endif()

add_test(NAME check_includes COMMAND ${CMAKE_SOURCE_DIR}/scripts/check_includes.sh WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
