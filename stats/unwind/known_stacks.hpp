// Stacks that a thread was seen with, so that a walk need not do again what another one did: a tree, whose frames lead
// to the next one further out. An innermost frame stands for a stack, and may have a name.
//
// A frame leads to the next by its row and by few words of the stack: where the return address lies, where rbp was
// saved. So a walk that comes to a frame where one was before (the same return address at the same place, and the same
// rbp if that matters further out) goes on as that one did if these words are what they were. It looks at them in the
// order in which the walk would read them, and at the first that differs it walks on: nothing else is read.
#pragma once
#include <sys/single_threaded.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "stats/unwind/rows.hpp"

namespace cistern::unwind {

inline std::uintptr_t word_at(std::uintptr_t address) { return *reinterpret_cast<const std::uintptr_t*>(address); }

// A return address; the CFA of the frame below, which is left through it; rbp there; and its row.
struct Frame {
  std::uintptr_t address, cfa, rbp;
  Row row;
};

// A frame of our own code, in front of all others: where the stack is when it is left, from where the walk began. Such
// code stays loaded, and finds its frames by rsp.
struct OwnFrame {
  std::uintptr_t address;
  std::uintptr_t cfa_offset;
  std::uintptr_t rbp_offset;  // where the caller's rbp was saved, by this frame or one further in; 0: it is rbp still
};

// A frame of code that stays loaded, and so is all that it leads to; the last one is the outermost of its stack.
struct alignas(64) KnownFrame {
  std::uintptr_t address, cfa, rbp;
  Row row;
  std::uintptr_t outermost_cfa;
  std::uintptr_t aligned_cfa_place;  // where the CFA further out stands that no register tells; 0: one does
  const void* tag;                   // of the name
  std::uint32_t name;
  std::uint16_t depth;  // frames from here on
  bool needs_rbp;       // rbp here decides on frames further out

  // Whether a walk with this rbp, within a stack that ends at `end`, may be where one was before.
  bool may_lead_on(std::uintptr_t rbp_now, std::uintptr_t end) const {
    return outermost_cfa <= end && (!needs_rbp || rbp == rbp_now);
  }
  bool is(const Frame& frame) const {
    return address == frame.address && cfa == frame.cfa && (!needs_rbp || rbp == frame.rbp);
  }
};
static_assert(sizeof(KnownFrame) == 64);

// The words that lead from a frame to the next one: what a look at a stack reads of each of its frames, so it is short.
// Places are told from the outermost CFA.
struct alignas(32) Link {
  std::int32_t rbp_place, return_place;  // where rbp does not matter the first is like the second
  std::uintptr_t rbp, return_word;
  std::int32_t to_outer;  // the next one's, from here; 0: there is none, nor words
  enum class Next : std::uint8_t { in_front, elsewhere, outermost } next;
  bool has_aligned_cfa;  // see KnownFrame; such a frame is never `in_front`

  bool holds(std::uintptr_t outermost_cfa) const {
    return word_at(outermost_cfa + static_cast<std::uintptr_t>(std::intptr_t{rbp_place})) == rbp &&
           word_at(outermost_cfa + static_cast<std::uintptr_t>(std::intptr_t{return_place})) == return_word;
  }
};
static_assert(sizeof(Link) == 32);

// Known frames, found by what a walk knows of them.
class KnownFrames {
 public:
  static constexpr unsigned kDepthMax = 64;
  using Number = std::uint16_t;  // of a frame; 0: none

  static std::size_t bytes(unsigned bits) {
    return sizeof(KnownFrames) + kCacheLine +
           (std::size_t{1} << bits) * (sizeof(KnownFrame) + sizeof(Link) + 4 * sizeof(Number));
  }
  // In room of so many bytes.
  KnownFrames(unsigned bits, unsigned generation) : bits_(bits), generation_(generation) {
    const std::uintptr_t behind = (reinterpret_cast<std::uintptr_t>(this + 1) + kCacheLine - 1) / kCacheLine;
    frames_ = reinterpret_cast<KnownFrame*>(behind * kCacheLine);
    links_ = reinterpret_cast<Link*>(frames_ + (std::size_t{1} << bits));
    seen_ = reinterpret_cast<Number*>(links_ + (std::size_t{1} << bits));
    numbers_ = seen_ + places();
    frames_[0] = {};
    forget();
  }
  unsigned bits() const { return bits_; }
  const KnownFrame& frame(unsigned number) const { return frames_[number]; }
  unsigned outer_of(unsigned number) const {
    return links_[number].to_outer ? number + static_cast<unsigned>(links_[number].to_outer) : 0;
  }

  // The one that was seen there last.
  unsigned seen_at(std::uintptr_t address, std::uintptr_t cfa) const {
    const std::size_t slot = slot_of(address, cfa);
    for (const Number number : {seen_[slot], seen_[slot ^ 1]})
      if (frames_[number].address == address && frames_[number].cfa == cfa) return number;
    return 0;
  }
  // Of a stack that was known the first frame that leads elsewhere now; 0: it is that stack. Whole, for who calls it
  // has few registers to spare. Mostly frames became known one after the other: so the next one is looked at before it
  // is read where that lies.
  [[gnu::noinline]] unsigned first_that_differs(unsigned innermost) const {
    const std::uintptr_t outermost_cfa = frames_[innermost].outermost_cfa;
    const Link* link = links_ + innermost;
    if (!link->to_outer) return 0;
    if (!aligned_cfa_holds(*link)) return innermost;
    while (link->holds(outermost_cfa)) {
      if (link->next == Link::Next::in_front) [[likely]] {
        --link;
        continue;
      }
      if (link->next == Link::Next::outermost) return 0;
      link += link->to_outer;
      if (!aligned_cfa_holds(*link)) break;
    }
    return number_of(*link);
  }

  // For all frames of a walk.
  bool has_room() const { return used_ + kDepthMax <= std::size_t{1} << bits_; }
  void begin_anew() {
    forget();
    ++generation_;
  }
  // The frame that leads to `outer`, 0: to nothing, from now on the one that was seen there last.
  unsigned put(const Frame& frame, unsigned outer) {
    std::size_t at = slot_of(frame.address + (std::uintptr_t{outer} << 32), frame.cfa);
    while (numbers_[at] && !(outer_of(numbers_[at]) == outer && frames_[numbers_[at]].is(frame)))
      at = (at + 1) % places();
    if (!numbers_[at]) {
      numbers_[at] = static_cast<Number>(used_++);
      fill(numbers_[at], frame, outer);
    }
    see(frame, numbers_[at]);
    return numbers_[at];
  }

  void set_name(unsigned number, const void* tag, std::uint32_t name) {
    frames_[number].tag = tag;
    frames_[number].name = name;
  }
  // Numbers of another one are of other frames.
  unsigned generation() const { return generation_; }

 private:
  static constexpr std::size_t kCacheLine = 64;

  void forget() {
    std::memset(seen_, 0, 2 * places() * sizeof(Number));
    used_ = 1;
  }
  std::size_t places() const { return std::size_t{2} << bits_; }
  std::size_t slot_of(std::uintptr_t address, std::uintptr_t cfa) const {
    return ((address ^ std::rotl(cfa, 24)) * 0x9E3779B97F4A7C15) >> (63 - bits_);
  }
  unsigned number_of(const Link& link) const { return static_cast<unsigned>(&link - links_); }
  bool aligned_cfa_holds(const Link& link) const {
    if (!link.has_aligned_cfa) [[likely]]
      return true;
    const unsigned number = number_of(link);
    return word_at(frames_[number].aligned_cfa_place) == frames_[outer_of(number)].cfa;
  }
  // In front of the one whose place it takes, unless that is the same.
  void see(const Frame& frame, Number number) {
    const std::size_t slot = slot_of(frame.address, frame.cfa);
    const KnownFrame& before = frames_[seen_[slot]];
    if (before.address != frame.address || before.cfa != frame.cfa) seen_[slot ^ 1] = seen_[slot];
    seen_[slot] = number;
  }
  void fill(unsigned number, const Frame& frame, unsigned outer) {
    KnownFrame& known = frames_[number] = {};
    known.address = frame.address;
    known.cfa = known.outermost_cfa = frame.cfa;
    known.rbp = frame.rbp;
    known.row = frame.row;
    known.depth = 1;
    links_[number] = {};
    if (!outer) return;
    known.outermost_cfa = frames_[outer].outermost_cfa;
    known.depth = static_cast<std::uint16_t>(frames_[outer].depth + 1);
    known.needs_rbp = frame.row.shape() != Shape::from_rsp || (frames_[outer].needs_rbp && frame.row.rbp_kept());
    link(number, outer);
  }
  // By the words that leaving a frame reads.
  void link(unsigned number, unsigned outer_number) {
    KnownFrame& frame = frames_[number];
    const KnownFrame& outer = frames_[outer_number];
    const Row row = frame.row;
#if defined(__x86_64__)
    const bool at_rbp = row.shape() == Shape::at_rbp;
    if (at_rbp) frame.aligned_cfa_place = frame.rbp + row.cfa_offset();
    const std::uintptr_t return_place = outer.cfa - 8;
    const std::uintptr_t rbp_place = (at_rbp ? frame.rbp : outer.cfa) + row.rbp_offset();
    const bool rbp_matters = outer.needs_rbp && (at_rbp || !row.rbp_kept());
#else
    const std::uintptr_t base = row.shape() == Shape::from_rbp ? frame.rbp : frame.cfa;
    const std::uintptr_t return_place = base + row.return_offset(), rbp_place = base + row.rbp_offset();
    const bool rbp_matters = outer.needs_rbp && !row.rbp_kept();
#endif
    const auto offset_of_word = [&](std::uintptr_t address) {
      return static_cast<std::int32_t>(static_cast<std::intptr_t>(address - frame.outermost_cfa));
    };
    Link& link = links_[number];
    link.to_outer = static_cast<std::int32_t>(outer_number - number);
    link.has_aligned_cfa = frame.aligned_cfa_place != 0;
    link.next = !links_[outer_number].to_outer                                 ? Link::Next::outermost
                : link.to_outer == -1 && !links_[outer_number].has_aligned_cfa ? Link::Next::in_front
                                                                               : Link::Next::elsewhere;
    link.return_place = offset_of_word(return_place);
    link.return_word = word_at(return_place);
    link.rbp_place = rbp_matters ? offset_of_word(rbp_place) : link.return_place;
    link.rbp = rbp_matters ? word_at(rbp_place) : link.return_word;
  }

  unsigned bits_, used_, generation_;  // used_: with the number 0
  KnownFrame* frames_;
  Link* links_;
  Number *seen_, *numbers_;  // by place and return address; by what is further out as well
};

// What the walks of a thread have left.
class KnownStacks {
 public:
  bool enter() {
    if (!__libc_single_threaded) return !busy_.exchange(true, std::memory_order_acquire);
    const bool was_busy = busy_.load(std::memory_order_relaxed);  // a handler of signals leaves it as it was
    busy_.store(true, std::memory_order_relaxed);
    return !was_busy;
  }
  void leave() { busy_.store(false, std::memory_order_release); }

  // How many frames the last walk's way out of our own code has in common with that of a walk that begins so.
  unsigned own_in_common(std::uintptr_t address, std::uintptr_t cfa) const {
    unsigned count = 0;
    while (own_[count].address == address) address = word_at(cfa + own_[count++].cfa_offset - 8);
    return count;
  }
  const OwnFrame& own(unsigned at) const { return own_[at]; }
  void note_own(unsigned at, const OwnFrame& frame) {
    if (at < kOwnFrames) own_[at] = frame;
  }
  // What follows is not of this way.
  void end_own(unsigned at) { own_[at < kOwnFrames ? at : kOwnFrames].address = 0; }

  // Frames of a walk, innermost first.
  void note(const Frame& frame) {
    if (noted_ <= KnownFrames::kDepthMax) noted_frames_[noted_++] = frame;
  }
  void note_none() { noted_ = 0; }
  // Those noted are in front of a known one; 0: they are a whole stack. From now on known as far as they may be; the
  // innermost, 0: it is not.
  unsigned remember(unsigned outer) { return noted_ ? remember_noted(outer) : outer; }

  KnownFrames* frames = nullptr;

 private:
  static constexpr unsigned kOwnFrames = 12;

  [[gnu::noinline]] unsigned remember_noted(unsigned outer) {
    if (noted_ + frames->frame(outer).depth > KnownFrames::kDepthMax) return 0;
    for (const Frame* frame = noted_frames_ + noted_; frame-- != noted_frames_;) {
      if (frame->row.module()) return 0;
      outer = frames->put(*frame, outer);
    }
    return outer;
  }

  OwnFrame own_[kOwnFrames + 1] = {};  // the last one stays empty
  std::atomic<bool> busy_{false};      // in use by a thread, or by what a signal interrupted
  unsigned noted_ = 0;
  Frame noted_frames_[KnownFrames::kDepthMax + 1];  // one more than may be: then they are too many
};

}  // namespace cistern::unwind
