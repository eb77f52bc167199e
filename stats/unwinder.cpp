// See unwinder.hpp.
#include "stats/unwinder.hpp"

#include <dlfcn.h>
#include <unwind.h>

#include <atomic>

namespace cistern {
namespace {

using Unwinder = int (*)(void** frames, int frames_max);

struct Walk {
  void** frames;
  int count, frames_max;
};

_Unwind_Reason_Code note_frame(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  const _Unwind_Ptr address = _Unwind_GetIP(context);
  if (!address || walk.count == walk.frames_max) return _URC_END_OF_STACK;
  walk.frames[walk.count++] = reinterpret_cast<void*>(address);
  return _URC_NO_REASON;
}

constinit std::atomic<Unwinder> unwinder{unwind_stack_with_libgcc};

}  // namespace

int unwind_stack_with_libgcc(void** frames, int frames_max) {
  Walk walk{frames, 0, frames_max};
  _Unwind_Backtrace(note_frame, &walk);
  return walk.count;
}

int unwind_stack(void** frames, int frames_max) { return unwinder.load(std::memory_order_acquire)(frames, frames_max); }

void prepare_unwinder() {
  if (unwinder.load(std::memory_order_relaxed) != unwind_stack_with_libgcc) return;
  // libunwind locks a mutex when a thread ends, behind ThreadSanitizer's own end of the thread: that would crash.
  if (dlsym(RTLD_DEFAULT, "__tsan_init")) return;
  // Local: it exports an exception unwinder of its own, which must not reach the program.
  void* library = dlopen("libunwind.so.8", RTLD_LAZY | RTLD_LOCAL);
  if (!library) return;
  const auto fast = reinterpret_cast<Unwinder>(dlsym(library, "unw_backtrace"));
  void* frames[8];
  // Its first call fills caches; it must see this function and its caller at least.
  if (fast && fast(frames, 8) > 1) unwinder.store(fast, std::memory_order_release);
}

}  // namespace cistern
