// See judge.hpp.
#include "stats/leaks/judge.hpp"

#include <algorithm>

namespace cistern::leaks {
namespace {

using host_pool::PictureBlock;

constexpr std::size_t kWord = sizeof(std::uintptr_t), kPending = std::size_t{1} << 16, kCandidates = 32;
constexpr std::size_t kBytesBetweenLooks = std::size_t{1} << 20;
constexpr std::uint64_t kLookedAtClosely = std::uint64_t{16} << 20;

// Above the standing.
constexpr std::uint8_t kHandedOut = 8;  // found, but a driver's: not looked into before the third pass
constexpr std::uint8_t kInterior = 16;  // so far, only pointers into its midst
constexpr std::uint8_t kWaits = 32;     // to be followed, but there was no room to note it
constexpr std::uint8_t kInUse = 64;     // the part of it that has to be read is a root

// The parts of the address space that hold targets: most words are not addresses, and few of them are looked up in
// vain.
constexpr unsigned kPartShift = 21;
constexpr std::size_t kParts = std::size_t{1} << 16;
std::size_t part_of(std::uintptr_t address) {
  return static_cast<std::size_t>((address >> kPartShift) * 0x9E3779B97F4A7C15ull >> 48);
}

std::uintptr_t word_at(std::uintptr_t address) { return *reinterpret_cast<const std::uintptr_t*>(address); }

void stand(std::uint8_t& mark, Standing standing) {
  mark = static_cast<std::uint8_t>((mark & ~7) | static_cast<std::uint8_t>(standing));
}

}  // namespace

struct Judge::Scratch {
  struct {
    std::uintptr_t first, end;
  } pending[kPending];  // blocks and targets whose words are to be looked at
  // Words that lead into the heap: what they lead to is asked for and looked at some words later, when it is there.
  std::uintptr_t candidates[kCandidates];
  std::size_t candidates_put, candidates_taken;
  std::uint8_t parts[kParts / 8];
  std::size_t pending_count;
  bool some_wait;
};

std::size_t Judge::scratch_bytes() { return sizeof(Scratch); }

Judge::Judge(const World& world, std::uint8_t* marks, void* scratch, bool (*is_over)())
    : world_(world),
      marks_(marks),
      scratch_(*static_cast<Scratch*>(scratch)),
      is_over_(is_over),
      heap_first_(world.heap->first()),
      heap_bytes_(world.heap->bytes()) {}

bool Judge::run() {
  prepare();
  pass_ = Standing::reachable;
  if (!scan_roots(false)) return false;
  pass_ = Standing::possibly_lost;
  if (!follow_interior() || !look_closely()) return false;
  pass_ = Standing::held_by_driver;
  if (!scan_roots(true) || !open_what_drivers_handed_out()) return false;
  return judge_the_rest();
}

void Judge::prepare() {
  for (const std::uintptr_t address : world_.in_use) {
    PictureBlock block;
    if (!world_.heap->find(address, block)) continue;
    stand(marks_[block.number], Standing::reachable);
    marks_[block.number] |= kInUse;
  }
  for (const Target& target : world_.targets) {
    const std::uintptr_t last = (target.first + std::max<std::uint64_t>(target.bytes, 1) - 1) >> kPartShift;
    std::size_t left = kParts;
    for (std::uintptr_t part = target.first >> kPartShift; part <= last && left; ++part, --left) {
      const std::size_t bit = part_of(part << kPartShift);
      scratch_.parts[bit / 8] = static_cast<std::uint8_t>(scratch_.parts[bit / 8] | 1 << bit % 8);
    }
  }
}

bool Judge::has_part(std::uintptr_t word) const {
  const std::size_t part = part_of(word);
  return scratch_.parts[part / 8] >> part % 8 & 1;
}

bool Judge::scan_roots(bool of_driver) {
  for (const Root& root : world_.roots)
    if (root.of_driver == of_driver && !scan(root.first, root.end, root.residency)) return false;
  return follow();
}

bool Judge::scan(std::uintptr_t first, std::uintptr_t end, Residency residency) {
  if (!world_.next_resident) return read(first, end);
  for (std::uintptr_t there, there_end; world_.next_resident(first, end, residency, there, there_end);
       first = there_end)
    if (!read(there, there_end)) return false;
  return true;
}

// Small blocks were touched when they were made.
bool Judge::scan_block(std::uintptr_t first, std::uintptr_t end) {
  constexpr std::uintptr_t kAsked = std::uintptr_t{256} * 1024;
  return end - first < kAsked ? read(first, end) : scan(first, end, Residency::of_pages);
}

bool Judge::read(std::uintptr_t first, std::uintptr_t end) {
  first = (first + kWord - 1) & ~(kWord - 1);
  end &= ~(kWord - 1);
  const std::uintptr_t begin = first;
  while (first < end) {
    const std::uintptr_t until = std::min<std::uintptr_t>(end, first + kBytesBetweenLooks);
    bytes_read_ += until - first;
    for (; first < until; first += kWord) {
      const std::uintptr_t word = word_at(first);
      look_at(word);
      if (word == world_.integers.type) [[unlikely]]
        look_for_integer(first, begin, end);
    }
    if (bytes_read_ < next_look_) continue;
    next_look_ = bytes_read_ + kBytesBetweenLooks;
    if (is_over_()) return false;
  }
  return true;
}

void Judge::look_at(std::uintptr_t word) {
  if (!word) return;
  if (word - heap_first_ < heap_bytes_) put_candidate(word);
  if (has_part(word)) [[unlikely]]
    found_target(word);
}

void Judge::look_for_integer(std::uintptr_t at, std::uintptr_t first, std::uintptr_t end) {
  if (const std::uintptr_t value = world_.integers.value_at(at, first, end)) look_at(value);
}

void Judge::found_target(std::uintptr_t word) {
  const auto behind = std::upper_bound(world_.targets.begin(), world_.targets.end(), word,
                                       [](std::uintptr_t address, const Target& one) { return address < one.first; });
  // A target may lie in another one, and begin behind it.
  constexpr int kNestedMax = 4;
  int looks = 0;
  for (auto at = behind; at != world_.targets.begin() && looks < kNestedMax; ++looks) {
    Target& target = *--at;
    if (word - target.first >= std::max<std::uint64_t>(target.bytes, 1)) continue;
    const bool only_drivers = pass_ == Standing::indirectly_lost && target.standing == Standing::held_by_driver;
    const bool was_head =
        pass_ == Standing::indirectly_lost && target.standing == Standing::lost && target.first != head_;
    if (target.standing != Standing::none && !only_drivers && !was_head) continue;
    const bool is_new = target.standing == Standing::none;
    target.standing = pass_;
    if (is_new && target.is_readable) push(target.first, target.first + target.bytes);
  }
}

void Judge::put_candidate(std::uintptr_t word) {
  host_pool::Picture::Location location;
  if (!world_.heap->locate(word, location)) return;
  __builtin_prefetch(&marks_[location.number], 1);
  __builtin_prefetch(reinterpret_cast<const void*>(word));
  while (scratch_.candidates_put - scratch_.candidates_taken == kCandidates) take_candidate();
  scratch_.candidates[scratch_.candidates_put++ % kCandidates] = word;
}

void Judge::take_candidate() { found_in_heap(scratch_.candidates[scratch_.candidates_taken++ % kCandidates]); }

// Most pointers lead to what was found before: that is seen without a look at the block.
void Judge::found_in_heap(std::uintptr_t word) {
  host_pool::Picture::Location location;
  if (!world_.heap->locate(word, location)) return;
  std::uint8_t& mark = marks_[location.number];
  const Standing known = standing_of(mark);
  const bool may_be_head = pass_ == Standing::indirectly_lost && known == Standing::lost;
  if (known != Standing::none && !may_be_head) return;
  PictureBlock block;
  if (!world_.heap->read(location, block) || !block.live || word - block.first >= block.bytes) return;
  if (may_be_head) {
    if (block.first != head_) stand(mark, Standing::indirectly_lost);
    return;
  }
  if (pass_ == Standing::reachable && word != block.first && !leads_to_begin(block, word)) {
    mark |= kInterior;
    return;
  }
  reach(block, mark);
}

void Judge::reach(const PictureBlock& block, std::uint8_t& mark) {
  stand(mark, pass_);
  if (pass_ != Standing::held_by_driver && is_drivers(block)) {
    mark |= kHandedOut;
    return;
  }
  push(block.first, block.first + block.bytes);
}

bool Judge::is_drivers(const PictureBlock& block) const {
  const auto& handed_out = world_.handed_out;
  if (std::binary_search(handed_out.begin(), handed_out.end(), block.first)) return true;
  return !world_.driver_words.empty() &&
         std::binary_search(world_.driver_words.begin(), world_.driver_words.end(), word_at(block.first));
}

// memcheck knows these forms too: a program with only such a pointer knows the block's start from it.
bool Judge::leads_to_begin(const PictureBlock& block, std::uintptr_t word) const {
  const std::uintptr_t offset = word - block.first;
  if (offset % kWord) return false;
  const auto at = [&](std::size_t index) { return word_at(block.first + index * kWord); };
  // Whether the program may have asked for so much.
  const auto fits = [&](std::uint64_t bytes) {
    if (block.requested_bytes) return bytes == block.requested_bytes;
    const unsigned id = host_pool::class_of(block.bytes);
    return bytes <= block.bytes && bytes > (id ? host_pool::class_bytes(id - 1) : 0);
  };
  if (block.bytes < 2 * kWord) return false;
  if (offset == kWord) {
    // A length in front: sqlite. And the number of elements in front of those of an array that has destructors.
    if (fits(at(0) + kWord)) return true;
    const std::uint64_t room = (block.requested_bytes ? block.requested_bytes : block.bytes) - kWord;
    if (at(0) && at(0) <= room && (!block.requested_bytes || room % at(0) == 0)) return true;
  }
  // A thread's table of thread-local memory, as glibc keeps it.
  if (offset == 2 * kWord && at(0) < (block.bytes >> 4) && fits((at(0) + 2) * 16)) return true;
  // The characters of a std::string of old.
  if (offset == 3 * kWord && block.bytes > 4 * kWord && at(0) <= at(1) && at(1) < block.bytes &&
      fits(at(1) + 3 * kWord + 1))
    return true;
  // A base class that is not the first one: both begin with a pointer to virtual functions.
  return is_constant(at(0)) && is_constant(word_at(word));
}

bool Judge::is_constant(std::uintptr_t word) const {
  const auto behind =
      std::upper_bound(world_.constants.begin(), world_.constants.end(), word,
                       [](std::uintptr_t address, const Constants& one) { return address < one.first; });
  return behind != world_.constants.begin() && word < std::prev(behind)->end;
}

// When the list of pending blocks is full in the middle of a table of many blocks, half of the list is read before the
// rest of the table. A block that finds no room then waits for a walk through all blocks. Readable targets are few, and
// always find room.
void Judge::push(std::uintptr_t first, std::uintptr_t end) {
  constexpr std::size_t kForTargets = 1024;
  if (scratch_.pending_count == kPending - kForTargets && !makes_room_) {
    makes_room_ = true;
    while (scratch_.pending_count > kPending / 2) {
      const auto [waiting, waiting_end] = scratch_.pending[--scratch_.pending_count];
      if (!scan_block(waiting, waiting_end)) break;
    }
    makes_room_ = false;
  }
  host_pool::Picture::Location location;
  const bool is_block = world_.heap->locate(first, location);
  if (scratch_.pending_count < kPending - (is_block ? kForTargets : 0)) {
    scratch_.pending[scratch_.pending_count++] = {first, end};
  } else if (is_block) {
    marks_[location.number] |= kWaits;
    scratch_.some_wait = true;
  }
}

bool Judge::follow_pending() {
  for (;;) {
    while (scratch_.pending_count) {
      const auto [first, end] = scratch_.pending[--scratch_.pending_count];
      if (!scan_block(first, end)) return false;
    }
    if (scratch_.candidates_taken == scratch_.candidates_put) return true;
    while (scratch_.candidates_taken != scratch_.candidates_put) take_candidate();
  }
}

bool Judge::follow() {
  if (!follow_pending()) return false;
  while (scratch_.some_wait) {
    scratch_.some_wait = false;
    bool in_time = true;
    const auto waits = [this](std::uint32_t number) { return marks_[number] & kWaits; };
    world_.heap->for_each_of(waits, [&](const PictureBlock& block) {
      std::uint8_t& mark = marks_[block.number];
      if (!in_time) return;
      mark = static_cast<std::uint8_t>(mark & ~kWaits);
      in_time = scan_block(block.first, block.first + block.bytes) && follow_pending();
    });
    if (!in_time) return false;
  }
  return true;
}

bool Judge::follow_interior() {
  bool in_time = true;
  const auto by_midst = [this](std::uint32_t number) {
    return (marks_[number] & kInterior) && standing_of(marks_[number]) == Standing::none;
  };
  world_.heap->for_each_of(by_midst, [&](const PictureBlock& block) {
    if (!in_time) return;
    reach(block, marks_[block.number]);
    in_time = follow();
  });
  return in_time;
}

// Structures may be packed, and some keep only the end of their memory. There are eight times as many words as aligned
// ones, so this is done only where it takes little time. Blocks that are found here are followed as usual.
bool Judge::look_closely() {
  if (bytes_read_ > kLookedAtClosely) return true;
  bool in_time = true;
  for (const Root& root : world_.roots)
    if (!root.of_driver) in_time = in_time && scan_closely(root.first, root.end, root.residency);
  const auto is_reached = [this](std::uint32_t number) {
    return standing_of(marks_[number]) != Standing::none && !(marks_[number] & (kHandedOut | kInUse));
  };
  world_.heap->for_each_of(is_reached, [&](const PictureBlock& block) {
    if (in_time && block.live) in_time = scan_closely(block.first, block.first + block.bytes, Residency::of_pages);
  });
  for (const Target& target : world_.targets)
    if (in_time && target.is_readable && target.standing != Standing::none)
      in_time = scan_closely(target.first, target.first + target.bytes, Residency::of_pages);
  return in_time && follow();
}

bool Judge::scan_closely(std::uintptr_t first, std::uintptr_t end, Residency residency) {
  for (std::uintptr_t there = first, there_end = end; first < end; first = there_end) {
    if (world_.next_resident && !world_.next_resident(first, end, residency, there, there_end)) break;
    read_closely(there, there_end);
    if (is_over_()) return false;
  }
  return true;
}

void Judge::read_closely(std::uintptr_t first, std::uintptr_t end) {
  constexpr unsigned kByteBits = 8;
  first = (first + kWord - 1) & ~(kWord - 1);
  for (std::uintptr_t word = first + kWord <= end ? word_at(first) : 0; first + 2 * kWord <= end; first += kWord) {
    const std::uintptr_t next = word_at(first + kWord);
    look_closely_at(word);
    if (word | next)
      for (unsigned shift = kByteBits; shift < kWord * kByteBits; shift += kByteBits)
        look_closely_at(word >> shift | next << (kWord * kByteBits - shift));
    word = next;
  }
}

// An address just behind a block is the next one's, where one ever was: its owner may have left it somewhere.
void Judge::look_closely_at(std::uintptr_t word) {
  if (word - heap_first_ <= heap_bytes_) {
    PictureBlock block;
    const bool is_begin_or_end =
        world_.heap->find(word, block) ? block.first == word : world_.heap->find(word - 1, block);
    if (is_begin_or_end && block.live && standing_of(marks_[block.number]) == Standing::none)
      reach(block, marks_[block.number]);
  }
  if (has_part(word)) found_target(word);
  if (has_part(word - 1)) found_end_of_target(word);
}

// Behind memory that the processor can read any mapping of the program may begin.
void Judge::found_end_of_target(std::uintptr_t word) {
  const auto behind = std::lower_bound(world_.targets.begin(), world_.targets.end(), word,
                                       [](const Target& one, std::uintptr_t address) { return one.first < address; });
  const bool is_begin = behind != world_.targets.end() && behind->first == word;
  if (is_begin || behind == world_.targets.begin()) return;
  const Target& target = *std::prev(behind);
  if (target.bytes > 1 && !target.is_readable && target.first + target.bytes == word) found_target(word - 1);
}

bool Judge::open_what_drivers_handed_out() {
  for (const std::uintptr_t address : world_.handed_out) {
    PictureBlock block;
    if (!world_.heap->find(address, block) || !block.live) continue;
    std::uint8_t& mark = marks_[block.number];
    if (standing_of(mark) == Standing::none) reach(block, mark);
  }
  bool in_time = follow();
  const auto is_handed_out = [this](std::uint32_t number) { return marks_[number] & kHandedOut; };
  world_.heap->for_each_of(is_handed_out, [&](const PictureBlock& block) {
    in_time = in_time && scan_block(block.first, block.first + block.bytes) && follow();
  });
  return in_time;
}

bool Judge::judge_the_rest() {
  bool in_time = true;
  const auto follow_head = [&](std::uintptr_t first, std::uint64_t bytes) {
    head_ = first;
    pass_ = Standing::indirectly_lost;
    in_time = scan_block(first, first + bytes) && follow();
  };
  const auto is_left = [this](std::uint32_t number) { return standing_of(marks_[number]) == Standing::none; };
  world_.heap->for_each_of(is_left, [&](const PictureBlock& block) {
    if (!in_time || !block.live) return;
    stand(marks_[block.number], Standing::lost);
    follow_head(block.first, block.bytes);
  });
  for (Target& target : world_.targets) {
    if (!in_time) return false;
    if (target.standing != Standing::none) continue;
    target.standing = Standing::lost;
    if (target.is_readable) follow_head(target.first, target.bytes);
  }
  return in_time;
}

}  // namespace cistern::leaks
