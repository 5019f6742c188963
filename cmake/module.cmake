# exode_module(NAME DEPS <layers> LIBS <external> SOURCES <files>)
# One static library per layer; DEPS are exactly the layers of tools/layers.txt it may see.
function(exode_module name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS;SOURCES" ${ARGN})
  list(TRANSFORM ARG_DEPS PREPEND exode_)
  if(NOT ARG_SOURCES)
    add_library(exode_${name} INTERFACE)
    target_include_directories(exode_${name} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(exode_${name} INTERFACE ${ARG_DEPS})
    return()
  endif()
  add_library(exode_${name} STATIC ${ARG_SOURCES})
  target_include_directories(exode_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(exode_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_LIBS} exode_warnings)
endfunction()

# exode_test(NAME DEPS <layers> LIBS <external> LABELS <labels> SOURCES <files>)
# A GoogleTest program and one ctest entry. Unless its label is golden, e2e or slow it also gets
# the label `sanitized`: those run in the sanitizer preset, where whole models take too long.
add_custom_target(exode_sanitized_tests)
function(exode_test name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS;LABELS;SOURCES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  list(TRANSFORM ARG_DEPS PREPEND exode_)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} ${ARG_LIBS} GTest::gtest GTest::gmock
                        GTest::gtest_main exode_warnings)
  target_compile_definitions(${name} PRIVATE EXODE_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             EXODE_BINARY_DIR="${CMAKE_BINARY_DIR}"
                             EXODE_SHARED_DIR="${EXODE_SHARED_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  if(NOT "${ARG_LABELS}" MATCHES "golden|e2e|slow")
    list(APPEND ARG_LABELS sanitized)
    add_dependencies(exode_sanitized_tests ${name})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 600)
endfunction()

# exode_fuzz(NAME <layers…>): libFuzzer target fuzz_NAME from fuzz_NAME.cc of this folder.
function(exode_fuzz name)
  set(target fuzz_${name})
  add_executable(${target} ${target}.cc)
  list(TRANSFORM ARGN PREPEND exode_ OUTPUT_VARIABLE libraries)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE ${libraries} exode_warnings)
  target_link_options(${target} PRIVATE -fsanitize=fuzzer)
endfunction()
