// Replays lifetimes of buffers on device memory, or on pinned. `plugin` takes device memory by the functions that
// the preloaded object has for PyTorch, which name the stream; `plugin-whole` calls cistern_torch_use_whole_blocks.
// At each step the blocks that end there are freed, then those that begin there are allocated; a memset on a stream
// uses each new one.
//
//   cuda_lifetimes FILE.csv PASSES device|pinned|plugin|plugin-whole
//
// FILE has a line `id,lower,upper,size` for each buffer (half-open lifetime in steps, bytes), after a heading. Says, as
// one JSON object, the most that was live, with and without what the stream still used, the most that the driver had
// given at once, and the driver's calls.
#include <cistern/plugins.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "bench/cuda_bench.hpp"
#include "bench/trace.hpp"

namespace {

// The simulated driver counts what it has given; a real one's free memory tells.
std::uint64_t given_bytes(bool pinned) {
  return static_cast<std::uint64_t>(std::max(simcuda_value(pinned ? "live_pinned_bytes" : "live_bytes"), 0LL));
}

struct Calls {
  explicit Calls(bool pinned)
      : allocations(simcuda_value(pinned ? "pinned_allocs" : "allocs")),
        frees(simcuda_value(pinned ? "pinned_frees" : "frees")) {}
  long long allocations, frees, all = simcuda_value("calls");
};

// What the program has freed and the stream may still use: a free in deferred order waits for nothing.
class InUse {
 public:
  explicit InUse(CUstream stream) : stream_(stream) {}
  void add(std::size_t bytes) {
    CUevent event = nullptr;
    if (spare_.empty()) {
      MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    } else {
      event = spare_.back();
      spare_.pop_back();
    }
    MUST(cuEventRecord(event, stream_));
    freed_.push_back({event, bytes});
    bytes_ += bytes;
  }
  std::uint64_t bytes() {
    while (!freed_.empty() && cuEventQuery(freed_.front().event) == CUDA_SUCCESS) {
      bytes_ -= freed_.front().bytes;
      spare_.push_back(freed_.front().event);
      freed_.pop_front();
    }
    return bytes_;
  }

 private:
  struct Freed {
    CUevent event;
    std::size_t bytes;
  };
  const CUstream stream_;
  std::deque<Freed> freed_;
  std::vector<CUevent> spare_;
  std::uint64_t bytes_ = 0;
};

template <class Function>
Function* preloaded(Function*, const char* name) {
  auto* const found = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  if (!found) std::fprintf(stderr, "%s: not preloaded\n", name), std::exit(3);
  return found;
}
#define PRELOADED(name) preloaded(static_cast<decltype(::name)*>(nullptr), #name)

// One way to have memory and give it back.
struct Memory {
  CUdeviceptr (*take)(std::size_t bytes, CUstream stream);
  void (*give)(CUdeviceptr address, std::size_t bytes, CUstream stream);
};

CUdeviceptr as_device(void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
void* as_pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

constexpr Memory kDevice{[](std::size_t bytes, CUstream) {
                           CUdeviceptr address = 0;
                           MUST(cuMemAlloc(&address, bytes));
                           return address;
                         },
                         [](CUdeviceptr address, std::size_t, CUstream) { MUST(cuMemFree(address)); }};
constexpr Memory kPinned{[](std::size_t bytes, CUstream) {
                           void* pointer = nullptr;
                           MUST(cuMemAllocHost(&pointer, bytes));
                           return as_device(pointer);
                         },
                         [](CUdeviceptr address, std::size_t, CUstream) { MUST(cuMemFreeHost(as_pointer(address))); }};
constexpr Memory kPlugin{[](std::size_t bytes, CUstream stream) {
                           static const auto allocate = PRELOADED(cistern_torch_alloc);
                           void* const block = allocate(static_cast<ssize_t>(bytes), 0, stream);
                           if (!block) std::exit(4);
                           return as_device(block);
                         },
                         [](CUdeviceptr address, std::size_t bytes, CUstream stream) {
                           static const auto free = PRELOADED(cistern_torch_free);
                           free(as_pointer(address), static_cast<ssize_t>(bytes), 0, stream);
                         }};

const Memory& memory_of(const std::string& kind) {
  if (kind == "plugin-whole" && PRELOADED(cistern_torch_use_whole_blocks)() != CISTERN_OK) std::exit(5);
  return kind == "pinned" ? kPinned : kind == "device" ? kDevice : kPlugin;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) return 2;
  const bench::Trace trace = bench::read_trace(arguments[1]);
  const int passes = std::atoi(arguments[2]);
  const bool pinned = std::strcmp(arguments[3], "pinned") == 0;
  const Memory& memory = memory_of(arguments[3]);
  const bool in_order = &memory == &kPlugin;  // then work that is enqueued later may use what was freed
  MUST(cuCtxSetCurrent(bench::primary_context()));
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const std::uint64_t given_before = given_bytes(pinned);
  const Calls before(pinned);

  std::vector<CUdeviceptr> addresses(trace.bytes.size());
  InUse in_use(stream);
  std::uint64_t live = 0, live_peak = 0, used_peak = 0, given_peak = 0;
  const auto begin = bench::Clock::now();
  for (int pass = 0; pass < passes; ++pass) {
    for (const bench::Event& event : trace.events) {
      CUdeviceptr& address = addresses[event.buffer];
      const std::size_t bytes = trace.bytes[event.buffer];
      if (event.begins) {
        address = memory.take(bytes, stream);
        MUST(cuMemsetD8Async(address, 1, std::min<std::size_t>(bytes, 64), stream));
        live += bytes;
        live_peak = std::max(live_peak, live);
        used_peak = std::max(used_peak, live + in_use.bytes());
        given_peak = std::max(given_peak, given_bytes(pinned) - given_before);
      } else {
        memory.give(address, bytes, stream);
        live -= bytes;
        if (!in_order) in_use.add(bytes);
      }
    }
  }
  const double ns = bench::nanoseconds(bench::Clock::now() - begin);
  const Calls after(pinned);
  std::printf(
      "{\"allocations\": %zu, \"live_peak_bytes\": %llu, \"used_peak_bytes\": %llu, \"given_peak_bytes\": %llu, "
      "\"driver_allocations\": %lld, \"driver_frees\": %lld, \"driver_calls\": %lld, \"ns\": %.0f}\n",
      trace.bytes.size() * static_cast<std::size_t>(passes), static_cast<unsigned long long>(live_peak),
      static_cast<unsigned long long>(used_peak), static_cast<unsigned long long>(given_peak),
      after.allocations - before.allocations, after.frees - before.frees, after.all - before.all, ns);
}
