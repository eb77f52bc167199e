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

int unwind_with_libgcc(void** frames, int frames_max) {
  Walk walk{frames, 0, frames_max};
  _Unwind_Backtrace(note_frame, &walk);
  return walk.count;
}

constinit std::atomic<Unwinder> unwinder{unwind_with_libgcc};

}  // namespace

int unwind_stack(void** frames, int frames_max) { return unwinder.load(std::memory_order_acquire)(frames, frames_max); }

void prepare_unwinder() {
  if (unwinder.load(std::memory_order_relaxed) != unwind_with_libgcc) return;
  // Local: it exports an exception unwinder of its own, which must not reach the program.
  void* library = dlopen("libunwind.so.8", RTLD_LAZY | RTLD_LOCAL);
  if (!library) return;
  const auto fast = reinterpret_cast<Unwinder>(dlsym(library, "unw_backtrace"));
  void* frames[8];
  // It must see what the other one sees: this function, its caller, and so on.
  if (fast && fast(frames, 8) > 1) {
    fast(frames, 8);
    unwinder.store(fast, std::memory_order_release);
  }
}

const char* unwinder_name() {
  return unwinder.load(std::memory_order_relaxed) == unwind_with_libgcc ? "libgcc" : "libunwind";
}

}  // namespace cistern
