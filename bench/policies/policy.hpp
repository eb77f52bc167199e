// A policy of device memory, as bench/replay runs it: blocks for the program, out of a device that only counts.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "bench/policies/device.hpp"

namespace bench {

// When freed memory can be used again:
//   strict    immediately, since a free waits for all work
//   deferred  after the work that was there at the free has ended
//   stream    the same, but work of the same stream need not wait
enum class Order { strict, deferred, stream };

class Policy {
 public:
  Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;
  virtual ~Policy() = default;

  // For work on this stream. Nothing: the device is out of memory.
  virtual std::optional<std::uint64_t> allocate(std::uint64_t bytes, unsigned stream) = 0;
  // `bytes`: as it was allocated. The stream may be another one.
  virtual void deallocate(std::uint64_t address, std::uint64_t bytes, unsigned stream) = 0;
  // Pieces of memory that were mapped from one address to another.
  virtual std::uint64_t moved() const { return 0; }
};

using MadePolicy = std::unique_ptr<Policy>;

constexpr std::uint64_t rounded_up(std::uint64_t bytes, std::uint64_t to) { return (bytes + to - 1) / to * to; }

}  // namespace bench
