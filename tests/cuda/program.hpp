// What the programs on the CUDA runtime share: calls that print their error by name, and blocks that are counted.
#pragma once
#include "kernel.hpp"
#include "say.hpp"

inline const char* name_of(cudaError_t code) { return cudaGetErrorName(code); }

// Prints the call and its answer.
#define SHOW(call) say("%s: %s", #call, name_of(call))
// As SHOW, of a call that makes memory of one kind.
#define SHOW_MADE(kind, call)                 \
  do {                                        \
    const auto code = call;                   \
    if (!static_cast<int>(code)) ++made.kind; \
    say("%s: %s", #call, name_of(code));      \
  } while (0)
// Calls that have no reason to fail.
#define NEED(call)                                                                        \
  do {                                                                                    \
    const auto code = call;                                                               \
    if (static_cast<int>(code)) {                                                         \
      say("%s:%d: set-up failed: %s: %s", __FILE_NAME__, __LINE__, #call, name_of(code)); \
      exit(90);                                                                           \
    }                                                                                     \
  } while (0)
#ifndef __FILE_NAME__
#define __FILE_NAME__ __FILE__
#endif

template <class T = unsigned>
T* device_block(size_t bytes) {
  void* block = nullptr;
  NEED(cudaMalloc(&block, bytes));
  ++made.device;
  return static_cast<T*>(block);
}

template <class T = unsigned>
T* pinned_block(size_t bytes, unsigned flags = cudaHostAllocDefault) {
  void* block = nullptr;
  NEED(cudaHostAlloc(&block, bytes, flags));
  ++made.pinned;
  return static_cast<T*>(block);
}

inline cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream = nullptr;
  NEED(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}

// What a block holds, read by the device in order with everything before.
inline std::string contents(const void* block, size_t bytes) {
  std::vector<unsigned> words(bytes / sizeof(unsigned));
  const cudaError_t code = cudaMemcpy(words.data(), block, words.size() * sizeof(unsigned), cudaMemcpyDefault);
  return code == cudaSuccess ? describe(words) : std::string("read failed: ") + name_of(code);
}

inline void fill(cudaStream_t stream, void* block, size_t bytes, unsigned value) {
  NEED(launch(stream, bytes / sizeof(unsigned), Fill{static_cast<unsigned*>(block), value}));
}
inline void keep_busy(cudaStream_t stream, unsigned microseconds) { NEED(launch(stream, 1, Spin{microseconds})); }

// The rest of the process must not depend on what an expected failure left behind.
inline void forget_error() { (void)cudaGetLastError(); }
