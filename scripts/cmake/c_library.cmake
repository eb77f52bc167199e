# One binary for glibc 2.28 and newer. What is newer than that is a weak reference, behind a function that does without
# it (shim/process/newer_c_library.cpp). All other symbols get their versions from CISTERN_C_LIBRARY, a folder with an
# old C library: what scripts/packaging/c-library has fetched, where it has. Else this machine's is linked with, and the
# binary runs where that or a newer one is. (Under a sanitizer, which nobody is given, all is as this machine has it.)
set(fetched_c_library "${PROJECT_SOURCE_DIR}/build/c-library/${CMAKE_SYSTEM_PROCESSOR}")
# With headers of glibc 2.38 and newer the C compiler calls functions that are newer than the sources know (strtoul as
# C23 has it), and the compiler's own archives do.
execute_process(
  COMMAND "${CMAKE_CXX_COMPILER}" -E -dM -include features.h -x c++ /dev/null
  OUTPUT_VARIABLE c_library_macros COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "__GLIBC_MINOR__ ([0-9]+)" found "${c_library_macros}")
set(c_library_minor "${CMAKE_MATCH_1}")
if(NOT EXISTS "${fetched_c_library}/complete" OR CISTERN_SANITIZE OR c_library_minor GREATER 37)
  set(fetched_c_library "")
endif()
if("${CISTERN_C_LIBRARY}" STREQUAL "" OR (CISTERN_C_LIBRARY AND NOT IS_DIRECTORY "${CISTERN_C_LIBRARY}"))
  unset(CISTERN_C_LIBRARY CACHE)  # it is gone, or there was none: it may be there by now
endif()
set(CISTERN_C_LIBRARY "${fetched_c_library}" CACHE PATH
    "The root of an old C library, to link with; OFF: this machine's")
if(CISTERN_C_LIBRARY)
  message(STATUS "Linked with the C library in ${CISTERN_C_LIBRARY}, for systems from glibc 2.28 on")
endif()

set(newer_symbols
  _dl_find_object                                              # 2.35
  dladdr dladdr1 dlclose dlerror dlopen dlsym dlvsym           # 2.34, libdl before
  pthread_key_create pthread_setspecific                       # 2.34, libpthread before
  __libc_single_threaded pthread_sigmask strerrordesc_np       # 2.32
  getcpu)                                                      # 2.29
if(CISTERN_SANITIZE)
  set(newer_symbols)
endif()
list(TRANSFORM newer_symbols PREPEND "--wrap=" OUTPUT_VARIABLE wrap_newer_symbols)
list(TRANSFORM wrap_newer_symbols PREPEND "-Wl," OUTPUT_VARIABLE wrap_options)

# cistern_old_c_library(TARGET): linked with the old C library, where there is one.
function(cistern_old_c_library target)
  if(CISTERN_C_LIBRARY)
    # A sysroot alone still takes the start files and libc.so of the compiler's own.
    target_link_options(${target} PRIVATE
      "--sysroot=${CISTERN_C_LIBRARY}" "-B${CISTERN_C_LIBRARY}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}")
  endif()
endfunction()

# cistern_c_library(TARGET): for shared objects that leave this house.
function(cistern_c_library target)
  target_link_options(${target} PRIVATE ${wrap_options})
  cistern_old_c_library(${target})
endfunction()
