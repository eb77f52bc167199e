// CUDA's devices as the library's callers name them, by ordinal or CISTERN_CURRENT (cistern/device.h), and the contexts
// that stand for them.
//
// The library starts CUDA as its runtime does. A call that needs the driver loads and initialises it. Work on a named
// device is done in its primary context. CISTERN_CURRENT is the context that is current; a thread that has none, or one
// that was reset, gets the primary context of the device that it has chosen in the runtime, and keeps it. The library
// holds one reference to each primary context that it has used, until the process ends.
#pragma once
#include "cistern/cistern.h"
#include "shim/cuda/next.hpp"

namespace cistern::cuda {

struct Context;

// kNoDriver: there is no libcuda.
CUresult start_driver();

// False too where there is no driver.
bool any_context_is_current();

// 0 too where there is no driver. Loads none.
int device_count();

// Null too where there is no driver.
CUcontext current_context();

// The context that was current before is so again.
void leave_context();

// The context of a request, alive. That of a named device is not made current.
CUresult find_context(int device, Context** context);

// While this lives a context is current; null: what is.
class InContext {
 public:
  explicit InContext(CUcontext context);
  ~InContext();
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  CUresult answer() const { return answer_; }

 private:
  CUresult answer_ = kSuccess;
  bool pushed_ = false;
};

// The context that is current, or where there is none that of the device.
struct CurrentOr {
  int device;
};

// While this lives the context of a request is current.
class OnDevice {
 public:
  explicit OnDevice(int device) : answer_(find(device)), in_(context_) {}
  explicit OnDevice(CurrentOr place) : answer_(find(place)), in_(context_) {}
  CUresult answer() const { return answer_ == kSuccess ? in_.answer() : answer_; }
  explicit operator bool() const { return answer() == kSuccess; }

 private:
  CUresult find(int device);
  CUresult find(CurrentOr place);

  CUcontext context_ = nullptr;
  const CUresult answer_;
  const InContext in_;
};

}  // namespace cistern::cuda
