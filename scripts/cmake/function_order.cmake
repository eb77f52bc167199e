# cistern_order_functions(TARGET) puts what the dynamic linker runs itself and the functions of first_functions.txt
# (scripts/function-order) first in a shared object. The host pool and the unwinder, which any process may run at any
# time, lie behind them. Locks lie together too: a fork takes them all, and copies each page that they lie in. GNU's
# linker has no option for an order, but takes a whole script: its own, with these lines added. With another linker the
# order stays as it is.
execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-prog-name=ld OUTPUT_VARIABLE linker
                OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -Wl,--version OUTPUT_VARIABLE linker_used ERROR_QUIET)
execute_process(COMMAND "${linker}" -shared -z now -z relro --verbose OUTPUT_VARIABLE linker_script ERROR_QUIET)
set(first_functions "${CMAKE_CURRENT_LIST_DIR}/first_functions.txt")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${first_functions}")
set(ordered_script "")
if(linker_used MATCHES "^GNU ld" AND linker_script MATCHES "=====\n(.*)\n=====" AND NOT CISTERN_SANITIZE)
  set(linker_script "${CMAKE_MATCH_1}")
  file(STRINGS "${first_functions}" names)
  list(TRANSFORM names REPLACE "(.+)" "    *(.text.\\1 .text.*.\\1)\n")
  list(PREPEND names "    *crt*.o(.text)\n    *single_threaded.c.o(.text .text.*)\n")
  list(APPEND names "    *pool/heap/*.o(.text .text.*)\n    *stats/unwind/*.o(.text .text.*)\n")
  list(JOIN names "" names)
  string(REGEX REPLACE "\n  \\.text +:\n  {\n" "\\0${names}" changed_script "${linker_script}")
  string(REPLACE "   *(.dynbss)\n" "   *(.dynbss)\n   *(.bss.*_lockE)\n" changed_script "${changed_script}")
  if(NOT changed_script STREQUAL linker_script)
    set(ordered_script "${CMAKE_CURRENT_BINARY_DIR}/function_order.ld")
    file(CONFIGURE OUTPUT "${ordered_script}" CONTENT "${changed_script}" @ONLY)
  endif()
endif()

function(cistern_order_functions target)
  if(ordered_script)
    target_link_options(${target} PRIVATE "-Wl,-T,${ordered_script}")
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${ordered_script}")
  endif()
endfunction()
