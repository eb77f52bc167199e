// Loads a mapped file of weights in tensors, one after another, as readers of safetensors do. Prints the bytes a second
// of each load, from before the first copy until the last byte is there. Run by bench/staging.py, plain and under the
// shim in turn; one JSON object per load.
//
//   cuda_files [--cold] [--by-hand] MEBIBYTES TENSORS LOADS
//
// The file is made in the folder that the program runs in. It is in the page cache, and each load maps it again, so no
// page was touched before. --cold: it is dropped from the page cache before each load. --by-hand: the program reads
// tensors into two pinned buffers by turns, and copies those: the best that it can do itself.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "bench/cuda_bench.hpp"

namespace bench {
namespace {

constexpr double kNanosecond = 1e-9;

int file_of(std::size_t bytes) {
  char name[] = "cuda-files-XXXXXX";
  const int file = mkstemp(name);
  unlink(name);
  struct statfs found {};
  fstatfs(file, &found);
  if (found.f_type == TMPFS_MAGIC) std::fputs("the folder is in memory: its files are no mapped files\n", stderr);
  const std::vector<char> part(std::size_t{1} << 20, 'w');
  for (std::size_t written = 0; written < bytes; written += part.size())
    if (write(file, part.data(), part.size()) != static_cast<ssize_t>(part.size())) std::exit(1);
  return file;
}

void drop_from_cache(int file) {
  fsync(file);
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
}

class Loader {
 public:
  virtual ~Loader() = default;
  virtual void load(CUdeviceptr to, const char* tensor, std::size_t bytes) = 0;
  virtual void finish() {}
};

class Direct final : public Loader {
 public:
  void load(CUdeviceptr to, const char* tensor, std::size_t bytes) override { MUST(cuMemcpyHtoD(to, tensor, bytes)); }
};

class ByHand final : public Loader {
 public:
  ByHand() {
    MUST(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    for (Buffer& buffer : buffers_) {
      MUST(cuMemHostAlloc(&buffer.memory, kBytes, 0));
      MUST(cuEventCreate(&buffer.free, CU_EVENT_DISABLE_TIMING));
    }
  }
  void load(CUdeviceptr to, const char* tensor, std::size_t bytes) override {
    for (std::size_t done = 0; done < bytes; done += kBytes) {
      Buffer& buffer = buffers_[next_++ % 2];
      const std::size_t part = std::min(kBytes, bytes - done);
      MUST(cuEventSynchronize(buffer.free));
      std::memcpy(buffer.memory, tensor + done, part);
      MUST(cuMemcpyHtoDAsync(to + done, buffer.memory, part, stream_));
      MUST(cuEventRecord(buffer.free, stream_));
    }
  }
  void finish() override { MUST(cuStreamSynchronize(stream_)); }

 private:
  static constexpr std::size_t kBytes = std::size_t{4} << 20;
  struct Buffer {
    void* memory = nullptr;
    CUevent free = nullptr;
  };
  CUstream stream_ = nullptr;
  Buffer buffers_[2];
  std::size_t next_ = 0;
};

// All tensors go to one block: only the copies count.
void load_all(Loader& loader, int file, std::size_t bytes, std::size_t tensors, CUdeviceptr device) {
  const auto begin = Clock::now();
  auto* const weights = static_cast<char*>(mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0));
  if (weights == MAP_FAILED) std::exit(1);
  const std::size_t each = bytes / tensors;
  for (std::size_t i = 0; i < tensors; ++i) loader.load(device, weights + i * each, each);
  loader.finish();
  MUST(cuCtxSynchronize());
  const double took = nanoseconds(Clock::now() - begin) * kNanosecond;
  munmap(weights, bytes);
  std::printf("{\"bytes\": %zu, \"tensors\": %zu, \"rate\": %.0f}\n", bytes, tensors,
              static_cast<double>(each * tensors) / took);
  std::fflush(stdout);
}

}  // namespace
}  // namespace bench

int main(int count, char** arguments) {
  bool is_cold = false, by_hand = false;
  int next = 1;
  for (; next < count && std::strncmp(arguments[next], "--", 2) == 0; ++next)
    (std::strcmp(arguments[next], "--cold") == 0 ? is_cold : by_hand) = true;
  if (count != next + 3) return std::fputs("cuda_files [--cold] [--by-hand] MEBIBYTES TENSORS LOADS\n", stderr), 2;
  const auto number = [&](int i) { return std::strtoull(arguments[next + i], nullptr, 0); };
  const std::size_t bytes = number(0) << 20, tensors = number(1);
  const int file = bench::file_of(bytes);
  MUST(cuCtxSetCurrent(bench::primary_context()));
  CUdeviceptr device = 0;
  MUST(cuMemAlloc(&device, bytes / tensors));
  bench::Direct direct;
  bench::ByHand pinned;
  bench::Loader& loader = by_hand ? static_cast<bench::Loader&>(pinned) : direct;
  for (unsigned long long load = 0; load < number(2); ++load) {
    if (is_cold) bench::drop_from_cache(file);
    bench::load_all(loader, file, bytes, tensors, device);
  }
  MUST(cuMemFree(device));
}
