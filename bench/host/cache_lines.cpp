// False sharing, after Berger's Hoard benchmarks: threads write small blocks again and again. In cache_thrash each
// allocates its own: an allocator must not give parts of one cache line to several threads. In cache_scratch each first
// frees a block of the main thread: it must not come back beside another thread's.
#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kBytes = 8;
constexpr unsigned kBlocksAll = 40'000, kWrites = 10'000;

void write_blocks(unsigned count, unsigned thread) {
  for (unsigned done = 0; done < count; ++done) {
    auto* block = static_cast<volatile unsigned char*>(std::malloc(kBytes));
    require(block != nullptr, "malloc returned null");
    for (std::size_t at = 0; at < kBytes; ++at) block[at] = static_cast<unsigned char>(thread);
    for (unsigned write = 0; write < kWrites; ++write) block[write % kBytes] = block[write % kBytes] + 1;
    // Each of the eight bytes was incremented equally often.
    for (std::size_t at = 0; at < kBytes; ++at)
      require(block[at] == static_cast<unsigned char>(thread + kWrites / kBytes), "a byte changed");
    std::free(const_cast<unsigned char*>(block));
  }
}

void thrash(const Setting& setting) {
  in_threads(setting.threads, [&](unsigned number) { write_blocks(kBlocksAll / setting.threads, number); });
}

void scratch(const Setting& setting) {
  std::vector<void*> first(setting.threads);
  for (void*& block : first) block = std::malloc(kBytes);
  in_threads(setting.threads, [&](unsigned number) {
    std::free(first[number]);
    write_blocks(kBlocksAll / setting.threads, number);
  });
}

const Workload cache_thrash("cache_thrash", thrash), cache_scratch("cache_scratch", scratch);

}  // namespace
}  // namespace host_bench
