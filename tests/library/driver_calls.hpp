// The driver's functions, as a program finds them that loads the driver itself, and a stream that is busy for as long
// as a test wants.
#pragma once
#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>

#include "tests/library/kinds.hpp"

template <class Function>
Function* driver_function(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), name));
}
#define DRIVER(name) driver_function(static_cast<decltype(::name)*>(nullptr), #name)
#define DRIVER_V2(name) driver_function(static_cast<decltype(::name)*>(nullptr), #name "_v2")

// A stream on which nothing ends until it is let go.
class BusyStream {
 public:
  BusyStream() {
    constexpr std::size_t kWord = 8;
    EXPECT_EQ(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    void* memory = nullptr;
    EXPECT_EQ(DRIVER(cuMemHostAlloc)(&memory, kWord, 0), CUDA_SUCCESS);
    word_ = static_cast<std::atomic<std::uint32_t>*>(memory);
    hold();
  }
  ~BusyStream() {
    if (stream) let_go();
  }
  void hold() {
    word_->store(0);
    const auto wait = driver_function(static_cast<decltype(::cuStreamWaitValue32)*>(nullptr), "cuStreamWaitValue32_v2");
    EXPECT_EQ(wait(stream, reinterpret_cast<CUdeviceptr>(word_), 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  }
  void let_go() {
    word_->store(1);
    EXPECT_EQ(DRIVER(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  }
  // The same for a stream that the test has destroyed.
  void abandon() {
    word_->store(1);
    stream = nullptr;
  }
  bool is_idle() const { return DRIVER(cuStreamQuery)(stream) == CUDA_SUCCESS; }

  CUstream stream = nullptr;

 private:
  std::atomic<std::uint32_t>* word_ = nullptr;
};
