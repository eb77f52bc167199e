// Loads a mapped file of weights in tensors, one after another, as readers of safetensors do. Prints the bytes a second
// of each load, from before the first copy until the last byte is there. Run by bench/staging.py, plain and under the
// shim in turn; one JSON object per load.
//
//   cuda_files [OPTION...] MEBIBYTES TENSORS LOADS
//
// The file is made in the folder that the program runs in. It is in the page cache, and each load maps it again, so no
// page was touched before.
//
//   --cold      it is dropped from the page cache before each load
//   --file=F    this file is loaded, and is not written to
//   --slices    tensors are of 3 KiB to 1 MiB, and as many of them as fit the file at most
//   --to-host   the other way: tensors are saved to the mapped file
//   --fresh     with that: to anonymous memory that is new
//   --by-hand   tensors go through two pinned buffers by turns: the best that the program can do itself
//   --waits     with that: it waits for each tensor, as a copy of one call does
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cuda_bench.hpp"

namespace bench {
namespace {

constexpr double kNanosecond = 1e-9;

struct Options {
  bool is_cold = false, by_hand = false, waits = false, has_slices = false, to_host = false, is_fresh = false;
  const char* file = nullptr;
};

int file_of(std::size_t bytes) {
  static char name[] = "cuda-files-XXXXXX";
  const int file = mkstemp(name);
  std::atexit([] { unlink(name); });
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
  virtual void save(char* tensor, CUdeviceptr from, std::size_t bytes) = 0;
  virtual void finish() {}
};

class Direct final : public Loader {
 public:
  void load(CUdeviceptr to, const char* tensor, std::size_t bytes) override { MUST(cuMemcpyHtoD(to, tensor, bytes)); }
  void save(char* tensor, CUdeviceptr from, std::size_t bytes) override { MUST(cuMemcpyDtoH(tensor, from, bytes)); }
};

class ByHand final : public Loader {
 public:
  explicit ByHand(bool waits) : waits_(waits) {
    MUST(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    for (Buffer& buffer : buffers_) {
      MUST(cuMemHostAlloc(&buffer.memory, kBytes, 0));
      MUST(cuEventCreate(&buffer.free, CU_EVENT_DISABLE_TIMING));
    }
  }
  ~ByHand() override {
    for (const Buffer& buffer : buffers_) {
      MUST(cuMemFreeHost(buffer.memory));
      MUST(cuEventDestroy(buffer.free));
    }
    MUST(cuStreamDestroy(stream_));
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
    if (waits_) MUST(cuStreamSynchronize(stream_));
  }
  // While one buffer is copied out of, the other one is filled.
  void save(char* tensor, CUdeviceptr from, std::size_t bytes) override {
    for (std::size_t done = 0; done < bytes; done += kBytes) {
      Buffer& buffer = buffers_[next_++ % 2];
      copy_out(buffer);
      buffer.target = tensor + done;
      buffer.bytes = std::min(kBytes, bytes - done);
      MUST(cuMemcpyDtoHAsync(buffer.memory, from + done, buffer.bytes, stream_));
      MUST(cuEventRecord(buffer.free, stream_));
    }
  }
  void finish() override {
    for (Buffer& buffer : buffers_) copy_out(buffer);
    MUST(cuStreamSynchronize(stream_));
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{4} << 20;
  struct Buffer {
    void* memory = nullptr;
    CUevent free = nullptr;
    char* target = nullptr;
    std::size_t bytes = 0;  // that are still to be copied out
  };
  static void copy_out(Buffer& buffer) {
    if (!buffer.bytes) return;
    MUST(cuEventSynchronize(buffer.free));
    std::memcpy(buffer.target, buffer.memory, buffer.bytes);
    buffer.bytes = 0;
  }
  const bool waits_;
  CUstream stream_ = nullptr;
  Buffer buffers_[2];
  std::size_t next_ = 0;
};

std::vector<std::size_t> sizes_of(const Options& options, std::size_t bytes, std::size_t tensors) {
  if (!options.has_slices) return std::vector<std::size_t>(tensors, bytes / tensors);
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> power(std::log2(3.0 * (1 << 10)), 20);
  std::vector<std::size_t> sizes;
  while (sizes.size() < tensors) {
    const auto size = static_cast<std::size_t>(std::exp2(power(random)));
    if (size > bytes) break;
    bytes -= size;
    sizes.push_back(size);
  }
  return sizes;
}

// All tensors go to one block: only the copies count.
void load_all(Loader& loader, const Options& options, int file, std::size_t bytes,
              const std::vector<std::size_t>& sizes, CUdeviceptr device) {
  const auto begin = Clock::now();
  const int rights = options.to_host ? PROT_READ | PROT_WRITE : PROT_READ;
  const int flags = options.is_fresh ? MAP_PRIVATE | MAP_ANONYMOUS : options.to_host ? MAP_SHARED : MAP_PRIVATE;
  auto* const weights = static_cast<char*>(mmap(nullptr, bytes, rights, flags, options.is_fresh ? -1 : file, 0));
  if (weights == MAP_FAILED) std::exit(1);
  std::size_t at = 0;
  for (const std::size_t size : sizes) {
    options.to_host ? loader.save(weights + at, device, size) : loader.load(device, weights + at, size);
    at += size;
  }
  loader.finish();
  MUST(cuCtxSynchronize());
  const double took = nanoseconds(Clock::now() - begin) * kNanosecond;
  munmap(weights, bytes);
  std::printf("{\"bytes\": %zu, \"tensors\": %zu, \"rate\": %.0f}\n", at, sizes.size(), static_cast<double>(at) / took);
  std::fflush(stdout);
}

bool parse(Options& options, std::string_view argument) {
  constexpr std::string_view kFile = "--file=";
  if (argument.starts_with(kFile)) return options.file = argument.data() + kFile.size(), true;
  bool* const flag = argument == "--cold"      ? &options.is_cold
                     : argument == "--by-hand" ? &options.by_hand
                     : argument == "--waits"   ? &options.waits
                     : argument == "--slices"  ? &options.has_slices
                     : argument == "--to-host" ? &options.to_host
                     : argument == "--fresh"   ? &options.is_fresh
                                               : nullptr;
  return flag && (*flag = true);
}

}  // namespace
}  // namespace bench

int main(int count, char** arguments) {
  bench::Options options;
  int next = 1;
  while (next < count && bench::parse(options, arguments[next])) ++next;
  if (count != next + 3) return std::fputs("cuda_files [OPTION...] MEBIBYTES TENSORS LOADS\n", stderr), 2;
  const auto number = [&](int i) { return std::strtoull(arguments[next + i], nullptr, 0); };
  const std::size_t bytes = number(0) << 20;
  const std::vector<std::size_t> sizes = bench::sizes_of(options, bytes, number(1));
  const int file = options.file ? open(options.file, O_RDONLY) : bench::file_of(bytes);
  MUST(cuCtxSetCurrent(bench::primary_context()));
  CUdeviceptr device = 0;
  MUST(cuMemAlloc(&device, *std::max_element(sizes.begin(), sizes.end())));
  std::unique_ptr<bench::Loader> loader;
  if (options.by_hand)
    loader = std::make_unique<bench::ByHand>(options.waits);
  else
    loader = std::make_unique<bench::Direct>();
  for (unsigned long long load = 0; load < number(2); ++load) {
    if (options.is_cold) bench::drop_from_cache(file);
    bench::load_all(*loader, options, file, bytes, sizes, device);
  }
  MUST(cuMemFree(device));
}
