# The command `cistern`, which runs programs under the shared object and shows their reports. Nothing of it is in the
# library. It uses CLI11 and nlohmann-json (headers only) and zlib, which is linked in: it runs where the library does.
cistern_link_headers("${PROJECT_BINARY_DIR}/command_headers" CLI/CLI.hpp nlohmann/json.hpp zlib.h zconf.h)
cistern_find_archive(zlib_archive libz.a zlib1g-dev)

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

# The page of `cistern html` is a text in the command.
set(page_folder "${PROJECT_SOURCE_DIR}/stats/formats/page")
set(page_template "${PROJECT_BINARY_DIR}/command_headers/stats/formats/page_template.hpp")
file(GLOB page_parts CONFIGURE_DEPENDS "${page_folder}/*")
add_custom_command(
  OUTPUT "${page_template}"
  COMMAND "${CMAKE_COMMAND}" "-DFOLDER=${page_folder}" "-DOUTPUT=${page_template}"
          -P "${PROJECT_SOURCE_DIR}/scripts/cmake/page_template.cmake"
  DEPENDS ${page_parts} "${PROJECT_SOURCE_DIR}/scripts/cmake/page_template.cmake" VERBATIM)
target_sources(cistern_formats PRIVATE "${page_template}")

file(GLOB command_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/shim/command/*.cpp")
list(FILTER command_sources EXCLUDE REGEX "_test\\.cpp$")
list(APPEND command_sources shim/process/file_names.cpp)
add_executable(cistern_command ${command_sources})
set_target_properties(cistern_command PROPERTIES
  OUTPUT_NAME cistern RUNTIME_OUTPUT_DIRECTORY "$<1:${PROJECT_BINARY_DIR}>")
target_link_libraries(cistern_command PRIVATE cistern_formats)
if(NOT CISTERN_SANITIZE)
  target_link_options(cistern_command PRIVATE -static-libstdc++ -static-libgcc -Wl,--as-needed -Wl,--gc-sections)
  target_link_libraries(cistern_command PRIVATE pthread)  # older C libraries have their functions for threads there
  cistern_old_c_library(cistern_command)
endif()
