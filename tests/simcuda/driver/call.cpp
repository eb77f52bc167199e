// Counting, latency, injected failures and the early answers of every call.
#include "tests/simcuda/driver/call.hpp"

#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "tests/simcuda/driver/capture.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/proc_address.hpp"
#include "tests/simcuda/driver/settings.hpp"
#include "tests/simcuda/driver/thread_state.hpp"

namespace simcuda {
namespace {

constinit std::atomic<EntryPoint*> entry_points{nullptr};
constinit std::atomic<long long> calls_since_fail_every{0};

CUresult state_answer(unsigned kind) {
  switch (process_state()) {
    case ProcessState::kTornDown:
      return CUDA_ERROR_DEINITIALIZED;
    case ProcessState::kForked:
      return CUDA_ERROR_NOT_INITIALIZED;
    case ProcessState::kNotInitialized:
      return kind & kBeforeInit ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
    case ProcessState::kReady:
      break;
  }
  return CUDA_SUCCESS;
}

// For all calls, and for those of one entry point.
template <class SomeSettings>
bool failure_is_due(SomeSettings& of, std::atomic<long long>& calls_since) {
  const bool at = of.fail_at > 0 && of.fail_at.fetch_sub(1) == 1;
  const long long every = of.fail_every;
  const bool due = every > 0 && ++calls_since % every == 0;
  return at || due;
}

CUresult injected_failure(EntryPoint& entry, unsigned kind) {
  const bool of_call = failure_is_due(entry.settings, entry.settings.calls_since_fail_every);
  if (!failure_is_due(settings, calls_since_fail_every) && !of_call) return CUDA_SUCCESS;
  const long long code = of_call ? entry.settings.fail_code.load() : 0;
  if (code) return static_cast<CUresult>(code);
  if (settings.fail_code) return static_cast<CUresult>(settings.fail_code.load());
  return kind & kAllocates ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
}

void spend_latency(const EntryPoint& entry, unsigned kind) {
  long long nanoseconds = settings.latency_ns + entry.settings.latency_ns;
  if (kind & kAllocates) nanoseconds += settings.alloc_latency_ns;
  if (kind & kFrees) nanoseconds += settings.free_latency_ns;
  if (kind & kSynchronizes) nanoseconds += settings.sync_latency_ns;
  busy_wait(nanoseconds);
}

// [documented] A sticky error is answered by every call in its context.
CUresult sticky_error(unsigned kind) {
  if (kind & kContextless) return CUDA_SUCCESS;
  const auto& contexts = this_thread().contexts;
  if (contexts.empty() || !contexts.back() || !contexts.back()->alive) return CUDA_SUCCESS;
  return contexts.back()->sticky;
}

// [documented] Potentially unsafe calls fail during a capture and invalidate it. Their code is [assumed]: 900.
CUresult capture_answer(unsigned kind) {
  if (!(kind & kUnsafe) || !any_capture()) return CUDA_SUCCESS;
  Locked lock = lock_driver();
  return unsafe_call_is_forbidden(lock) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

// The variant of a function has the kind of the function, and counts and settings of its own.
CUresult early_answer(EntryPoint& counted, unsigned kind) {
  if (const CUresult answer = state_answer(kind)) return answer;
  ++counters.calls;
  if (kind & kSynchronizes) ++counters.syncs;
  spend_latency(counted, kind);
  if (const CUresult answer = injected_failure(counted, kind)) return answer;
  // [documented] A host function must not call CUDA: cuLaunchHostFunc.
  if (this_thread().in_host_function) return ++counters.calls_in_host_functions, CUDA_ERROR_NOT_PERMITTED;
  if (const CUresult answer = sticky_error(kind)) return answer;
  return capture_answer(kind);
}

}  // namespace

EntryPoint::EntryPoint(const char* entry_name, unsigned entry_kind)
    : name(entry_name), kind(entry_kind), settings(*settings_of_call(entry_name)) {
  next = entry_points.load();
  while (!entry_points.compare_exchange_weak(next, this)) {
  }
}

long long calls_of(const char* name) {
  for (const EntryPoint* entry = entry_points; entry; entry = entry->next)
    if (!std::strcmp(entry->name, name)) return entry->calls;
  return is_entry_point(name) ? 0 : -1;
}

Call::Call(EntryPoint& entry) {
  ThreadState& thread = this_thread();
  EntryPoint& counted = thread.variant ? *thread.variant : entry;
  thread.stream_zero_is_per_thread = thread.variant != nullptr;
  thread.variant = nullptr;
  ++counted.calls;
  if (!(entry.kind & kLookup)) early = early_answer(counted, entry.kind);
}

Call::~Call() { this_thread().stream_zero_is_per_thread = false; }

PerThreadVariant::PerThreadVariant(EntryPoint& entry) { this_thread().variant = &entry; }
PerThreadVariant::~PerThreadVariant() { this_thread().variant = nullptr; }

CUresult refuse(const char* what) {
  static std::mutex& lock = *new std::mutex;
  static std::set<std::string>& said = *new std::set<std::string>;
  const std::lock_guard<std::mutex> guard(lock);
  if (said.insert(what).second) std::fprintf(stderr, "simcuda: %s is not simulated\n", what);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace simcuda
