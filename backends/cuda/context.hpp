// The records of devices and contexts for the CUDA backends, and the moments when these may call the driver.
#pragma once
#include "backends/cuda/context_clock.hpp"
#include "pool/proportion.hpp"
#include "pool/staging/ring.hpp"

namespace cistern::cuda {

// How much there is of something, and the most that there was.
class Level {
 public:
  void rise(std::uint64_t by) { raise(peak_, now_.fetch_add(by, std::memory_order_relaxed) + by); }
  void fall(std::uint64_t by) { now_.fetch_sub(by, std::memory_order_relaxed); }
  std::uint64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  void reset() { now_ = peak_ = 0; }

 private:
  std::atomic<std::uint64_t> now_{0}, peak_{0};
};

// The program's share of one device's memory, or of pinned memory, and the amount that may be kept beside it.
struct Share {
  // The bytes that the driver would have taken for the live blocks, and the rest of their chunks. Written under the
  // lock of the kind's counters.
  std::atomic<std::uint64_t> live_bytes{0}, waste_bytes{0};
  std::atomic<std::uint64_t> in_range_bytes{0};  // the bytes of live blocks in ranges
  std::atomic<std::uint64_t> waiting_bytes{0};   // given back, but commands may still use it
  Proportion proportion;                         // between reserved bytes and those that were live

  // Bytes of blocks that the program has, or that commands still use.
  std::uint64_t used_bytes() const {
    return live_bytes.load(std::memory_order_relaxed) + waiting_bytes.load(std::memory_order_relaxed);
  }
  void after_fork_in_child() {
    live_bytes = waste_bytes = in_range_bytes = waiting_bytes = 0;
    proportion.after_fork_in_child();
  }
};

struct Context;

// One per device, made on first sight, never freed.
struct Device {
  int ordinal = 0;
  std::atomic<std::uint64_t> total_bytes{0};  // as the driver says
  DriverCalls calls;
  std::atomic<std::uint64_t> reserved_bytes{0};  // chunks taken from the driver, live and cached
  std::atomic<std::uint64_t> reserved_peak_bytes{0};
  Share share;
  bool is_known = false;                        // a context of it was seen, so its share has limits
  std::atomic<std::uint64_t> peers{0};          // other devices whose work may use memory of its ranges, a bit for each
  std::atomic<Context*> primary{nullptr};       // null: no call was seen that retained it
  std::atomic<int> primary_references{0};       // by calls that were seen
  std::atomic<std::uint64_t> tracked_bytes{0};  // taken past the pool: stream-ordered, arrays, VMM
  // The unit in which the driver takes memory, as far as it was measured.
  std::atomic<std::uint64_t> granule{512};
  std::atomic<int> granule_measurements{0};
  // The driver's last answer about free memory, and the bytes that Cistern had taken then.
  std::atomic<std::uint64_t> sampled_at_ns{0}, sampled_free_bytes{0}, sampled_own_bytes{0};
};

class DeviceRange;

// One per CUcontext value, never freed: a handle that comes again after a destroy or reset is a new epoch.
struct Context {
  Context(const Functions& real, CallGate& gate) : clock(real, gate) {}

  std::atomic<std::uintptr_t> address{0};  // the CUcontext
  CUcontext handle() const { return reinterpret_cast<CUcontext>(address.load(std::memory_order_relaxed)); }

  Device* device = nullptr;
  // The driver's number for this life of the handle, where ends are not seen (Contexts::current); 0: it was not asked.
  std::atomic<std::uint64_t> id{0};
  std::atomic<bool> made_by_program{false};  // cuCtxCreate: not the primary context of its device
  std::atomic<bool> alive{true};
  std::atomic<bool> poisoned{false};  // a sticky error was seen: nothing is served from a pool until it is reset
  std::atomic<std::uint32_t> epoch{0};
  ContextClock clock;
  staging::Ring ring;
  std::atomic<DeviceRange*> range{nullptr};  // null: it has none yet, or `has_no_range`
  std::atomic<bool> has_no_range{false};     // the driver refused one, or it is a green context

  // Calls of our own that run in it now. A thread that ends the context waits for them, but only for a time, as with
  // the gate.
  std::atomic<int> own_calls{0};
  std::atomic<bool> ending{false};  // threads inside leave as soon as they can
  void wait_until_left() const {
    for (int wait = 0; own_calls.load() && wait < CallGate::kWaitsMax; ++wait) usleep(CallGate::kWaitMicroseconds);
  }
};

class Inside {
 public:
  explicit Inside(Context& context) : context_(context) { context_.own_calls.fetch_add(1); }
  ~Inside() { context_.own_calls.fetch_sub(1); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Context& context_;
};

// Makes a context current for the life of the object, if it is not already.
class Entered {
 public:
  Entered(const Functions& real, CUcontext context) : real_(real) {
    CUcontext current = nullptr;
    if (real_.context_current(&current) != kSuccess) return;
    entered_ = current == context;
    if (entered_) return;
    pushed_ = entered_ = real_.context_push(context) == kSuccess;
  }
  ~Entered() {
    CUcontext popped = nullptr;
    if (pushed_) real_.context_pop(&popped);
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  explicit operator bool() const { return entered_; }

 private:
  const Functions& real_;
  bool entered_ = false, pushed_ = false;
};

// Calls of our own must not invalidate a capture that another thread begins at this moment.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Functions& real) : real_(real) {
    changed_ = real_.exchange_capture_mode(&mode_) == kSuccess;
  }
  ~RelaxedCapture() {
    if (changed_) real_.exchange_capture_mode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Functions& real_;
  int mode_ = kCaptureModeRelaxed;
  bool changed_ = false;
};

}  // namespace cistern::cuda
