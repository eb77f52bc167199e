# Tests of the substitute runtime, over the simulated driver where one is there.
set(tests_folder "${CMAKE_CURRENT_SOURCE_DIR}/../checks")
find_package(Threads REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

# From outside: exports, look-ups.
add_library(simcuda_recording_driver SHARED "${tests_folder}/recording_driver.c")
set_target_properties(simcuda_recording_driver PROPERTIES
  OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY "${output}/recording")
add_executable(simcuda_runtime_lookups "${tests_folder}/runtime_lookups.c")
set_target_properties(simcuda_runtime_lookups PROPERTIES
  OUTPUT_NAME runtime_lookups RUNTIME_OUTPUT_DIRECTORY "${output}/checks")
target_link_libraries(simcuda_runtime_lookups PRIVATE simcuda_runtime13)
add_executable(simcuda_runtime_end "${tests_folder}/runtime_end.c")
set_target_properties(simcuda_runtime_end PROPERTIES
  OUTPUT_NAME runtime_end RUNTIME_OUTPUT_DIRECTORY "${output}/checks")
target_link_libraries(simcuda_runtime_end PRIVATE simcuda_runtime_static)
add_test(NAME simcuda.runtime.outside
         COMMAND ${Python3_EXECUTABLE} "${tests_folder}/runtime_checks.py" "${CISTERN_CUDA_INCLUDE}" "${output}")
set(checked simcuda_runtime12 simcuda_runtime13 simcuda_runtime_static simcuda_recording_driver simcuda_runtime_lookups
            simcuda_runtime_end)
list(TRANSFORM checked REPLACE "(.+)" "$<TARGET_FILE:\\1>")
set_tests_properties(simcuda.runtime.outside PROPERTIES LABELS cuda TIMEOUT 60 REQUIRED_FILES "${checked}")

if(NOT TARGET simcuda_driver)
  return()
endif()

# A program over the simulated driver, found as programs find the real one.
function(simcuda_runtime_program name test runtime)
  target_link_libraries(${name} PRIVATE ${runtime} Threads::Threads ${CMAKE_DL_LIBS})
  add_dependencies(${name} simcuda_driver)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${output}/checks")
  add_test(NAME simcuda.runtime.${test} COMMAND ${name})
  set_tests_properties(simcuda.runtime.${test} PROPERTIES
    LABELS cuda TIMEOUT 120 ENVIRONMENT "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:simcuda_driver>")
endfunction()

foreach(kind shared static)
  add_executable(simcuda_runtime_test_${kind} "${tests_folder}/runtime_test.cpp")
  target_compile_options(simcuda_runtime_test_${kind} PRIVATE -g -O1)
  target_link_libraries(simcuda_runtime_test_${kind} PRIVATE cistern_warnings GTest::gtest_main)
endforeach()
simcuda_runtime_program(simcuda_runtime_test_shared shared simcuda_runtime13)
simcuda_runtime_program(simcuda_runtime_test_static static simcuda_runtime_static)
simcuda_runtime_program(simcuda_runtime_end end simcuda_runtime_static)

slow(simcuda.runtime.outside simcuda.runtime.shared simcuda.runtime.static simcuda.runtime.end)

# What nvcc makes: the object by nvcc, the program by the usual linker.
find_program(CISTERN_NVCC nvcc HINTS "${CISTERN_CUDA_INCLUDE}/../bin" ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin)
if(NOT CISTERN_NVCC)
  left_out(simcuda.nvcc "no nvcc: neither these tests nor those in cuda of programs that it builds")
  return()
endif()
foreach(stream legacy per-thread)
  set(object "${CMAKE_CURRENT_BINARY_DIR}/runtime_nvcc_${stream}.o")
  add_custom_command(
    OUTPUT "${object}"
    COMMAND "${CISTERN_NVCC}" -std=c++17 -O1 -cudart none -default-stream ${stream} -Xcompiler -fPIC
            -c "${tests_folder}/runtime_nvcc.cu" -o "${object}"
    DEPENDS "${tests_folder}/runtime_nvcc.cu" "${tests_folder}/../simcuda.h"
    COMMENT "Compiling a CUDA program for the ${stream} default stream" VERBATIM)
  set(object_${stream} "${object}")
endforeach()
foreach(variant shared=legacy=simcuda_runtime13 static=legacy=simcuda_runtime_static
                per_thread=per-thread=simcuda_runtime13 static_per_thread=per-thread=simcuda_runtime_static)
  string(REPLACE "=" ";" variant ${variant})
  list(GET variant 0 kind)
  list(GET variant 1 stream)
  list(GET variant 2 runtime)
  add_executable(simcuda_runtime_nvcc_${kind} "${object_${stream}}")
  set_target_properties(simcuda_runtime_nvcc_${kind} PROPERTIES LINKER_LANGUAGE CXX)
  simcuda_runtime_program(simcuda_runtime_nvcc_${kind} nvcc.${kind} ${runtime})
  slow(simcuda.runtime.nvcc.${kind})
endforeach()
