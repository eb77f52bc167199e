// What the kernel left for the process at the end of its first stack: arguments, environment, the auxiliary vector.
// Read where it lies, without a call: a library may have its own getauxval or getenv, and allocate in it.
#pragma once

namespace cistern {

// The process's arguments as it was started with them, ended by a null; null: not to be had.
char** start_arguments();
// The environment as it was then; the program may have changed it since. Null: not to be had.
char** start_environment();
// An entry of the auxiliary vector, as getauxval; 0: there is none. `type` is below 4096.
unsigned long start_value(unsigned long type);
// Whether the process has rights that whoever set its environment may not have (set-user-ID and the like): then it is
// not told what to do by that. Where the vector is not to be had it is taken to be so.
bool started_with_more_rights();

}  // namespace cistern
