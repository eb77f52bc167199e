// The link between the host and one device, as time: copy engines that copies occupy, and the driver's one buffer for
// pageable memory. With its settings at 0 bytes are moved at once and nobody waits.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>

namespace simcuda {

enum class Direction { kToDevice, kToHost };

// The pageable memory of a copy.
enum class HostMemory { kAnonymous, kFile };

// Moves bytes of a copy, counted from its first one: the copy knows where they are.
using MovePart = std::function<void(size_t begin, size_t bytes)>;

// One copy after another, in the order in which they ask for it.
class CopyEngine {
 public:
  using Clock = std::chrono::steady_clock;
  // When a copy begins that takes so long.
  Clock::time_point reserve(Clock::duration time);

 private:
  std::mutex lock_;
  Clock::time_point free_at_{};
};

// A lock for std::lock_guard: first come, first served. Who asks again at once gets it after those who wait.
class Turns {
 public:
  void lock();
  void unlock();

 private:
  std::atomic<unsigned> next_{0}, served_{0};
};

class Link {
 public:
  // [assumed] What fits in the driver's buffer.
  static constexpr size_t kBufferBytes = size_t{4} << 20;
  // Whether pageable memory goes through the buffer now.
  static bool has_buffer();

  // Moves the bytes while a copy engine is occupied; returns when their time is over.
  void send(Direction direction, size_t bytes, const MovePart& move);
  // From or to pageable memory: through the buffer if there is one.
  void send_pageable(Direction direction, HostMemory memory, size_t bytes, const MovePart& move);
  // The same to the device in two steps, for at most what fits in the buffer: the source is read, then it is sent.
  void read_into_buffer(HostMemory memory, size_t bytes, const MovePart& read);
  void send_from_buffer(size_t bytes, const MovePart& move);

 private:
  CopyEngine& engine_for(Direction direction);
  void occupy_engine(Direction direction, double megabytes_per_second, size_t bytes, const MovePart& move);
  CopyEngine engines_[2];
  Turns buffer_;
};

}  // namespace simcuda
