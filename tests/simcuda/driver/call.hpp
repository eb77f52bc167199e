// What every entry point does first: count the call, wait as the settings say, and answer early where the call is not
// to be done (teardown, fork, injected failure, sticky error, stream capture).
#pragma once
#include <atomic>

#include "tests/simcuda/driver/settings.hpp"
#include "tests/simcuda/driver/simcuda.hpp"

namespace simcuda {

enum CallKind : unsigned {
  kOrdinary = 0,
  kAllocates = 1,  // an injected failure is out of memory
  kFrees = 2,
  kSynchronizes = 4,
  kUnsafe = 8,        // "potentially unsafe" in the sense of cuThreadExchangeStreamCaptureMode
  kContextless = 16,  // does not look at the current context: a sticky error there does not show
  kBeforeInit = 32,   // works before cuInit
  kLookup = 64,       // never counted, never fails by injection, works after teardown
};

// One per exported function, made at its first call.
class EntryPoint {
 public:
  EntryPoint(const char* name, unsigned kind);
  const char* const name;
  const unsigned kind;
  CallSettings& settings;
  std::atomic<long long> calls{0};
  EntryPoint* next = nullptr;
};

// The calls of one entry point so far; -1 if there is no such entry point.
long long calls_of(const char* name);

// Alive while the call runs. Knows whether the stream 0 means the per-thread default stream in it.
class Call {
 public:
  explicit Call(EntryPoint& entry);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  CUresult early = CUDA_SUCCESS;
};

// Says that the next Call of this thread is a per-thread-stream variant's.
class PerThreadVariant {
 public:
  explicit PerThreadVariant(EntryPoint& entry);
  ~PerThreadVariant();
};

// The first line of an entry point. The name is the exported one: __func__.
#define SIMCUDA_CALL(kind)                                  \
  static ::simcuda::EntryPoint entry_point(__func__, kind); \
  ::simcuda::Call call(entry_point);                        \
  if (call.early != CUDA_SUCCESS) return call.early

// A per-thread-stream variant: the same function with another meaning of stream 0.
#define SIMCUDA_PER_THREAD_STREAM(name, suffix, parameters, arguments)             \
  extern "C" CUresult name##suffix parameters {                                    \
    static ::simcuda::EntryPoint entry_point(#name #suffix, ::simcuda::kOrdinary); \
    ::simcuda::PerThreadVariant variant(entry_point);                              \
    return name arguments;                                                         \
  }

// A rule was met that the simulator does not follow: one line per name on stderr, CUDA_ERROR_NOT_SUPPORTED.
CUresult refuse(const char* what);

}  // namespace simcuda
