// Whether data that the program copies back from a device is the data that it had put there. Some large copies are
// compared, at a few places each, so that this takes hardly any time.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>

namespace cistern {

// Where data lies on a device: an address, or an object and an offset.
struct DevicePlace {
  std::uintptr_t object, offset;
};

// Thread-safe.
class RoundTrips {
 public:
  // After a copy from or to pageable memory that the driver took.
  void sent(const DevicePlace& to, const void* from, std::size_t bytes);
  // Whether it is as it was sent; nothing: it was not looked at.
  std::optional<bool> returned(const DevicePlace& from, const void* to, std::size_t bytes);

 private:
  static constexpr std::size_t kSlots = 64;
  struct Slot {
    std::atomic<std::uint64_t> key{0}, hash{0};  // for the place and its bytes; for the data that was put there last
  };
  Slot& slot(std::uint64_t key) { return slots_[key % kSlots]; }

  Slot slots_[kSlots];
  std::atomic<std::uint64_t> seen_{0};
};

}  // namespace cistern
