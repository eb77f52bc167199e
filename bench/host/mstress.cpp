// A mix of short and long lives, as Leijen's stress test: threads allocate objects of words, keep some for their whole
// life, free others at random and swap some with other threads. New threads come every round; what is in the swap
// slots survives them.
#include <array>
#include <atomic>

#include "workload.hpp"

namespace host_bench {
namespace {

constexpr unsigned kRounds = 50, kAllocationsAll = 70'000;
constexpr std::size_t kSwapSlots = 1000;

// The words count down and are xored with a cookie, so that every word of an object proves itself.
constexpr std::uint64_t kCookie = 0xbf58476d1ce4e5b9;

std::uint64_t* make_object(Random& random) {
  std::size_t words = std::size_t{1} << random.below(6);
  if (random.below(2000) == 0) words *= 1000;
  words += random.below(words);
  auto* object = static_cast<std::uint64_t*>(std::malloc(words * sizeof(std::uint64_t)));
  require(object != nullptr, "malloc returned null");
  for (std::size_t at = 0; at < words; ++at) object[at] = (words - at) ^ kCookie;
  return object;
}

void free_object(std::uint64_t* object) {
  if (object == nullptr) return;
  const std::size_t words = object[0] ^ kCookie;
  for (std::size_t at = 0; at < words; ++at) require((object[at] ^ kCookie) == words - at, "a word changed");
  std::free(object);
}

using SwapSlots = std::array<std::atomic<std::uint64_t*>, kSwapSlots>;

void stress(SwapSlots& swap, Random& random, unsigned allocations) {
  std::vector<std::uint64_t*> passing, kept;
  while (allocations > 0) {
    if (random.chance(50)) {
      passing.push_back(make_object(random));
      --allocations;
    } else if (random.chance(50)) {
      kept.push_back(make_object(random));
      --allocations;
    }
    if (!passing.empty() && random.chance(66)) {
      std::uint64_t*& chosen = passing[random.below(passing.size())];
      free_object(std::exchange(chosen, nullptr));
    }
    if (!passing.empty() && random.chance(25)) {
      std::uint64_t*& chosen = passing[random.below(passing.size())];
      chosen = swap[random.below(kSwapSlots)].exchange(chosen);
    }
  }
  for (std::uint64_t* object : kept) free_object(object);
  for (std::uint64_t* object : passing) free_object(object);
}

void run(const Setting& setting) {
  static SwapSlots swap;
  for (unsigned round = 0; round < kRounds; ++round) {
    in_threads(setting.threads, [&](unsigned number) {
      Random random(setting.seed * 100'000 + round * 1000 + number);
      stress(swap, random, kAllocationsAll / setting.threads);
    });
    // A part of the slots is emptied by the main thread, the rest stays for the next threads.
    for (std::size_t at = round % 2; at < kSwapSlots; at += 2) free_object(swap[at].exchange(nullptr));
  }
  for (std::atomic<std::uint64_t*>& slot : swap) free_object(slot.exchange(nullptr));
}

const Workload mstress("mstress", run);

}  // namespace
}  // namespace host_bench
