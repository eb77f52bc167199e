# One library by each compiler that is there, with split debug information of both versions, compressed too, and where
# there is a tool for it packed. The path of the file beside it is relative: tests copy both and damage the copy.
set(split_folder "${CMAKE_CURRENT_BINARY_DIR}/split")
set(split_source "${CMAKE_CURRENT_SOURCE_DIR}/support/split_library.cpp")
find_program(CISTERN_CLANG NAMES clang++ clang++-14)
# Neither packs what GCC writes of version 5: Debian 12's dwp crashes, its llvm-dwp may not end.
find_program(CISTERN_DWP_GNU dwp)
find_program(CISTERN_DWP_LLVM NAMES llvm-dwp llvm-dwp-14)
set(split_names "")
set(split_outputs "")

function(split_library name compiler dwp)
  set(folder "${split_folder}/${name}")
  set(compile "${compiler}" -O2 -fPIC -gsplit-dwarf "-fdebug-prefix-map=${folder}=." ${ARGN})
  set(pack "")
  if(dwp AND NOT CMAKE_CROSSCOMPILING)
    set(pack COMMAND "${dwp}" -e split.so -o packed.dwp || "${CMAKE_COMMAND}" -E rm -f packed.dwp)
  endif()
  file(MAKE_DIRECTORY "${folder}")
  add_custom_command(
    OUTPUT "${folder}/split.so"
    COMMAND ${compile} -DSPLIT_OTHER_BUILD -c "${split_source}" -o split.o
    COMMAND "${CMAKE_COMMAND}" -E rename split.dwo other.dwo
    COMMAND ${compile} -c "${split_source}" -o split.o
    COMMAND ${compile} -shared split.o -o split.so
    ${pack}
    DEPENDS "${split_source}" WORKING_DIRECTORY "${folder}" VERBATIM)
  set(split_names "${split_names} ${name}" PARENT_SCOPE)
  set(split_outputs ${split_outputs} "${folder}/split.so" PARENT_SCOPE)
endfunction()

split_library(own4 "${CMAKE_CXX_COMPILER}" "${CISTERN_DWP_GNU}" -gdwarf-4)
split_library(own5 "${CMAKE_CXX_COMPILER}" "" -gdwarf-5)
split_library(own5z "${CMAKE_CXX_COMPILER}" "" -gdwarf-5 -gz)
if(CISTERN_CLANG AND NOT CMAKE_CROSSCOMPILING)
  split_library(clang4 "${CISTERN_CLANG}" "${CISTERN_DWP_LLVM}" -gdwarf-4)
  split_library(clang5 "${CISTERN_CLANG}" "${CISTERN_DWP_LLVM}" -gdwarf-5)
endif()
add_custom_target(split_libraries DEPENDS ${split_outputs})
add_dependencies(cistern_stats_tests split_libraries)
set_source_files_properties("${PROJECT_SOURCE_DIR}/stats/split_units_test.cpp" PROPERTIES
  COMPILE_DEFINITIONS "SPLIT_FOLDER=\"${split_folder}\";SPLIT_NAMES=\"${split_names}\"")
