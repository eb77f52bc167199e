// Buffers that grow by realloc: many side by side, by a word, by half, or doubled, from a few bytes to megabytes; then
// shrunk to fit. The whole content is proved to have moved along.
#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kBuffers = 64, kBytesMax = 2 << 20, kFewBytes = 2048;
constexpr unsigned kGenerations = 15;

struct Buffer {
  unsigned char* at;
  std::size_t bytes, end;
  unsigned first;
};

void resize(Buffer& buffer, std::size_t bytes) {
  buffer.at = static_cast<unsigned char*>(std::realloc(buffer.at, bytes));
  require(buffer.at != nullptr, "realloc returned null");
  for (; buffer.bytes < bytes; ++buffer.bytes)
    buffer.at[buffer.bytes] = static_cast<unsigned char>(buffer.first + buffer.bytes);
  buffer.bytes = bytes;
}

std::size_t next_size(std::size_t bytes, std::size_t how) {
  if (how == 0 && bytes < kFewBytes) return bytes + 16;
  return how == 1 ? 2 * bytes : bytes + bytes / 2;
}

void run(const Setting& setting) {
  Random random(setting.seed);
  for (unsigned generation = 0; generation < kGenerations; ++generation) {
    std::vector<Buffer> growing(kBuffers);
    for (std::size_t at = 0; at < kBuffers; ++at) {
      growing[at] = {nullptr, 0, std::size_t{64} << random.below(16), static_cast<unsigned>(at)};
      resize(growing[at], random.between(8, 64));
    }
    // Round robin, so that no buffer grows at the end of the heap for long.
    for (bool all_done = false; !all_done;) {
      all_done = true;
      for (std::size_t at = 0; at < kBuffers; ++at) {
        Buffer& buffer = growing[at];
        if (buffer.bytes >= buffer.end || buffer.bytes >= kBytesMax) continue;
        resize(buffer, next_size(buffer.bytes, at % 3));
        all_done = false;
      }
    }
    for (Buffer& buffer : growing) {
      resize(buffer, buffer.bytes - buffer.bytes / 5);
      for (std::size_t at = 0; at < buffer.bytes; ++at)
        require(buffer.at[at] == static_cast<unsigned char>(buffer.first + at), "a byte changed");
      std::free(buffer.at);
    }
  }
}

const Workload realloc_growth("realloc_growth", run);

}  // namespace
}  // namespace host_bench
