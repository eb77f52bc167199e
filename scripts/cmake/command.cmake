# The command `cistern`, which runs programs under the shared object and shows their reports. Nothing of it is in the
# library. It uses CLI11 and nlohmann-json (headers only) and zlib, which is linked in: it runs where the library does.
foreach(header CLI/CLI.hpp nlohmann/json.hpp)
  get_filename_component(folder ${header} DIRECTORY)
  find_path(CISTERN_${folder}_INCLUDE ${header} NO_CMAKE_FIND_ROOT_PATH PATHS /usr/include /usr/local/include REQUIRED)
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/command_headers")
  file(CREATE_LINK "${CISTERN_${folder}_INCLUDE}/${folder}" "${PROJECT_BINARY_DIR}/command_headers/${folder}" SYMBOLIC)
endforeach()

foreach(header zlib.h zconf.h)
  find_path(CISTERN_${header}_INCLUDE ${header} NO_CMAKE_FIND_ROOT_PATH PATHS /usr/include /usr/local/include REQUIRED)
  file(CREATE_LINK "${CISTERN_${header}_INCLUDE}/${header}" "${PROJECT_BINARY_DIR}/command_headers/${header}" SYMBOLIC)
endforeach()
execute_process(
  COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=libz.a
  OUTPUT_VARIABLE zlib_archive OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT IS_ABSOLUTE "${zlib_archive}")
  string(CONCAT zlib_archive "${PROJECT_SOURCE_DIR}/build/c-library/${CMAKE_SYSTEM_PROCESSOR}/usr/lib/"
                "${CMAKE_LIBRARY_ARCHITECTURE}/libz.a")
endif()

add_library(cistern_command_flags INTERFACE)
target_include_directories(cistern_command_flags INTERFACE "${PROJECT_SOURCE_DIR}")
target_include_directories(cistern_command_flags SYSTEM INTERFACE "${PROJECT_BINARY_DIR}/command_headers")
target_compile_definitions(cistern_command_flags INTERFACE "CISTERN_VERSION=\"${PROJECT_VERSION}\"")
target_link_libraries(cistern_command_flags INTERFACE cistern_warnings cistern_header_only)

file(GLOB format_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/stats/formats/*.cpp")
set(tests_formats ${format_sources})
list(FILTER format_sources EXCLUDE REGEX "_test\\.cpp$")
list(FILTER tests_formats INCLUDE REGEX "_test\\.cpp$")
# Numbers and stacks are written as the library's own reports have them.
list(APPEND format_sources stats/format.cpp stats/scripts.cpp stats/sink.cpp stats/report/text_parts.cpp
  pool/base/internal_memory.cpp pool/base/page_size.cpp pool/base/process_start.cpp)
add_library(cistern_formats STATIC ${format_sources})
target_link_libraries(cistern_formats PUBLIC cistern_command_flags "${zlib_archive}")

file(GLOB command_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/shim/command/*.cpp")
list(FILTER command_sources EXCLUDE REGEX "_test\\.cpp$")
add_executable(cistern_command ${command_sources})
set_target_properties(cistern_command PROPERTIES
  OUTPUT_NAME cistern RUNTIME_OUTPUT_DIRECTORY "$<1:${PROJECT_BINARY_DIR}>")
target_link_libraries(cistern_command PRIVATE cistern_formats)
if(NOT CISTERN_SANITIZE)
  target_link_options(cistern_command PRIVATE -static-libstdc++ -static-libgcc -Wl,--as-needed -Wl,--gc-sections)
  target_link_libraries(cistern_command PRIVATE pthread)  # older C libraries have their functions for threads there
  cistern_old_c_library(cistern_command)
endif()
