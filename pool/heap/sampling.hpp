// Samples: which blocks get a call site, and what is noted of each.
//
// Samples are drawn by bytes: on average one every `interval_bytes`, at exponentially distributed distances, so every
// byte that is handed out is as likely to be the drawn one. A class's list is cut where the next sample is due
// (heap.cpp); the block after it is the sample. Noted are its site, the size that was asked for, and when:
//   up to a system page  it comes from a page that holds sampled blocks only, with a side table: freeing others costs
//                        nothing. Blocks of several classes share such a page; its cells are powers of two.
//   up to 32 KiB         it stays where it is, a bit in its page's descriptor says so (samples_in_place.cpp).
//   larger               its descriptor has the site; of `interval_bytes` and more it is always sampled, for itself.
// A `paced` thread that would draw more than kSamplesPerMs samples draws them at twice the distance, four times, and so
// on. When it hands out less, the distance shrinks again. Each sample knows the distance that it was drawn at. So they
// cost a thread about a hundredth of its time at most, whatever the size of its blocks. Those of `interval_bytes` and
// more do not count: filling one takes a hundred times as long as its sample. An interval of 1 samples every block: all
// small ones come from pages with side tables then, one for each class.
#pragma once
#include "pool/heap/pages.hpp"

namespace cistern::host_pool {

inline std::uint64_t sample_interval_bytes() { return the_pool.samples.interval_bytes; }  // 0: none are taken
inline bool samples_every_block() { return sample_interval_bytes() == 1; }
inline bool has_sampled_pages(unsigned size_class) { return samples_every_block() || !has_few_blocks(size_class); }

// --- When a thread takes its next sample
constexpr unsigned kSamplesPerMs = 25;
// Bytes to the next sample.
std::int64_t draw_distance(std::uint64_t& random, unsigned doublings);
// The distance to the heap's next sample is drawn again, which changes nothing: the rest of a distance is distributed
// as the whole.
void begin_distance(Heap& heap);
// It ends with a sample: the next one begins.
void note_sample(Heap& heap);
// It goes on, perhaps at another pace.
void look_at_pace(Heap& heap);
// Whether the next sample is among so many bytes more; where it is not, they are not counted yet.
inline bool reach_sample(Heap& heap, std::int64_t bytes) {
  while (heap.until_sample < bytes && heap.looks_again) look_at_pace(heap);
  return heap.until_sample < bytes;
}
// A block of so many bytes is sampled for itself, whatever the distance.
inline bool is_always_sampled(std::size_t bytes) { return sample_interval_bytes() && bytes >= sample_interval_bytes(); }

// --- What is known of a sample
// In a side table it is written when the block is first handed out: those of blocks that were never carved are not even
// touched.
struct SampleRecord {
  std::uint32_t site, requested_bytes, born_ms;
  std::uint8_t doublings;
  std::uint8_t forks;        // the number of the process that made it, since the first one
  std::uint16_t live_class;  // one more than the block's; 0: it is free
};
// All but the class; false: not to be sampled. Inline: a frame more on the stack would make every capture longer.
inline bool capture_sample(std::size_t bytes, unsigned doublings, SampleRecord& record) {
  record.born_ms = the_pool.samples.policy.now_ms();
  if (!the_pool.samples.policy.capture(&record.site, record.born_ms)) return false;
  record.requested_bytes = static_cast<std::uint32_t>(bytes);
  record.doublings = static_cast<std::uint8_t>(doublings);
  record.forks = the_pool.samples.forks_so_far;
  return true;
}
double sample_weight(std::size_t usable_bytes, unsigned doublings);
inline const SampleEvents* sample_events() { return the_pool.samples.policy.events; }
// Under no lock: the capture may be the first of its site.
void note_sample_born(const void* block, const SampleRecord& record, std::size_t usable_bytes);
inline void note_sample_died(const void* block) {
  if (const SampleEvents* const events = sample_events()) [[unlikely]]
    events->died(block);
}
inline void note_sample_resized(const void* block, std::size_t bytes) {
  if (const SampleEvents* const events = sample_events()) [[unlikely]]
    events->resized(block, bytes);
}
struct Sample {
  const void* block;
  std::size_t usable_bytes, requested_bytes;
  std::uint32_t site, born_ms;
  double weight;           // so many blocks of its size it stands for
  bool inherited = false;  // made before this process was forked
};
enum class AtFork { wait, go_on };

}  // namespace cistern::host_pool
