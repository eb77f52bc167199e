// See round_trips.hpp.
#include "shim/staging/round_trips.hpp"

#include "pool/base/own_memory.hpp"
#include "shim/process/system_filter.hpp"

namespace cistern {
namespace {

constexpr std::size_t kBytesMin = std::size_t{1} << 20, kPlaces = 8, kWords = 8;
constexpr std::uint64_t kAllOfFirst = 64, kOneIn = 16;

std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 32;
}

// Never 0.
std::uint64_t key_of(const DevicePlace& place, std::size_t bytes) {
  return mixed(mixed(mixed(1, place.object), place.offset), bytes) | 1;
}

// By the kernel: what another thread does to the memory meanwhile may not be our end.
std::optional<std::uint64_t> sampled_hash(const void* memory, std::size_t bytes) {
  if (system_calls_are_filtered()) return std::nullopt;
  std::uint64_t words[kPlaces][kWords];
  iovec there[kPlaces], here{words, sizeof words};
  const auto* const base = static_cast<const char*>(memory);
  for (std::size_t i = 0; i < kPlaces; ++i)
    there[i] = {const_cast<char*>(base + (bytes - sizeof words[0]) / (kPlaces - 1) * i), sizeof words[0]};
  const long read = copy_own_memory(SYS_process_vm_readv, {&here, 1}, there);
  if (read != static_cast<long>(sizeof words)) return std::nullopt;
  std::uint64_t hash = 0;
  for (const auto& words_there : words)
    for (const std::uint64_t word : words_there) hash = mixed(hash, word);
  return hash;
}

}  // namespace

void RoundTrips::sent(const DevicePlace& to, const void* from, std::size_t bytes) {
  if (bytes < kBytesMin) return;
  const std::uint64_t key = key_of(to, bytes), number = seen_.fetch_add(1, std::memory_order_relaxed);
  Slot& known = slot(key);
  const bool looked_at = number < kAllOfFirst || number % kOneIn == 0;
  const auto hash = looked_at ? sampled_hash(from, bytes) : std::nullopt;
  known.key.store(hash ? key : 0, std::memory_order_relaxed);
  if (hash) known.hash.store(*hash, std::memory_order_relaxed);
}

std::optional<bool> RoundTrips::returned(const DevicePlace& from, const void* to, std::size_t bytes) {
  if (bytes < kBytesMin) return std::nullopt;
  const std::uint64_t key = key_of(from, bytes);
  Slot& known = slot(key);
  if (known.key.load(std::memory_order_relaxed) != key) return std::nullopt;
  known.key.store(0, std::memory_order_relaxed);  // once
  const auto hash = sampled_hash(to, bytes);
  if (!hash) return std::nullopt;
  return *hash == known.hash.load(std::memory_order_relaxed);
}

}  // namespace cistern
