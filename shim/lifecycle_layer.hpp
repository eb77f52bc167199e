// The ends of a process that a layer does not hear of: of _exit, _Exit and quick_exit the C library calls no handler,
// or one that is not told the status, and what we export is found by nobody, as a layer comes last.
#pragma once

namespace cistern {

// From now on calls of these three by what is loaded so far come to our exports: the address that each module found
// for them when it was loaded is replaced in its own table. Only for a gate, which has to see every end; calls by the
// C library itself, and by modules that are loaded later, stay as they are.
void watch_sudden_ends_from_layer();

}  // namespace cistern
