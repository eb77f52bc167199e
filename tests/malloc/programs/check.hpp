// What these programs share: a check that ends the process with a line, and a seeded generator.
#pragma once
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace check {

inline uint64_t& seed() {
  static uint64_t value = 1;
  return value;
}

// Prints the reason with the seed and ends at once: destructors and other threads would meet what is broken.
[[noreturn, gnu::format(printf, 1, 2)]] inline void fail(const char* format, ...) {
  static std::mutex first_one_only;
  first_one_only.lock();
  char line[600];
  int length = snprintf(line, sizeof line, "broken (seed %llu): ", static_cast<unsigned long long>(seed()));
  va_list arguments;
  va_start(arguments, format);
  length += vsnprintf(line + length, sizeof line - static_cast<size_t>(length) - 1, format, arguments);
  va_end(arguments);
  if (length > static_cast<int>(sizeof line) - 2) length = sizeof line - 2;
  line[length++] = '\n';
  if (write(STDOUT_FILENO, line, static_cast<size_t>(length)) < 0) _exit(2);
  _exit(1);
}

#define REQUIRE(condition)                                                        \
  do {                                                                            \
    if (!(condition)) ::check::fail("%s:%d: %s", __FILE__, __LINE__, #condition); \
  } while (false)

// splitmix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>((next() >> 32) * bound >> 32); }

 private:
  uint64_t state_;
};

inline uint64_t argument(int count, char** arguments, int index, uint64_t otherwise) {
  return count > index ? strtoull(arguments[index], nullptr, 10) : otherwise;
}

inline long resident_kb() {
  FILE* status = fopen("/proc/self/status", "r");
  char line[256];
  long kb = -1;
  while (status && fgets(line, sizeof line, status)) sscanf(line, "VmRSS: %ld", &kb);
  if (status) fclose(status);
  return kb;
}

inline bool is_aligned(const void* block, size_t alignment) {
  return (reinterpret_cast<uintptr_t>(block) & (alignment - 1)) == 0;
}

}  // namespace check
