# What the library is made with: spdlog and fmt as headers only, GCC's own libbacktrace, and libiberty for Rust's names.

# cistern_link_headers(LINKS HEADER...): headers are reached through a folder of links and not through their system
# folder, so that a cross compiler sees them without seeing the build machine's C library.
function(cistern_link_headers links)
  file(MAKE_DIRECTORY "${links}")
  foreach(header ${ARGN})
    string(REGEX REPLACE "/.*" "" name ${header})
    find_path(CISTERN_${name}_INCLUDE ${header} NO_CMAKE_FIND_ROOT_PATH PATHS /usr/include /usr/local/include REQUIRED)
    file(CREATE_LINK "${CISTERN_${name}_INCLUDE}/${name}" "${links}/${name}" SYMBOLIC)
  endforeach()
endfunction()

# cistern_find_archive(RESULT FILE PACKAGE): the compiler's own; no cross compiler brings those of packages, so
# scripts/packaging/c-library does.
function(cistern_find_archive result file package)
  execute_process(
    COMMAND "${CMAKE_CXX_COMPILER}" "-print-file-name=${file}"
    OUTPUT_VARIABLE archive OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE "${archive}")
    string(CONCAT archive "${PROJECT_SOURCE_DIR}/build/c-library/${CMAKE_SYSTEM_PROCESSOR}/usr/lib/"
                  "${CMAKE_LIBRARY_ARCHITECTURE}/${file}")
  endif()
  if(NOT EXISTS "${archive}")
    set(brought_by "scripts/setup gets it (package ${package})")
    if(CMAKE_CROSSCOMPILING)
      set(brought_by "scripts/packaging/c-library fetches it to build/c-library/${CMAKE_SYSTEM_PROCESSOR} (network)")
    endif()
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} has no ${file}: ${brought_by}")
  endif()
  set(${result} "${archive}" PARENT_SCOPE)
endfunction()

add_library(cistern_header_only INTERFACE)
cistern_link_headers("${PROJECT_BINARY_DIR}/header_only" spdlog/spdlog.h fmt/format.h)
target_include_directories(cistern_header_only SYSTEM INTERFACE "${PROJECT_BINARY_DIR}/header_only")
target_compile_definitions(cistern_header_only INTERFACE
  FMT_HEADER_ONLY SPDLOG_FMT_EXTERNAL SPDLOG_NO_EXCEPTIONS SPDLOG_NO_THREAD_ID)

# Where fmt would throw, without making the exception first.
target_compile_options(cistern_header_only INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-DFMT_THROW(x)=__builtin_abort()>")

# libbacktrace lies in GCC's own folder, in a position-independent build; its header is on GCC's own include path.
execute_process(
  COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=libbacktrace.a
  OUTPUT_VARIABLE CISTERN_BACKTRACE_ARCHIVE OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT IS_ABSOLUTE "${CISTERN_BACKTRACE_ARCHIVE}")
  message(FATAL_ERROR "${CMAKE_CXX_COMPILER} has no libbacktrace.a; use g++ (package libgcc-<version>-dev)")
endif()
# It would read the debug information of every loaded module; stats/symbols.cpp shows it one at a time, opens
# files and looks at them.
set(backtrace_archive "${PROJECT_BINARY_DIR}/libcistern_backtrace.a")
execute_process(
  COMMAND "${CMAKE_OBJCOPY}" --redefine-sym dl_iterate_phdr=cistern_visit_shown_module
          --redefine-sym open=cistern_open_shown_file --redefine-sym lstat=cistern_status_of_shown_link
          --redefine-sym fstat=cistern_status_of_shown_file "${CISTERN_BACKTRACE_ARCHIVE}" "${backtrace_archive}"
  COMMAND_ERROR_IS_FATAL ANY)
# Of libiberty one file, beside it: no other library puts both of Rust's manglings into words, is there for C, and asks
# for no memory. (Its licence lets that file be linked into anything; its table of characters has other terms, and
# stats/rust_names.cpp has one.)
cistern_find_archive(iberty_archive libiberty.a libiberty-dev)
execute_process(
  COMMAND "${CMAKE_AR}" x "${iberty_archive}" rust-demangle.o
  WORKING_DIRECTORY "${PROJECT_BINARY_DIR}" COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND "${CMAKE_OBJCOPY}" --redefine-sym _sch_istable=cistern_kinds_of_characters
          "${PROJECT_BINARY_DIR}/rust-demangle.o"
  COMMAND_ERROR_IS_FATAL ANY)
# Of the C++ library one file too: the demangler that hands its text over in pieces is in the static archive only, and
# tests are linked with the shared one.
execute_process(
  COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=libstdc++.a
  OUTPUT_VARIABLE cxx_archive OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(
  COMMAND "${CMAKE_AR}" x "${cxx_archive}" cp-demangle.o
  WORKING_DIRECTORY "${PROJECT_BINARY_DIR}" COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND "${CMAKE_AR}" rs "${backtrace_archive}" "${PROJECT_BINARY_DIR}/rust-demangle.o"
          "${PROJECT_BINARY_DIR}/cp-demangle.o"
  COMMAND_ERROR_IS_FATAL ANY)
add_library(cistern_backtrace INTERFACE)
target_link_libraries(cistern_backtrace INTERFACE "${backtrace_archive}")
# Clang takes GCC's archive, and has to be told where the header is; clang-tidy reads GCC's commands.
cmake_path(GET CISTERN_BACKTRACE_ARCHIVE PARENT_PATH gcc_folder)
target_compile_options(cistern_backtrace INTERFACE "-idirafter${gcc_folder}/include")
