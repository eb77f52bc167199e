// Copies between host memory and a device, through the driver API: bytes a second by size, direction, kind of host
// memory and number of threads, each on a stream of its own. Run by bench/staging.py and scripts/gpu-check, plain and
// under the shim in turn; one JSON object per line. Each figure is of the best of its copies; those in which Cistern
// finds out which way is faster come before them.
//
//   cuda_copies [--warm-up=COPIES] [--mapped] [--in-place] [BYTES]...
//
// --mapped: pageable memory that the program maps itself is measured too: malloc's is Cistern's where it is preloaded.
// --in-place: pageable memory that is page-locked for each copy, and unlocked after it, is measured too.
#include <sys/mman.h>

#include <barrier>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "bench/cuda_bench.hpp"

namespace bench {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr int kRounds = 5;
int warm_up = 24;
bool mapped = false, in_place = false;
constexpr double kNanosecond = 1e-9;

enum class Memory { pinned, pageable, mapped, pinned_in_place };
constexpr const char* kNames[] = {"pinned", "pageable", "mapped", "pinned in place"};

struct Way {
  bool to_device;
  Memory memory;
  unsigned streams;
  std::size_t bytes;
};

// What one thread copies with: memory that has been touched.
class Copier {
 public:
  explicit Copier(const Way& way) : way_(way) {
    MUST(cuCtxSetCurrent(primary_context()));
    MUST(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc(&device_, way.bytes));
    if (way.memory == Memory::pinned)
      MUST(cuMemHostAlloc(&host_, way.bytes, 0));
    else if (way.memory == Memory::mapped)
      host_ = mmap(nullptr, way.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else
      host_ = std::malloc(way.bytes);
    std::memset(host_, 7, way.bytes);
  }
  ~Copier() {
    if (way_.memory == Memory::pinned)
      MUST(cuMemFreeHost(host_));
    else if (way_.memory == Memory::mapped)
      munmap(host_, way_.bytes);
    else
      std::free(host_);
    MUST(cuMemFree(device_));
    MUST(cuStreamDestroy(stream_));
  }
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  // Until the bytes are there.
  void copy() {
    if (way_.memory == Memory::pinned_in_place) MUST(cuMemHostRegister(host_, way_.bytes, 0));
    if (way_.to_device)
      MUST(cuMemcpyHtoDAsync(device_, host_, way_.bytes, stream_));
    else
      MUST(cuMemcpyDtoHAsync(host_, device_, way_.bytes, stream_));
    MUST(cuStreamSynchronize(stream_));
    if (way_.memory == Memory::pinned_in_place) MUST(cuMemHostUnregister(host_));
  }

 private:
  const Way way_;
  CUstream stream_ = nullptr;
  CUdeviceptr device_ = 0;
  void* host_ = nullptr;
};

// The best copy of one stream; all copies of several, from when the last of them has warmed up.
double best_rate(const Way& way) {
  std::barrier begin(way.streams), end(way.streams);
  double best = 0;
  const auto copy = [&](bool first) {
    MUST(cuCtxSetCurrent(primary_context()));
    Copier copier(way);
    for (int round = 0; round < warm_up; ++round) copier.copy();
    for (int round = 0; round < kRounds; ++round) {
      begin.arrive_and_wait();
      const auto begun = Clock::now();
      copier.copy();
      end.arrive_and_wait();
      const double took = static_cast<double>((Clock::now() - begun).count()) * kNanosecond;
      if (first) best = std::max(best, static_cast<double>(way.bytes) * way.streams / took);
    }
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < way.streams; ++i) others.emplace_back(copy, false);
  copy(true);
  for (std::thread& thread : others) thread.join();
  return best;
}

void measure(std::size_t bytes) {
  for (const unsigned streams : {1u, 4u})
    for (const bool to_device : {true, false})
      for (const Memory memory : {Memory::pinned, Memory::pageable, Memory::mapped, Memory::pinned_in_place}) {
        if ((memory == Memory::mapped && !mapped) || (memory == Memory::pinned_in_place && !in_place)) continue;
        const Way way{to_device, memory, streams, bytes};
        std::printf("{\"bytes\": %zu, \"direction\": \"%s\", \"memory\": \"%s\", \"streams\": %u, \"rate\": %.0f}\n",
                    bytes, to_device ? "host to device" : "device to host", kNames[static_cast<int>(memory)], streams,
                    best_rate(way));
        std::fflush(stdout);
      }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  std::vector<std::size_t> sizes;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--warm-up="))
      bench::warm_up = std::atoi(argument.c_str() + argument.find('=') + 1);
    else if (argument == "--mapped")
      bench::mapped = true;
    else if (argument == "--in-place")
      bench::in_place = true;
    else
      sizes.push_back(std::strtoull(argv[i], nullptr, 0));
  }
  if (sizes.empty())
    for (const std::size_t mebibytes : {1, 4, 16, 64}) sizes.push_back(mebibytes * bench::kMiB);
  MUST(cuCtxSetCurrent(bench::primary_context()));
  for (const std::size_t bytes : sizes) bench::measure(bytes);
}
