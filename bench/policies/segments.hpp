// The segment pool over the device that counts. Before an allocation fails, it waits for all work and tries again, as
// hooks around it would.
#pragma once
#include <unordered_map>

#include "bench/policies/policy.hpp"
#include "pool/ranges/segment_pool.hpp"

namespace bench {

class Segments final : public Policy {
 public:
  Segments(Device& device, Order order)
      : device_(device), is_strict_(order == Order::strict), driver_(device), pool_(driver_, of(order)) {}
  std::optional<std::uint64_t> allocate(std::uint64_t bytes, unsigned stream) override {
    auto answer = pool_.allocate(bytes, order_of(stream));
    if (!answer.ok) {
      device_.synchronise();
      answer = pool_.allocate(bytes, order_of(stream));
    }
    return answer.ok ? std::optional(answer.first) : std::nullopt;
  }
  void deallocate(std::uint64_t address, std::uint64_t, unsigned stream) override {
    pool_.deallocate(address, order_of(stream), {device_.now()}, !is_strict_);
  }

 private:
  class Driver {
   public:
    using Error = int;
    struct Fence {
      std::uint64_t moment = 0;
    };
    explicit Driver(Device& device) : device_(device) {}

    cistern::Acquired<std::uint64_t, Error> acquire(std::uint64_t bytes, cistern::Shortage) {
      if (!device_.take(Call::allocate, bytes)) return {0, kOutOfMemory, false};
      const std::uint64_t first = device_.new_addresses(bytes);
      bytes_[first] = bytes;
      return {first, 0, true};
    }
    void release(std::uint64_t first) { device_.give_back(Call::free, bytes_.extract(first).mapped()); }
    cistern::Settled settled(const Fence& fence) const {
      return device_.has_ended(fence.moment) ? cistern::Settled::yes : cistern::Settled::no;
    }
    static bool out_of_memory(Error error) { return error == kOutOfMemory; }

   private:
    static constexpr Error kOutOfMemory = 2;
    Device& device_;
    std::unordered_map<std::uint64_t, std::uint64_t> bytes_;
  };

  static cistern::ranges::SegmentSettings of(Order order) {
    cistern::ranges::SegmentSettings settings;
    settings.reuse_in_order = order == Order::stream;
    return settings;
  }
  cistern::ranges::Order order_of(unsigned stream) const {
    return is_strict_ ? cistern::ranges::kAnyOrder : 1 + cistern::ranges::Order{stream};
  }

  Device& device_;
  const bool is_strict_;
  Driver driver_;
  cistern::ranges::SegmentPool<Driver> pool_;
};

}  // namespace bench
