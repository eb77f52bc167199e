// Measures on the program's own copies how many threads are worth their time. At some number the processors or the
// source have nothing left, and more threads copy no faster, or slower.
//
// Four threads copy at first, or as many as may. A look times a few copies with one number of threads after another. It
// doubles the number as long as that brings 15 %. If the first doubling brings less, the look halves the number as long
// as that costs less than 5 %. The first copy of a number starts threads, and does not count. The next look comes after
// some thousand copies.
//
// The caller has a lock.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cistern::staging {

class WorkersChoice {
 public:
  static constexpr unsigned kFirstThreads = 4, kCopiesOfANumber = 5, kCopiesBetweenLooks = 4096;
  static constexpr double kGainToDouble = 1.15, kLossToHalve = 1.05;

  struct Next {
    unsigned threads;
    bool counts;
  };

  // `most`: as many as may copy now, at least 1.
  Next next(unsigned most) {
    if (most != most_) *this = WorkersChoice(most);
    if (settled_) {
      if (++copies_ < kCopiesBetweenLooks) return {threads_, false};
      *this = WorkersChoice(most, threads_);
    }
    return {tried_, copies_++ != 0};
  }

  void took(const Next& copy, std::size_t bytes, std::uint64_t nanoseconds) {
    if (!copy.counts || settled_ || copy.threads != tried_ || nanoseconds == 0) return;
    rate_ = std::max(rate_, static_cast<double>(bytes) / static_cast<double>(nanoseconds));
    if (++counted_ == kCopiesOfANumber - 1) decide();
  }

  unsigned threads() const { return threads_; }  // the best so far
  constexpr WorkersChoice() = default;

 private:
  explicit WorkersChoice(unsigned most, unsigned threads = kFirstThreads)
      : most_(most), first_(std::min(threads, most)), threads_(first_), tried_(first_) {}

  // Up from the first number as long as that gains, and down from it if it did not.
  void decide() {
    const bool is_fewer = tried_ < first_;
    const bool is_good = tried_ == first_ || (is_fewer ? rate_ * kLossToHalve : rate_ / kGainToDouble) > best_rate_;
    if (is_good) {
      threads_ = tried_;
      best_rate_ = std::max(best_rate_, rate_);
    }
    const unsigned more = std::min(tried_ * 2, most_), half = threads_ / 2;
    if (!is_fewer && is_good && more != tried_) return try_with(more);
    if (threads_ > first_ || (is_fewer && !is_good) || half == 0) return settle();
    try_with(half);
  }
  void try_with(unsigned threads) {
    tried_ = threads;
    copies_ = counted_ = 0;
    rate_ = 0;
  }
  void settle() {
    settled_ = true;
    copies_ = 0;
  }

  unsigned most_ = 0, first_ = 0, threads_ = 0, tried_ = 0;
  unsigned copies_ = 0, counted_ = 0;
  bool settled_ = false;
  double rate_ = 0, best_rate_ = 0;  // bytes a nanosecond
};

}  // namespace cistern::staging
