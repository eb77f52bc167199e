# left_out(NAME REASON): a test, or a group of them, that cannot be built here. It is listed among the skipped ones.
function(left_out name reason)
  message(STATUS "Left out: ${name}: ${reason}")
  add_test(NAME left_out.${name} COMMAND "${CMAKE_COMMAND}" -E echo "left out: ${reason}")
  set_tests_properties(left_out.${name} PROPERTIES SKIP_REGULAR_EXPRESSION "left out: ")
endfunction()
