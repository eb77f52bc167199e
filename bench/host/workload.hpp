// What the workloads share: a seeded generator, stamps that show corruption, threads, and how a workload names itself.
// A workload does a fixed amount of work, so that CPU time and peak memory compare between allocators.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace host_bench {

struct Setting {
  unsigned threads;
  std::uint64_t seed;
};

/// One row of the list that main() looks its argument up in; a static object of the workload's own file.
class Workload {
 public:
  using Body = void (*)(const Setting&);
  Workload(const char* name, Body body) : name_(name), body_(body), next_(std::exchange(first(), this)) {}
  const char* name() const { return name_; }
  void run(const Setting& setting) const { body_(setting); }
  const Workload* next() const { return next_; }
  static Workload*& first() {
    static Workload* the_first = nullptr;
    return the_first;
  }

 private:
  const char* name_;
  Body body_;
  Workload* next_;
};

/// splitmix64
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t value = state_ += 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
  }
  std::size_t below(std::size_t end) { return static_cast<std::size_t>((next() >> 32) * end >> 32); }
  std::size_t between(std::size_t least, std::size_t most) { return least + below(most - least + 1); }
  bool chance(unsigned percent) { return below(100) < percent; }

 private:
  std::uint64_t state_;
};

inline void require(bool holds, const char* what) {
  if (holds) [[likely]]
    return;
  std::fprintf(stderr, "host workload: %s\n", what);
  std::_Exit(3);
}

/// Writes the first word and the last byte of a block: one that is given twice or moved wrongly loses them.
inline void stamp(void* block, std::size_t bytes, std::uint64_t tag) {
  auto* at = static_cast<unsigned char*>(block);
  if (bytes >= sizeof tag) std::memcpy(at, &tag, sizeof tag);
  at[bytes - 1] = static_cast<unsigned char>(tag >> 56);
}

inline void check_stamp(const void* block, std::size_t bytes, std::uint64_t tag) {
  const auto* at = static_cast<const unsigned char*>(block);
  require(bytes < sizeof tag || std::memcmp(at, &tag, sizeof tag - 1) == 0, "the first word of a block changed");
  require(at[bytes - 1] == static_cast<unsigned char>(tag >> 56), "the last byte of a block changed");
}

/// A stamped block of malloc that knows its size.
class Block {
 public:
  static Block make(std::size_t bytes, std::uint64_t tag) {
    Block block;
    block.at_ = std::malloc(bytes);
    require(block.at_ != nullptr, "malloc returned null");
    block.bytes_ = bytes;
    block.tag_ = tag;
    stamp(block.at_, bytes, tag);
    return block;
  }
  void release() {
    if (at_ == nullptr) return;
    check_stamp(at_, bytes_, tag_);
    std::free(std::exchange(at_, nullptr));
  }
  void resize(std::size_t bytes) {
    check_stamp(at_, bytes_, tag_);
    at_ = std::realloc(at_, bytes);
    require(at_ != nullptr, "realloc returned null");
    bytes_ = bytes;
    stamp(at_, bytes_, tag_);
  }
  explicit operator bool() const { return at_ != nullptr; }
  void* at() const { return at_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* at_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint64_t tag_ = 0;
};

/// Threads keep to cores of their own as long as there are enough: where the scheduler lets two of them take turns on
/// one core, what they cost each other does not show, and the figures have two modes.
inline void keep_to_core(unsigned number) {
  cpu_set_t allowed, chosen;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  unsigned skip = number % static_cast<unsigned>(CPU_COUNT(&allowed));
  int core = 0;
  while (!CPU_ISSET(core, &allowed) || skip-- > 0) ++core;
  CPU_ZERO(&chosen);
  CPU_SET(core, &chosen);
  sched_setaffinity(0, sizeof chosen, &chosen);
}

/// Runs body(number) in as many threads and waits for all.
template <typename Body>
void in_threads(unsigned count, const Body& body) {
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < count; ++number)
    threads.emplace_back([&body, number] {
      keep_to_core(number);
      body(number);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace host_bench
