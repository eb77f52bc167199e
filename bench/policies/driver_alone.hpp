// No pool: each allocation and each free is a call of the driver.
#pragma once
#include "bench/policies/policy.hpp"

namespace bench {

class DriverAlone final : public Policy {
 public:
  DriverAlone(Device& device, Order) : device_(device) {}
  std::optional<std::uint64_t> allocate(std::uint64_t bytes, unsigned) override {
    if (!device_.take(Call::allocate, rounded_up(bytes, kGranule))) return std::nullopt;
    return device_.new_addresses(bytes);
  }
  void deallocate(std::uint64_t, std::uint64_t bytes, unsigned) override {
    device_.give_back(Call::free, rounded_up(bytes, kGranule));
  }

 private:
  static constexpr std::uint64_t kGranule = 512;
  Device& device_;
};

}  // namespace bench
