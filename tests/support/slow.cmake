# slow(TEST...): `scripts/test` leaves these out and `scripts/test --full` runs them. They take many seconds, repeat on
# another runtime what a quick test covers, or need a program that only `scripts/setup` without --short installs. After
# what sets the test's other labels; a test that was left out may be named.
function(slow)
  foreach(name ${ARGN})
    if(TEST ${name})
      set_property(TEST ${name} APPEND PROPERTY LABELS slow)
    endif()
  endforeach()
endfunction()
