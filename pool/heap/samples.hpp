// Blocks with call sites.
//
// Samples are drawn by bytes: on average one every `interval_bytes`, at exponentially distributed distances, so every
// byte that is handed out is as likely to be the drawn one. A class's list is cut where the next sample is due
// (heap.cpp); the block after it is the sample. Noted are its site, the size that was asked for, and when:
//   up to a system page  it comes from a page that holds sampled blocks only, with a side table: freeing others costs
//                        nothing. Blocks of several classes share such a page; its cells are powers of two.
//   up to 32 KiB         it stays where it is, a bit in its page's descriptor says so (samples_in_place.cpp).
//   larger               its descriptor has the site; of `interval_bytes` and more it is always sampled, for itself.
// A `paced` thread that would draw more than kSamplesPerMs samples does so at twice the distance, four times, and so
// on, and nearer again when it hands out less; each sample knows the distance that it was drawn at. So they cost a
// thread about a hundredth of its time at most, whatever the size of its blocks. Those of `interval_bytes` and more do
// not count: filling one takes a hundred times as long as its sample.
// An interval of 1 samples every block: all small ones come from pages with side tables then, one for each class.
//
// Pages of sampled blocks belong to no thread; their locks are spread over the threads.
#pragma once
#include "pool/heap/layout.hpp"

namespace cistern::host_pool {

struct SamplePolicy {
  std::uint64_t interval_bytes;
  bool paced;
  // Interns the caller's stack; false: this block is not to be sampled (made by whoever captures, say).
  bool (*capture)(std::uint32_t* site, std::uint32_t now_ms);
  std::uint32_t (*now_ms)();
};

// Outside of malloc, while the process has one thread.
void start_sampling(const SamplePolicy& policy);
inline constinit std::uint64_t sample_interval_bytes = 0;  // 0: none are taken
inline bool samples_every_block() { return sample_interval_bytes == 1; }

// Where every block has a site: blocks that were freed by the next call of their thread, ever.
std::uint64_t temporary_blocks_ever();

// --- When a thread takes its next sample
struct SamplePace {
  std::uint32_t since_ms = 0, samples = 0;  // since then
  std::uint8_t doublings = 0;               // of the interval
};
constexpr unsigned kSamplesPerMs = 25;
struct Heap;
// Bytes to the next sample.
std::int64_t draw_distance(std::uint64_t& random, unsigned doublings);
// The distance to the heap's next sample is drawn anew, which changes nothing: what is left of one is distributed as
// the whole.
void begin_distance(Heap& heap);
// It ends with a sample: the next one begins.
void note_sample(Heap& heap);
// It goes on, perhaps at another pace.
void look_at_pace(Heap& heap);

// --- Blocks in pages of their own
inline bool has_sampled_pages(unsigned size_class) { return samples_every_block() || !has_few_blocks(size_class); }
// A block that counts as sampled; null: no memory, or not to be sampled: serve it like others.
void* allocate_sampled(std::size_t bytes, unsigned size_class, unsigned doublings);
// Whether a block that exists, free or not, starts there.
bool is_sampled_block(const Page& page, std::size_t offset);
// False: no live block starts there.
bool free_sampled(Page& page, std::size_t offset);
// Usable bytes of the live block that starts there; 0: none.
std::size_t live_sampled_bytes(const Page& page, std::size_t offset);
// Of a block that exists, free or not; 0: none is known.
std::uint32_t site_of_sampled(const Page& page, std::size_t offset);
// A block that was resized in place.
void note_sampled_size(Page& page, std::size_t offset, std::size_t bytes);

// --- Blocks sampled in place; `number`: which of their page's
inline bool is_sampled_in_place(const Page& page, unsigned number) {
  return page.sited.load(std::memory_order_relaxed) >> number % 32 & 1;
}
void sample_in_place(Page& page, unsigned number, std::size_t bytes, unsigned doublings);
void forget_in_place(Page& page, unsigned number);               // if it is one
std::uint32_t site_in_place(const Page& page, unsigned number);  // 0: none
void note_size_in_place(Page& page, unsigned number, std::size_t bytes);

// --- Large blocks
// Notes the site of one that was just made, if a sample is due.
void sample_large(Page& page, std::size_t bytes);
// The same block is larger now.
void sample_grown(Page& page);

// --- All of them

struct Sample {
  const void* block;
  std::size_t usable_bytes, requested_bytes;
  std::uint32_t site, born_ms;
  double weight;           // so many blocks of its size it stands for
  bool inherited = false;  // made before this process was forked
};
enum class AtFork { wait, go_on };
// Live ones. `visit` must not allocate from the pool. False: a thread forks, which was not to be waited for; some are
// missing.
bool visit_samples(void (*visit)(void* context, const Sample& sample), void* context, AtFork at_fork = AtFork::wait);

// Of the block with that number in its page, for Picture; the sizes where it is live.
void read_sampled(const Page& page, unsigned number, std::size_t& bytes, std::size_t& requested_bytes, bool& live);

// Of blocks in pages of their own, by class: handed out ever, and live.
std::uint64_t sampled_allocations(unsigned size_class);
std::uint64_t live_sampled_blocks(unsigned size_class);

// --- For the two that keep them
// In a side table it is written when the block is first handed out: those of blocks that were never carved are not even
// touched.
struct SampleRecord {
  std::uint32_t site, requested_bytes, born_ms;
  std::uint8_t doublings;
  std::uint8_t forks;        // the number of the process that made it, since the first one
  std::uint16_t live_class;  // one more than the block's; 0: it is free
};
inline constinit std::uint8_t forks_so_far = 0;  // of this process, modulo 256
// All but the class; false: not to be sampled.
bool capture_sample(std::size_t bytes, unsigned doublings, SampleRecord& record);
double sample_weight(std::size_t usable_bytes, unsigned doublings);
bool visit_samples_in_place(void (*visit)(void* context, const Sample& sample), void* context, AtFork at_fork);
void samples_in_place_before_fork();
void samples_in_place_after_fork();

void samples_before_fork();
void samples_after_fork();
void samples_after_fork_in_child();

}  // namespace cistern::host_pool
