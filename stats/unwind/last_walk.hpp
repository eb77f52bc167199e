// What a thread's last walk found and read, so that the next one need not do it again: further out, most of a stack is
// what it was.
//
// A frame leads to the next by its row and by few words of the stack: where the return address lies, where rbp was
// saved. So a walk that comes to a frame of the last one (the same return address at the same place, and the same rbp
// if that matters further out) goes on as that one did if these words are what they were. It looks at them in the order
// in which the walk would read them, and at the first that differs it walks on: nothing else is read.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "stats/unwind/rows.hpp"
#include "stats/unwind/stack_names.hpp"

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

// Calls `read(place)` for each word that leaving `frame` reads, the last one first. `cfa`: of that frame itself.
constexpr unsigned kWordsOfFrame = 3;
template <class Read>
[[gnu::always_inline]] inline void words_read_backwards(const Frame& frame, std::uintptr_t cfa, bool rbp_matters,
                                                        Read read) {
  const Row row = frame.row;
#if defined(__x86_64__)
  const bool at_rbp = row.shape() == Shape::at_rbp;
  read(cfa - 8);
  if (rbp_matters && (at_rbp || !row.rbp_kept())) read((at_rbp ? frame.rbp : cfa) + row.rbp_offset());
  if (at_rbp) read(frame.rbp + row.cfa_offset());
#else
  (void)cfa;
  const std::uintptr_t base = row.shape() == Shape::from_rbp ? frame.rbp : frame.cfa;
  if (rbp_matters && !row.rbp_kept()) read(base + row.rbp_offset());
  read(base + row.return_offset());
#endif
}

// The frames stand at the end of their tables, the outermost last: they keep their places when inner ones change.
class LastWalk {
 public:
  static constexpr unsigned kFrames = 64;

  bool enter() { return !busy_.exchange(true, std::memory_order_acquire); }
  void leave() { busy_.store(false, std::memory_order_release); }

  unsigned first() const { return kFrames - count_; }
  std::uintptr_t address(unsigned at) const { return addresses_[at]; }
  std::uintptr_t cfa(unsigned at) const { return entries_[at].cfa; }
  Row row(unsigned at) const { return entries_[at].row; }
  const std::uintptr_t* addresses(unsigned at) const { return addresses_ + at; }

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

  // Whether a walk that is at the frame `at` now, within a stack that ends at `end`, would go on as that one did. If
  // not, `differs` is how far a look came: frames before that are not looked at again, so no word is read twice.
  bool holds_from(unsigned at, std::uintptr_t rbp, std::uintptr_t end, unsigned& differs) const {
    const Entry& entry = entries_[at];
    if (!entry.ends_well || entry.words < differs || (entry.needs_rbp && entry.rbp != rbp)) return false;
    if (entries_[kFrames - 1].cfa > end) return false;
    for (const Word* word = words_ + entry.words; word != words_ + kWords; ++word)
      if (word_at(word->place) != word->value) {
        differs = static_cast<unsigned>(word - words_) + 1;
        return false;
      }
    return true;
  }

  // Frames of a walk, innermost first.
  void note(const Frame& frame) {
    if (noted_ != kFrames) fresh_[noted_++] = frame;
  }
  void note_none() { noted_ = 0; }
  // Those noted are in front of what stands from `at` on; at the end of the tables they are a whole walk, which came to
  // the outermost frame or not.
  void remember(unsigned at, bool came_to_end);
  // Of the whole walk that is remembered, once there is a table of names; kNone: it is not remembered, or not for good.
  StackNames::Number number() const { return count_ ? entries_[first()].number : StackNames::kNone; }
  void forget() { count_ = 0; }

  StackNames* names = nullptr;

 private:
  static constexpr unsigned kWords = 2 * kFrames, kOwnFrames = 12;
  struct Entry {
    std::uintptr_t cfa, rbp;
    Row row;
    std::uint8_t words;  // from there on, those that the walk reads behind this frame
    bool needs_rbp;      // rbp here decides on frames further out
    bool ends_well;      // all that it comes to is for good: the code stays loaded, and the end is the outermost frame
    StackNames::Number number;  // of the stack from there on
  };
  struct Word {
    std::uintptr_t place, value;
  };

  void put_outermost(unsigned at, const Frame& frame, bool came_to_end);
  void put(unsigned at, const Frame& frame);

  OwnFrame own_[kOwnFrames + 1] = {};  // the last one stays empty
  std::atomic<bool> busy_{false};      // in use by a thread, or by what a signal interrupted
  unsigned count_ = 0, noted_ = 0;
  std::uintptr_t addresses_[kFrames + 1] = {};  // 0 behind the last
  Entry entries_[kFrames] = {};
  Word words_[kWords] = {};
  Frame fresh_[kFrames] = {};
};

inline void LastWalk::remember(unsigned at, bool came_to_end) {
  if (noted_ > at || noted_ == kFrames) {
    count_ = 0;  // too many
    return;
  }
  const Frame* frame = fresh_ + noted_;
  if (at == kFrames && frame != fresh_) put_outermost(--at, *--frame, came_to_end);
  while (frame != fresh_) put(--at, *--frame);
  count_ = kFrames - at;
}

inline void LastWalk::put_outermost(unsigned at, const Frame& frame, bool came_to_end) {
  addresses_[at] = frame.address;
  const bool ends_well = came_to_end && !frame.row.module();
  const StackNames::Number number = names && ends_well ? names->of_outermost(frame.address) : StackNames::kNone;
  entries_[at] = {frame.cfa, frame.rbp, frame.row, kWords, false, ends_well, number};
}

inline void LastWalk::put(unsigned at, const Frame& frame) {
  const Entry& outer = entries_[at + 1];
  Entry& entry = entries_[at];
  addresses_[at] = frame.address;
  entry.cfa = frame.cfa;
  entry.rbp = frame.rbp;
  entry.row = frame.row;
  entry.ends_well = false;
  entry.number = StackNames::kNone;
  if (!outer.ends_well || outer.words < kWordsOfFrame || frame.row.module()) return;
  unsigned words = outer.words;
  words_read_backwards(frame, outer.cfa, outer.needs_rbp, [&](std::uintptr_t place) {
    words_[--words] = {place, word_at(place)};
  });
  entry.words = static_cast<std::uint8_t>(words);
  entry.needs_rbp = frame.row.shape() != Shape::from_rsp || (outer.needs_rbp && frame.row.rbp_kept());
  entry.ends_well = true;
  if (names) entry.number = names->of(frame.address, outer.number);
}

}  // namespace cistern::unwind
