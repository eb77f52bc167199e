// CUDA's devices as the library's callers name them, by ordinal (cistern/device.h).
#pragma once
#include "shim/cuda/next.hpp"

namespace cistern::library {

constexpr int kCurrentContext = -1;

// False too where there is no driver.
bool any_context_is_current();

// Null too where there is no driver.
cuda::CUcontext current_context();

// While this lives a context is current; null: what is.
class InContext {
 public:
  explicit InContext(cuda::CUcontext context);
  ~InContext();
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  cuda::CUresult answer() const { return answer_; }

 private:
  cuda::CUresult answer_ = cuda::kSuccess;
  bool pushed_ = false;
};

// While this lives a device's primary context is current, or what was current before (kCurrentContext).
class OnDevice {
 public:
  explicit OnDevice(int device) : answer_(find(device)), in_(answer_ == cuda::kSuccess ? context_ : nullptr) {}
  cuda::CUresult answer() const { return answer_ == cuda::kSuccess ? in_.answer() : answer_; }
  explicit operator bool() const { return answer() == cuda::kSuccess; }

 private:
  cuda::CUresult find(int device);

  cuda::CUcontext context_ = nullptr;
  const cuda::CUresult answer_;
  const InContext in_;
};

}  // namespace cistern::library
