// A CUDA driver for unit tests: streams whose work ends when the test says so, events that know what they wait for,
// memory that is only counted. Any call can be made to fail, and calls that no program may make are noted.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/functions.hpp"

namespace cistern::cuda::test {

class FakeDriver {
 public:
  FakeDriver() { the_driver() = this; }
  ~FakeDriver() { the_driver() = nullptr; }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  // --- What the test does as the program

  static CUcontext context(std::uintptr_t id) { return reinterpret_cast<CUcontext>(id); }
  static void make_current(CUcontext context) { contexts() = {context}; }

  CUstream new_stream(bool blocking) {
    std::lock_guard hold(mutex_);
    const std::uintptr_t id = ++last_stream_;
    streams_[id] = {blocking, true, 0, 0};
    return reinterpret_cast<CUstream>(id);
  }
  void destroy_stream(CUstream stream) {
    std::lock_guard hold(mutex_);
    streams_.at(id_of(stream)).alive = false;
  }
  void enqueue(CUstream stream) {
    std::lock_guard hold(mutex_);
    ++streams_.at(id_of(stream)).enqueued;
  }
  void end_work_of(CUstream stream) {
    std::lock_guard hold(mutex_);
    Stream& known = streams_.at(id_of(stream));
    known.ended = known.enqueued;
  }
  void end_all_work() {
    std::lock_guard hold(mutex_);
    for (auto& [id, stream] : streams_) stream.ended = stream.enqueued;
  }

  // All that is enqueued now; whether it has ended.
  using Point = std::map<std::uintptr_t, std::uint64_t>;
  Point enqueued() {
    std::lock_guard hold(mutex_);
    Point point;
    for (auto& [id, stream] : streams_) point[id] = stream.enqueued;
    return point;
  }
  bool ended(const Point& point) {
    std::lock_guard hold(mutex_);
    return ended_locked(point);
  }

  // --- What the code under test calls

  Functions functions() {
    return {.memory_allocate = [](CUdeviceptr* out, std::size_t bytes) { return driver().allocate_device(out, bytes); },
            .memory_free = [](CUdeviceptr address) { return driver().free_memory("cuMemFree", address, true); },
            .host_allocate = [](void** out, std::size_t bytes,
                                unsigned flags) { return driver().allocate_host(out, bytes, flags, false); },
            .host_allocate_plain = [](void** out,
                                      std::size_t bytes) { return driver().allocate_host(out, bytes, 0, true); },
            .host_free =
                [](void* address) {
                  return driver().free_memory("cuMemFreeHost", reinterpret_cast<std::uintptr_t>(address), false);
                },
            .context_current = [](CUcontext* out) { return driver().context_current(out); },
            .context_push = [](CUcontext context) { return driver().context_push(context); },
            .context_pop = [](CUcontext* out) { return driver().context_pop(out); },
            .context_synchronize = [] { return driver().synchronize(); },
            .event_create = [](CUevent* out, unsigned flags) { return driver().event_create(out, flags); },
            .event_record = [](CUevent event, CUstream stream) { return driver().event_record(event, stream); },
            .event_query = [](CUevent event) { return driver().event_query(event); },
            .stream_query = [](CUstream stream) { return driver().stream_query(stream); },
            .exchange_capture_mode = [](int* mode) { return driver().exchange_capture_mode(mode); }};
  }

  // The n-th call from now on fails, once; 0: none.
  void fail_at(int n, CUresult with = kUnknown) {
    std::lock_guard hold(mutex_);
    fail_in_ = n;
    fail_with_ = with;
  }
  // Every call of this name fails.
  void fail_always(const std::string& name, CUresult with = kUnknown) {
    std::lock_guard hold(mutex_);
    failing_[name] = with;
  }
  void fail_no_more() {
    std::lock_guard hold(mutex_);
    fail_in_ = 0;
    failing_.clear();
  }
  // Called in the middle of every call of this name, as another thread might come in between.
  std::map<std::string, std::function<void()>> meanwhile;

  int calls(const std::string& name) {
    std::lock_guard hold(mutex_);
    return calls_[name];
  }
  int all_calls() {
    std::lock_guard hold(mutex_);
    int all = 0;
    for (auto& [name, count] : calls_) all += count;
    return all;
  }
  // What no program may do: use of a stream that was destroyed, a second free, a call in the wrong context...
  std::vector<std::string> wrong() {
    std::lock_guard hold(mutex_);
    return wrong_;
  }
  std::size_t live_allocations() {
    std::lock_guard hold(mutex_);
    return memory_.size();
  }
  std::uint64_t live_bytes() {
    std::lock_guard hold(mutex_);
    std::uint64_t bytes = 0;
    for (auto& [address, memory] : memory_) bytes += memory.bytes;
    return bytes;
  }
  bool is_live(std::uintptr_t address) {
    std::lock_guard hold(mutex_);
    return memory_.count(address) != 0;
  }
  unsigned flags_of(std::uintptr_t address) {
    std::lock_guard hold(mutex_);
    return memory_.at(address).flags;
  }
  bool is_plain(std::uintptr_t address) {
    std::lock_guard hold(mutex_);
    return memory_.at(address).plain;
  }
  static int capture_mode() { return mode(); }
  static std::size_t contexts_pushed() { return contexts().size(); }
  std::size_t events_live() {
    std::lock_guard hold(mutex_);
    return events_.size();
  }

 private:
  struct Stream {
    bool blocking, alive;
    std::uint64_t enqueued, ended;
  };
  struct Memory {
    std::uint64_t bytes;
    CUcontext context;
    bool on_device;
    unsigned flags;
    bool plain;
  };

  static FakeDriver*& the_driver() {
    static FakeDriver* driver = nullptr;
    return driver;
  }
  static FakeDriver& driver() { return *the_driver(); }
  static std::vector<CUcontext>& contexts() {
    static thread_local std::vector<CUcontext> stack;
    return stack;
  }
  static int& mode() {
    static thread_local int mode = kCaptureModeGlobal;
    return mode;
  }
  static std::uintptr_t id_of(const void* handle) { return reinterpret_cast<std::uintptr_t>(handle); }
  static CUcontext current() { return contexts().empty() ? nullptr : contexts().back(); }

  // Begins a call: what it must fail with.
  CUresult begin(const char* name) {
    std::function<void()> others;
    CUresult result = kSuccess;
    {
      std::lock_guard hold(mutex_);
      ++calls_[name];
      if (auto failing = failing_.find(name); failing != failing_.end()) result = failing->second;
      if (fail_in_ && --fail_in_ == 0) result = fail_with_;
      if (auto found = meanwhile.find(name); found != meanwhile.end()) others = std::exchange(found->second, nullptr);
    }
    if (others) others();
    return result;
  }
  CUresult refuse(const std::string& what, CUresult with) {
    wrong_.push_back(what);
    return with;
  }
  // Calls that a capture in another thread would forbid, or be invalidated by.
  void needs_relaxed(const char* name) {
    if (mode() != kCaptureModeRelaxed && !exchange_failed_)
      wrong_.push_back(std::string(name) + " not under relaxed capture mode");
  }
  bool ended_locked(const Point& point) {
    for (auto& [id, number] : point)
      if (streams_.at(id).ended < number) return false;
    return true;
  }

  CUresult allocate(std::uintptr_t* out, const Memory& memory) {
    if (!current()) return refuse("allocation without a context", kInvalidContext);
    *out = next_address_;
    next_address_ += (memory.bytes + 4095) / 4096 * 4096;
    memory_[*out] = memory;
    return kSuccess;
  }
  CUresult allocate_device(CUdeviceptr* out, std::size_t bytes) {
    if (const CUresult fails = begin("cuMemAlloc")) return fails;
    std::lock_guard hold(mutex_);
    std::uintptr_t address = 0;
    const CUresult result = allocate(&address, {bytes, current(), true, 0, false});
    *out = address;
    return result;
  }
  CUresult allocate_host(void** out, std::size_t bytes, unsigned flags, bool plain) {
    if (const CUresult fails = begin(plain ? "cuMemAllocHost" : "cuMemHostAlloc")) return fails;
    std::lock_guard hold(mutex_);
    std::uintptr_t address = 0;
    const CUresult result = allocate(&address, {bytes, current(), false, flags, plain});
    *out = reinterpret_cast<void*>(address);
    return result;
  }
  CUresult free_memory(const char* name, std::uintptr_t address, bool on_device) {
    if (const CUresult fails = begin(name)) return fails;
    std::lock_guard hold(mutex_);
    needs_relaxed(name);
    auto found = memory_.find(address);
    if (found == memory_.end() || found->second.on_device != on_device)
      return refuse(std::string(name) + " of what is not allocated", kInvalidValue);
    if (found->second.context != current()) wrong_.push_back(std::string(name) + " in another context");
    memory_.erase(found);
    return kSuccess;
  }

  CUresult context_current(CUcontext* out) {
    if (const CUresult fails = begin("cuCtxGetCurrent")) return fails;
    *out = current();
    return kSuccess;
  }
  CUresult context_push(CUcontext context) {
    if (const CUresult fails = begin("cuCtxPushCurrent")) return fails;
    contexts().push_back(context);
    return kSuccess;
  }
  CUresult context_pop(CUcontext* out) {
    begin("cuCtxPopCurrent");
    *out = current();
    contexts().pop_back();
    return kSuccess;
  }
  CUresult synchronize() {
    if (const CUresult fails = begin("cuCtxSynchronize")) return fails;
    end_all_work();
    return kSuccess;
  }

  CUresult event_create(CUevent* out, unsigned) {
    if (const CUresult fails = begin("cuEventCreate")) return fails;
    std::lock_guard hold(mutex_);
    events_[++last_event_] = {};
    *out = reinterpret_cast<CUevent>(last_event_);
    return kSuccess;
  }
  CUresult event_record(CUevent event, CUstream stream) {
    if (const CUresult fails = begin("cuEventRecord")) return fails;
    std::lock_guard hold(mutex_);
    needs_relaxed("cuEventRecord");
    if (!current()) return refuse("cuEventRecord without a context", kInvalidContext);
    auto known = events_.find(id_of(event));
    if (known == events_.end()) return refuse("cuEventRecord of an unknown event", kInvalidHandle);
    Point point;
    if (stream == legacy_stream()) {
      for (auto& [id, other] : streams_)
        if (other.blocking && other.alive) point[id] = other.enqueued;
    } else {
      auto found = streams_.find(id_of(stream));
      if (found == streams_.end() || !found->second.alive)
        return refuse("cuEventRecord on a stream that is gone", kInvalidHandle);
      point[id_of(stream)] = found->second.enqueued;
    }
    known->second = point;
    return kSuccess;
  }
  CUresult event_query(CUevent event) {
    if (const CUresult fails = begin("cuEventQuery")) return fails;
    std::lock_guard hold(mutex_);
    needs_relaxed("cuEventQuery");
    auto known = events_.find(id_of(event));
    if (known == events_.end()) return refuse("cuEventQuery of an unknown event", kInvalidHandle);
    return ended_locked(known->second) ? kSuccess : kNotReady;
  }
  CUresult stream_query(CUstream stream) {
    if (const CUresult fails = begin("cuStreamQuery")) return fails;
    std::lock_guard hold(mutex_);
    needs_relaxed("cuStreamQuery");
    auto found = streams_.find(id_of(stream));
    if (found == streams_.end() || !found->second.alive)
      return refuse("cuStreamQuery of a stream that is gone", kInvalidHandle);
    return found->second.ended == found->second.enqueued ? kSuccess : kNotReady;
  }
  CUresult exchange_capture_mode(int* wanted) {
    if (const CUresult fails = begin("cuThreadExchangeStreamCaptureMode")) return exchange_failed_ = true, fails;
    std::swap(mode(), *wanted);
    return kSuccess;
  }

  std::mutex mutex_;
  std::map<std::uintptr_t, Stream> streams_;
  std::uintptr_t last_stream_ = 0x100, last_event_ = 0x1000;
  std::map<std::uintptr_t, Point> events_;
  std::map<std::uintptr_t, Memory> memory_;
  std::uintptr_t next_address_ = std::uintptr_t{0x7f0000} << 20;
  std::map<std::string, int> calls_;
  std::map<std::string, CUresult> failing_;
  int fail_in_ = 0;
  CUresult fail_with_ = kUnknown;
  std::atomic<bool> exchange_failed_{false};
  std::vector<std::string> wrong_;
};

}  // namespace cistern::cuda::test
