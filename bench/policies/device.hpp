// A device that only counts, for policies that run without a GPU: calls of the driver, the time that they would take,
// the memory that it has given, and the moments at which work ends. No memory lies at its addresses.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

namespace bench {

enum class Call { allocate, free, create, destroy, map, allow_access, unmap };

struct CallKind {
  const char* name;
  double us;
};
// Latencies. Those of virtual memory are cited for handles of 2 MiB: create 193, map 1.5, set access 36, unmap 26 us.
// It is assumed that a larger handle costs the same, that a release costs as much as an unmap, and that cuMemAlloc and
// cuMemFree take 50 us each. On real drivers those grow with the bytes.
constexpr std::array<CallKind, 7> kCallKinds{{{"allocate", 50},
                                              {"free", 50},
                                              {"create", 193},
                                              {"destroy", 26},
                                              {"map", 1.5},
                                              {"allow_access", 36},
                                              {"unmap", 26}}};

class Device {
 public:
  // Work ends so many steps after it was put on its stream.
  Device(std::uint64_t memory_bytes, std::uint64_t delay) : memory_bytes_(memory_bytes), delay_(delay) {}

  // A step of the program.
  void step() { ++now_; }
  std::uint64_t now() const { return now_; }

  // Whether work that was put on a stream up to that moment has ended.
  bool has_ended(std::uint64_t moment) const { return moment + delay_ <= now_ || moment <= synchronised_; }
  std::uint64_t ends_at(std::uint64_t moment) const { return moment + delay_; }
  void synchronise() { synchronised_ = now_; }

  void call(Call call) { ++calls_[static_cast<std::size_t>(call)]; }
  // The call takes memory. False: there is not so much left.
  bool take(Call by, std::uint64_t bytes) {
    call(by);
    if (bytes > memory_bytes_ - reserved_) return false;
    reserved_ += bytes;
    reserved_peak_ = std::max(reserved_peak_, reserved_);
    return true;
  }
  void give_back(Call by, std::uint64_t bytes) {
    call(by);
    reserved_ -= bytes;
  }

  // Addresses that were never given before.
  std::uint64_t new_addresses(std::uint64_t bytes) {
    const std::uint64_t first = next_address_;
    next_address_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return first;
  }

  std::uint64_t memory_bytes() const { return memory_bytes_; }
  std::uint64_t reserved() const { return reserved_; }
  std::uint64_t reserved_peak() const { return reserved_peak_; }
  std::uint64_t calls(Call call) const { return calls_[static_cast<std::size_t>(call)]; }
  std::uint64_t calls() const {
    std::uint64_t all = 0;
    for (const std::uint64_t of_kind : calls_) all += of_kind;
    return all;
  }
  double call_us() const {
    double us = 0;
    for (std::size_t kind = 0; kind < kCallKinds.size(); ++kind)
      us += static_cast<double>(calls_[kind]) * kCallKinds[kind].us;
    return us;
  }

 private:
  static constexpr std::uint64_t kAlignment = std::uint64_t{2} << 20;

  const std::uint64_t memory_bytes_, delay_;
  std::uint64_t now_ = 1, synchronised_ = 0;
  std::uint64_t reserved_ = 0, reserved_peak_ = 0;
  std::uint64_t next_address_ = std::uint64_t{1} << 40;
  std::array<std::uint64_t, kCallKinds.size()> calls_{};
};

}  // namespace bench
