// See sampling.hpp.
#include "pool/heap/sampling.hpp"

#include <algorithm>

#include "pool/base/small_math.hpp"
#include "pool/heap/purge.hpp"
#include "pool/heap/region.hpp"

namespace cistern::host_pool {
namespace {
double interval_after(unsigned doublings) {
  return static_cast<double>(sample_interval_bytes()) * static_cast<double>(1u << doublings);
}
}  // namespace

std::int64_t draw_distance(std::uint64_t& random, unsigned doublings) {
  if (!sample_interval_bytes()) return INT64_MAX;
  if (samples_every_block()) return 0;
  random ^= random << 13;
  random ^= random >> 7;
  random ^= random << 17;
  const double uniform = (static_cast<double>(random >> 11) + 0.5) * 0x1p-53;  // in (0, 1)
  constexpr double kLongest = 0x1p62;
  const double distance = -natural_log(uniform) * interval_after(doublings);
  return static_cast<std::int64_t>(std::min(distance, kLongest)) + 1;
}

namespace {

// Often the clock stands still for this long.
constexpr std::uint32_t kTickMs = 4;
constexpr unsigned kDoublingsMax = 24;

void keep_pace(SamplePace& pace) {
  const std::uint32_t now_ms = the_pool.samples.policy.now_ms(), elapsed_ms = now_ms - pace.since_ms;
  if (elapsed_ms < kTickMs) {
    if (pace.samples < kTickMs * kSamplesPerMs || pace.doublings == kDoublingsMax) return;
    ++pace.doublings;
    pace.samples /= 2;  // as if it had been so from the start
    return;
  }
  // They come nearer where twice as many would be half of what may be, and so on.
  for (std::uint64_t few = elapsed_ms * std::uint64_t{kSamplesPerMs} / 4; pace.doublings && pace.samples <= few;
       few /= 2)
    --pace.doublings;
  pace.since_ms = now_ms;
  pace.samples = 0;
}

// A long distance is checked several times on the way, because the thread may hand out little by then.
std::int64_t next_distance(Heap& heap) {
  const std::int64_t distance = draw_distance(heap.random, heap.pace.doublings);
  const auto interval = static_cast<std::int64_t>(sample_interval_bytes());
  const std::int64_t most = heap.pace.doublings ? std::max(interval, (interval << heap.pace.doublings) / 8) : INT64_MAX;
  heap.looks_again = distance > most;
  return std::min(distance, most);
}

}  // namespace

void begin_distance(Heap& heap) { heap.until_sample = next_distance(heap); }

void note_sample(Heap& heap) {
  ++heap.pace.samples;
  if (the_pool.samples.policy.paced) keep_pace(heap.pace);
  begin_distance(heap);
  end_regrets();
  note_time(heap);
}

void look_at_pace(Heap& heap) {
  keep_pace(heap.pace);
  heap.until_sample += next_distance(heap);
}

double sample_weight(std::size_t bytes, unsigned doublings) {
  if (is_always_sampled(bytes)) return 1;
  return 1 / one_minus_exp(static_cast<double>(bytes) / interval_after(doublings));
}

void note_sample_born(const void* block, const SampleRecord& record, std::size_t usable_bytes) {
  if (const SampleEvents* const events = sample_events()) [[unlikely]]
    events->born(block, record.requested_bytes, record.site, sample_weight(usable_bytes, record.doublings));
}

}  // namespace cistern::host_pool
