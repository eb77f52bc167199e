// The range pool over the device that counts. Before an allocation fails, it waits for all work and tries again, as
// hooks around it would.
#pragma once
#include "bench/policies/policy.hpp"
#include "pool/ranges/range_pool.hpp"

namespace bench {

class Ranges final : public Policy {
 public:
  Ranges(Device& device, Order order)
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
  std::uint64_t moved() const override { return pool_.figures().moved; }

 private:
  // A handle is as good as its size.
  class Driver {
   public:
    using Handle = std::uint64_t;
    using Error = int;
    struct Fence {
      std::uint64_t moment = 0;
    };
    explicit Driver(Device& device) : device_(device) {}

    static std::uint64_t granularity() { return std::uint64_t{2} << 20; }
    cistern::Acquired<Handle, Error> create(std::uint64_t bytes) {
      const bool ok = device_.take(Call::create, bytes);
      return {bytes, ok ? 0 : kOutOfMemory, ok};
    }
    void destroy(Handle bytes) { device_.give_back(Call::destroy, bytes); }
    Error map(std::uint64_t, std::uint64_t, Handle) { return device_.call(Call::map), 0; }
    Error allow_access(std::uint64_t, std::uint64_t) { return device_.call(Call::allow_access), 0; }
    Error unmap(std::uint64_t, std::uint64_t) { return device_.call(Call::unmap), 0; }
    cistern::Settled settled(const Fence& fence) const {
      return device_.has_ended(fence.moment) ? cistern::Settled::yes : cistern::Settled::no;
    }
    static bool failed(Error error) { return error != 0; }
    static bool out_of_memory(Error error) { return error == kOutOfMemory; }
    static Error no_addresses() { return 1; }
    static bool has_room(std::uint64_t) { return true; }
    static Error no_room() { return kOutOfMemory; }

   private:
    static constexpr Error kOutOfMemory = 2;
    Device& device_;
  };

  static cistern::ranges::RangeSettings of(Order order) {
    cistern::ranges::RangeSettings settings{std::uint64_t{1} << 40, std::uint64_t{1} << 44};
    settings.memory_bytes = std::uint64_t{80} << 30;  // a device as many have
    settings.reuse_in_order = order == Order::stream;
    return settings;
  }
  cistern::ranges::Order order_of(unsigned stream) const {
    return is_strict_ ? cistern::ranges::kAnyOrder : 1 + cistern::ranges::Order{stream};
  }

  Device& device_;
  const bool is_strict_;
  Driver driver_;
  mutable cistern::ranges::RangePool<Driver> pool_;
};

}  // namespace bench
