// What CUDA memory costs a program, through the driver API: a free and an allocation of the same size among many live
// blocks, on several threads (pairs); and calls that are only observed (calls). Run by bench/cuda.py, plain and under
// the shim in turn; one JSON object per line. `mixed` is in cuda_mixed.cpp.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/cuda_bench.hpp"

namespace bench {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;
constexpr std::uint64_t kFillerBytes = 4 * kKiB;

// --- Pairs

struct Size {
  const char* name;
  cistern_kind kind;
  std::uint64_t bytes;
};
constexpr Size kSizes[] = {{"device 4 KiB", CISTERN_DEVICE, 4 * kKiB},
                           {"device 1 MiB", CISTERN_DEVICE, kMiB},
                           {"device 16 MiB", CISTERN_DEVICE, 16 * kMiB},
                           {"pinned 4 KiB", CISTERN_PINNED, 4 * kKiB},
                           {"pinned 16 MiB", CISTERN_PINNED, 16 * kMiB}};

using Address = std::uintptr_t;

[[gnu::noinline]] Address take(const Size& size, std::uint64_t bytes) {
  if (size.kind == CISTERN_DEVICE) {
    CUdeviceptr device = 0;
    MUST(cuMemAlloc(&device, bytes));
    return device;
  }
  void* host = nullptr;
  MUST(cuMemHostAlloc(&host, bytes, 0));
  return reinterpret_cast<Address>(host);
}

[[gnu::noinline]] void give(const Size& size, Address block) {
  if (size.kind == CISTERN_DEVICE)
    MUST(cuMemFree(block));
  else
    MUST(cuMemFreeHost(reinterpret_cast<void*>(block)));
}

// The live blocks of one measurement: of the measured size as many as fit into the budget, the others small.
class LiveBlocks {
 public:
  LiveBlocks(const Size& size, std::size_t count) : size_(size) {
    Quick quick;
    std::size_t total = 0;
    MUST(cuDeviceTotalMem(&total, 0));
    const std::uint64_t budget = size.kind == CISTERN_DEVICE ? std::min<std::uint64_t>(16 * kGiB, total / 4) : kGiB;
    measured.resize(std::clamp<std::size_t>(budget / size.bytes, 16, count));
    for (Address& block : measured) block = take(size, size.bytes);
    for (std::size_t i = measured.size(); i < count; ++i) fillers_.push_back(take(size, kFillerBytes));
  }
  ~LiveBlocks() {
    Quick quick;
    for (Address block : measured) give(size_, block);
    for (Address block : fillers_) give(size_, block);
    trim(size_.kind);
  }
  LiveBlocks(const LiveBlocks&) = delete;
  LiveBlocks& operator=(const LiveBlocks&) = delete;

  std::vector<Address> measured;

 private:
  const Size& size_;
  std::vector<Address> fillers_;
};

struct Slice {
  Address* first;
  std::size_t count;
};

// Frees a random block of the slice and allocates another, until told to stop. Returns how often.
std::uint64_t run_pairs(const Size& size, Slice slice, unsigned seed, const std::atomic<bool>& stop) {
  std::minstd_rand random(seed);
  std::uint64_t pairs = 0;
  for (; !stop.load(std::memory_order_relaxed); ++pairs) {
    Address& block = slice.first[random() % slice.count];
    give(size, block);
    block = take(size, size.bytes);
  }
  return pairs;
}

double processor_ns() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

// Nanoseconds per pair, on as many cores as there are threads: by the clock on the wall and by what the threads used.
struct Cost {
  double wall_ns, processor_ns;
};

Cost cost_of_pairs(const Size& size, LiveBlocks& live, int threads, std::chrono::milliseconds duration, unsigned seed) {
  std::atomic<bool> go{false}, stop{false};
  std::atomic<int> ready{0};
  std::atomic<std::uint64_t> pairs{0};
  std::atomic<double> used_ns{0};
  std::vector<std::thread> workers;
  const std::size_t share = live.measured.size() / static_cast<std::size_t>(threads);
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      MUST(cuCtxSetCurrent(primary_context()));
      const Slice slice{live.measured.data() + share * static_cast<std::size_t>(i), share};
      for (std::size_t j = 0; j < 4; ++j) {
        give(size, slice.first[j]);
        slice.first[j] = take(size, size.bytes);
      }
      ready.fetch_add(1);
      while (!go.load()) std::this_thread::yield();
      const double before = processor_ns();
      pairs.fetch_add(run_pairs(size, slice, seed + static_cast<unsigned>(i), stop));
      used_ns.fetch_add(processor_ns() - before);
    });
  }
  while (ready.load() < threads) std::this_thread::yield();
  const auto begin = Clock::now();
  go.store(true);
  std::this_thread::sleep_for(duration);
  stop.store(true);
  for (std::thread& worker : workers) worker.join();
  const int cores = std::min<int>(threads, static_cast<int>(std::thread::hardware_concurrency()));
  const auto count = static_cast<double>(pairs.load());
  return {nanoseconds(Clock::now() - begin) * cores / count, used_ns.load() / count};
}

void measure_pairs(std::chrono::milliseconds duration, unsigned seed, const std::string& only) {
  for (const Size& size : kSizes) {
    if (!only.empty() && only != size.name) continue;
    for (const std::size_t count : {std::size_t{100}, std::size_t{100'000}}) {
      LiveBlocks live(size, count);
      for (const int threads : {1, 2, 4}) {
        const cistern_statistics before = statistics(size.kind);
        const Cost cost = cost_of_pairs(size, live, threads, duration, seed);
        const cistern_statistics after = statistics(size.kind);
        const std::uint64_t allocations = after.allocations - before.allocations;
        const double hits =
            allocations ? static_cast<double>(after.pool_hits - before.pool_hits) / static_cast<double>(allocations)
                        : 0;
        std::printf("{\"name\": \"%s, %zu live, %d thread%s\", \"ns\": %.1f, \"processor_ns\": %.1f, \"hits\": %.5f}\n",
                    size.name, count, threads, threads == 1 ? "" : "s", cost.wall_ns, cost.processor_ns, hits);
      }
    }
  }
}

// --- Calls that the shim only observes

struct Observed {
  CUstream stream = nullptr;
  CUfunction kernel = nullptr;
  CUdeviceptr device = 0;
  void* pinned = nullptr;
  char pageable[64] = {};
};

void no_work(void**) {}

Observed prepare_observed() {
  constexpr const char* kKernel = ".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }\n";
  simcuda_define("nothing", nullptr, no_work, 0, nullptr);
  Observed on;
  CUmodule module = nullptr;
  MUST(cuStreamCreate(&on.stream, CU_STREAM_NON_BLOCKING));
  MUST(cuModuleLoadData(&module, kKernel));
  MUST(cuModuleGetFunction(&on.kernel, module, "nothing"));
  MUST(cuMemAlloc(&on.device, kMiB));
  MUST(cuMemHostAlloc(&on.pinned, kMiB, 0));
  return on;
}

// Calls in batches; the stream is emptied between them, which is not measured.
template <class Call>
void measure_call(const char* name, CUstream stream, std::chrono::milliseconds duration, Call call) {
  constexpr int kBatch = 32;
  double best = 0;
  const auto end = Clock::now() + duration;
  do {
    const auto begin = Clock::now();
    for (int i = 0; i < kBatch; ++i) call();
    const double cost = nanoseconds(Clock::now() - begin) / kBatch;
    if (best == 0 || cost < best) best = cost;
    MUST(cuStreamSynchronize(stream));
  } while (Clock::now() < end);
  std::printf("{\"name\": \"%s\", \"ns\": %.1f}\n", name, best);
}

void measure_calls(std::chrono::milliseconds duration) {
  Observed on = prepare_observed();
  std::size_t free_bytes = 0, total_bytes = 0, range_bytes = 0;
  int type = 0;
  const auto measure = [&](const char* name, auto call) { measure_call(name, on.stream, duration, call); };
  measure("launch", [&] { MUST(cuLaunchKernel(on.kernel, 1, 1, 1, 1, 1, 1, 0, on.stream, nullptr, nullptr)); });
  measure("copy 64 B async, pinned to device", [&] { MUST(cuMemcpyHtoDAsync(on.device, on.pinned, 64, on.stream)); });
  measure("copy 64 B async, pageable to device",
          [&] { MUST(cuMemcpyHtoDAsync(on.device, on.pageable, 64, on.stream)); });
  measure("copy 64 B async, device to device",
          [&] { MUST(cuMemcpyDtoDAsync(on.device, on.device + 4096, 64, on.stream)); });
  CUcontext current = nullptr;
  measure("cuCtxGetCurrent", [&] { MUST(cuCtxGetCurrent(&current)); });
  measure("cuCtxSynchronize, idle", [&] { MUST(cuCtxSynchronize()); });
  measure("cuStreamSynchronize, idle", [&] { MUST(cuStreamSynchronize(on.stream)); });
  measure("cuPointerGetAttribute, memory type",
          [&] { MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, on.device)); });
  measure("cuPointerGetAttribute, range size",
          [&] { MUST(cuPointerGetAttribute(&range_bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, on.device)); });
  measure("cuMemGetInfo", [&] { MUST(cuMemGetInfo(&free_bytes, &total_bytes)); });
}

// The 1-thread hit loop and nothing else, for a profiler.
void profile(const char* kind, std::uint64_t bytes, std::uint64_t pairs) {
  const Size size{"profiled", std::strcmp(kind, "pinned") ? CISTERN_DEVICE : CISTERN_PINNED, bytes};
  for (std::uint64_t i = 0; i < pairs; ++i) give(size, take(size, bytes));
}

int usage() {
  std::fputs(
      "cuda_blocks pairs MILLISECONDS SEED [SIZE] | calls MILLISECONDS | mixed SEED THREADS STEPS |\n"
      "            profile device|pinned BYTES PAIRS\n",
      stderr);
  return 2;
}

}  // namespace
}  // namespace bench

int main(int count, char** arguments) {
  using namespace bench;
  const std::string what = count > 1 ? arguments[1] : "";
  const auto number = [&](int index) { return index < count ? std::strtoull(arguments[index], nullptr, 10) : 0; };
  MUST(cuInit(0));
  MUST(cuCtxSetCurrent(primary_context()));
  if (what == "pairs" && count > 3)
    measure_pairs(std::chrono::milliseconds(number(2)), static_cast<unsigned>(number(3)),
                  count > 4 ? arguments[4] : "");
  else if (what == "calls" && count > 2)
    measure_calls(std::chrono::milliseconds(number(2)));
  else if (what == "mixed" && count > 4)
    return mixed(number(2), static_cast<int>(number(3)), static_cast<int>(number(4)));
  else if (what == "profile" && count > 4)
    profile(arguments[2], number(3), number(4));
  else
    return usage();
}
