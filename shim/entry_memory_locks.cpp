// The exported functions of the C library that lock memory and end that. They are passed on; which memory is locked is
// noted, so that no other block of the program's gets it with its lock (pool/base/registered_memory.hpp).
#include <errno.h>
#include <linux/mman.h>

#include <cstddef>

#include "pool/base/registered_memory.hpp"
#include "shim/entry_passed_on.hpp"
#include "shim/host/serving.hpp"
#include "shim/lifecycle.hpp"

// What fails may have locked, or unlocked, a part: then the rest is taken to be locked, which does no harm.
#define LOCKING_CALL(name, parameters, types, arguments, ...)                         \
  extern "C" [[gnu::visibility("default")]] int name parameters noexcept {            \
    static constinit std::atomic<int(*) types> known{nullptr};                        \
    const int answer = cistern::pass_on arguments;                                    \
    const int failure = errno;                                                        \
    if (cistern::host::pool_serves() && !cistern::in_child_unprepared()) __VA_ARGS__; \
    errno = failure;                                                                  \
    return answer;                                                                    \
  }
LOCKING_CALL(mlock, (const void* memory, std::size_t bytes), (const void*, std::size_t),
             (known, "mlock", memory, bytes), cistern::note_locked(memory, bytes))
LOCKING_CALL(mlock2, (const void* memory, std::size_t bytes, unsigned flags), (const void*, std::size_t, unsigned),
             (known, "mlock2", memory, bytes, flags), cistern::note_locked(memory, bytes))
LOCKING_CALL(mlockall, (int flags), (int), (known, "mlockall", flags),
             answer == 0 ? cistern::note_all_locked(flags & MCL_FUTURE) : void())
LOCKING_CALL(munlock, (const void* memory, std::size_t bytes), (const void*, std::size_t),
             (known, "munlock", memory, bytes), answer == 0 ? cistern::forget_locked(memory, bytes) : void())
LOCKING_CALL(munlockall, (), (), (known, "munlockall"), answer == 0 ? cistern::forget_all_locked() : void())
#undef LOCKING_CALL
