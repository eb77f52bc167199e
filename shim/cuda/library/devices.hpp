// CUDA's devices as the library's callers name them, by ordinal or CISTERN_CURRENT (cistern/device.h).
#pragma once
#include "cistern/cistern.h"
#include "shim/cuda/next.hpp"

namespace cistern::cuda {

// False too where there is no driver.
bool any_context_is_current();

// 0 too where there is no driver.
int device_count();

// Null too where there is no driver.
CUcontext current_context();

// The context that was current before is so again.
void leave_context();

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

// While this lives a device's primary context is current, or what was current before (CISTERN_CURRENT).
class OnDevice {
 public:
  explicit OnDevice(int device) : answer_(find(device)), in_(answer_ == kSuccess ? context_ : nullptr) {}
  CUresult answer() const { return answer_ == kSuccess ? in_.answer() : answer_; }
  explicit operator bool() const { return answer() == kSuccess; }

 private:
  CUresult find(int device);

  CUcontext context_ = nullptr;
  const CUresult answer_;
  const InContext in_;
};

}  // namespace cistern::cuda
