// The exported functions of the C library that limit the process. They are passed on; the host pool hears of limits of
// its memory (pool/heap/region.hpp), and who keeps memory that lies in the host's (process/headroom.hpp).
#include <asm-generic/resource.h>
#include <errno.h>
#include <sys/types.h>

#include "pool/heap/region.hpp"
#include "shim/entry_passed_on.hpp"
#include "shim/host/serving.hpp"
#include "shim/lifecycle.hpp"
#include "shim/process/headroom.hpp"

namespace {

void heed_limits() {
  cistern::Headroom::note_limits_changed();
  if (!cistern::host::pool_serves()) return;
  if (cistern::in_child_unprepared()) return cistern::host_pool::note_new_limits();
  cistern::host_pool::limits_changed();
}

}  // namespace

// Another process's limit makes the pool look at its own in vain, which is seldom. The structures are the caller's.
#define LIMITING_CALL(name, parameters, types, ...)                             \
  extern "C" [[gnu::visibility("default")]] int name parameters noexcept {      \
    static constinit std::atomic<int(*) types> known{nullptr};                  \
    const int answer = cistern::pass_on(known, #name, __VA_ARGS__);             \
    const int kept_errno = errno;                                               \
    const bool is_of_memory = resource == RLIMIT_AS || resource == RLIMIT_DATA; \
    if (answer == 0 && limit && is_of_memory) heed_limits();                    \
    errno = kept_errno;                                                         \
    return answer;                                                              \
  }
LIMITING_CALL(setrlimit, (int resource, const void* limit), (int, const void*), resource, limit)
LIMITING_CALL(setrlimit64, (int resource, const void* limit), (int, const void*), resource, limit)
LIMITING_CALL(prlimit, (pid_t process, int resource, const void* limit, void* before), (pid_t, int, const void*, void*),
              process, resource, limit, before)
LIMITING_CALL(prlimit64, (pid_t process, int resource, const void* limit, void* before),
              (pid_t, int, const void*, void*), process, resource, limit, before)
#undef LIMITING_CALL
