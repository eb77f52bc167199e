// What the driver knows of each thread of the program: its context stack, its capture mode, its default streams.
#pragma once
#include <cstdint>
#include <vector>

#include "tests/simcuda/driver/simcuda.hpp"

namespace simcuda {

class EntryPoint;
struct Context;

// Its destructor, at the end of the thread, retires the thread's per-thread default streams (stream.cpp).
struct ThreadState {
  ThreadState();
  ~ThreadState();
  const uint64_t id;
  std::vector<Context*> contexts;  // the stack; the last is current
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool in_host_function = false;
  Context* works_for = nullptr;   // while it runs a command's work
  bool works_on_copy = false;     // the command is a copy
  EntryPoint* variant = nullptr;  // a per-thread-stream variant that is about to call
  bool stream_zero_is_per_thread = false;
};

ThreadState& this_thread();

}  // namespace simcuda
