// The transfer table: copies between host and device by direction, kind of host memory and call site.
#pragma once
#include <cstdint>

#include "backends/cuda/api.hpp"
#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "stats/sites.hpp"

namespace cistern::cuda {

enum class Direction : std::uint8_t { host_to_device, device_to_host, device_to_device, host_to_host, unknown, count };

struct TransferKey {
  Direction direction;
  bool pageable;
  bool asynchronous;
  SiteId site;
  const char* api;
  bool operator==(const TransferKey&) const = default;
};
struct TransferKeyHash {
  std::size_t operator()(const TransferKey& key) const {
    std::uint64_t hash = key.site;
    hash = hash * 8 + static_cast<std::uint64_t>(key.direction);
    hash = hash * 4 + (key.pageable ? 2 : 0) + (key.asynchronous ? 1 : 0);
    return (hash ^ reinterpret_cast<std::uintptr_t>(key.api)) * 0x9E3779B97F4A7C15ull >> 16;
  }
};
struct TransferTotals {
  std::uint64_t count = 0, bytes = 0, blocking_ns = 0;
};

class Transfers {
 public:
  void add(const TransferKey& key, std::uint64_t count, std::uint64_t bytes, std::uint64_t blocking_ns) {
    Locked hold(lock_);
    TransferTotals& totals = table_[key];
    totals.count += count;
    totals.bytes += bytes;
    totals.blocking_ns += blocking_ns;
  }
  template <class Visit>
  void for_each(Visit visit) {
    Locked hold(lock_);
    for (const auto& [key, totals] : table_) visit(key, totals);
  }
  void clear() {
    Locked hold(lock_);
    table_.clear();
  }
  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }

 private:
  Lock lock_;
  Map<TransferKey, TransferTotals, TransferKeyHash> table_;
};

}  // namespace cistern::cuda
