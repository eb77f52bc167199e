// CUDA's devices as the library's callers name them, by ordinal (cistern/device.h).
#pragma once
#include "shim/cuda/next.hpp"

namespace cistern::library {

constexpr int kCurrentContext = -1;

// While this lives a device's primary context is current, or what was current before (kCurrentContext).
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  cuda::CUresult answer() const { return answer_; }
  explicit operator bool() const { return answer_ == cuda::kSuccess; }

 private:
  cuda::CUresult answer_ = cuda::kSuccess;
  bool pushed_ = false;
};

bool any_context_is_current();

}  // namespace cistern::library
