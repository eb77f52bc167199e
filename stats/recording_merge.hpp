// The events of many chunks in the order of time. Each chunk is in order already.
#pragma once
#include <algorithm>
#include <span>

#include "stats/recording_format.hpp"

namespace cistern::recording {

class Merge {
 public:
  // `chunks`: by their first moment. `waiting`: room for as many. Both stay.
  Merge(std::span<ChunkEvents> chunks, ChunkEvents** waiting) : chunks_(chunks), waiting_(waiting) {}

  // Null: there are no more, or (not ok) a chunk is none of a recording.
  const Event* next() {
    if (current_ && !current_->next()) {
      ok_ &= current_->ok();
      current_ = nullptr;
    }
    while (entered_ < chunks_.size() && (!first() || chunks_[entered_].first_time() <= first()->event().time))
      enter(chunks_[entered_++]);
    if (count_ && (!current_ || is_before(waiting_[0]->event(), current_->event()))) {
      if (current_) push(*current_);
      std::pop_heap(waiting_, waiting_ + count_, is_later);
      current_ = waiting_[--count_];
    }
    return current_ && ok_ ? &current_->event() : nullptr;
  }
  bool ok() const { return ok_; }

 private:
  static bool is_later(const ChunkEvents* one, const ChunkEvents* other) {
    return is_before(other->event(), one->event());
  }
  void push(ChunkEvents& chunk) {
    waiting_[count_++] = &chunk;
    std::push_heap(waiting_, waiting_ + count_, is_later);
  }
  // The first of those that were entered; null: none has an event.
  const ChunkEvents* first() const {
    if (!count_) return current_;
    return current_ && !is_before(waiting_[0]->event(), current_->event()) ? current_ : waiting_[0];
  }
  void enter(ChunkEvents& chunk) {
    if (chunk.next())
      push(chunk);
    else
      ok_ &= chunk.ok();
  }

  const std::span<ChunkEvents> chunks_;
  ChunkEvents** const waiting_;  // a heap
  ChunkEvents* current_ = nullptr;
  std::size_t entered_ = 0, count_ = 0;
  bool ok_ = true;
};

}  // namespace cistern::recording
