// The answer of _dl_find_object, for C libraries before 2.35, which do not have that function. It is asked while malloc
// serves, so:
//
//   - Never under the loader's big lock (dladdr takes it): dlopen holds that while constructors run, and one may wait
//     for a thread that allocates.
//   - Objects that the process started with stay as long as it does: they are found without any lock.
//   - Any other address takes the lock of the list of objects, as each exception that is thrown with such a C library
//     does (dl_iterate_phdr). It is held for short; by a callback of the program's own as long as that runs. Callers
//     must hold no lock that malloc takes, for such a callback may allocate.
//   - In a child forked beside threads, the owner of that lock may not exist any more: there the list is read without
//   it.
//
// Like dl_iterate_phdr this sees the objects of its own namespace only.
#pragma once

struct dl_find_object;

namespace cistern {

// 0 and `found` filled in, or -1.
int find_object(const void* address, dl_find_object& found);

// The C library has the function: it is 2.35 or newer.
bool c_library_finds_objects();

}  // namespace cistern
