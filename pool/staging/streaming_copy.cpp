// Whole lines of 64 bytes by stores that pass the caches by; what is left before the first and after the last of them
// by memcpy.
#include "pool/staging/streaming_copy.hpp"

#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace cistern::staging {
namespace {

constexpr std::size_t kLineBytes = 64;
// The head is shorter than that.
constexpr std::size_t kStreamedBytesMin = 2 * kLineBytes;
// Measured on an Ice Lake server: into all caches and 2 KiB ahead 8.3 GiB/s, 512 bytes ahead 7.5, not at all 6.5;
// non-temporal prefetches made it 4. A prefetch never faults, wherever it leads.
[[maybe_unused]] constexpr std::size_t kAheadBytes = 2048;

// `to` is aligned to a line.
#if defined(__x86_64__)

void stream_lines(char* to, const char* from, std::size_t bytes) {
  for (; bytes != 0; bytes -= kLineBytes, to += kLineBytes, from += kLineBytes) {
    _mm_prefetch(from + kAheadBytes, _MM_HINT_T0);
    const auto* const source = reinterpret_cast<const __m128i*>(from);
    auto* const line = reinterpret_cast<__m128i*>(to);
    const __m128i first = _mm_loadu_si128(source), second = _mm_loadu_si128(source + 1);
    const __m128i third = _mm_loadu_si128(source + 2), fourth = _mm_loadu_si128(source + 3);
    _mm_stream_si128(line, first);
    _mm_stream_si128(line + 1, second);
    _mm_stream_si128(line + 2, third);
    _mm_stream_si128(line + 3, fourth);
  }
  _mm_sfence();
}

#elif defined(__aarch64__)

// These are ordered as other stores are.
void stream_lines(char* to, const char* from, std::size_t bytes) {
  for (; bytes != 0; bytes -= kLineBytes, to += kLineBytes, from += kLineBytes)
    asm volatile(
        "ldp q0, q1, [%1]\n\t"
        "ldp q2, q3, [%1, #32]\n\t"
        "stnp q0, q1, [%0]\n\t"
        "stnp q2, q3, [%0, #32]"
        :
        : "r"(to), "r"(from)
        : "v0", "v1", "v2", "v3", "memory");
}

#endif

}  // namespace

void streaming_copy(void* to, const void* from, std::size_t bytes, Stores stores) {
  if (stores == Stores::cached || bytes < kStreamedBytesMin) {
    if (bytes != 0) std::memcpy(to, from, bytes);
    return;
  }
  auto* const at = static_cast<char*>(to);
  const auto* const source = static_cast<const char*>(from);
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(at) % kLineBytes;
  const std::size_t lines = (bytes - head) / kLineBytes * kLineBytes, tail = bytes - head - lines;
  std::memcpy(at, source, head);
  std::memcpy(at + head + lines, source + head + lines, tail);
  stream_lines(at + head, source + head, lines);
}

}  // namespace cistern::staging
