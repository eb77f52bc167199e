// Measures on the program's own copies whether cached or streaming stores are faster. Whole copies are timed, several
// in a row with one kind of stores and then several with the other. The first ones of a row do not count, because they
// pay for what the other kind left in the caches or pushed out of them.
//
// The caller has a lock.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "pool/staging/streaming_copy.hpp"

namespace cistern::staging {

struct StoresFigures {
  Stores stores = Stores::cached;
  bool measured = false;  // else the figures below are none, and cached is taken for granted
  double cached_gib_per_second = 0, streaming_gib_per_second = 0;
};

class StoresChoice {
 public:
  static constexpr unsigned kInARow = 8, kRows = 4, kCopiesOfALook = kInARow * kRows;
  static constexpr unsigned kCopiesBetweenLooks = 4096;

  // A copy of a look, or none.
  struct Next {
    Stores stores;
    bool counts;
    bool is_a_look = false;
  };

  Next next() {
    if (copies_ >= kCopiesOfALook + kCopiesBetweenLooks) *this = StoresChoice(figures_);
    const unsigned number = copies_++;
    if (number >= kCopiesOfALook) return {figures_.stores, false};
    return {number / kInARow % 2 == 0 ? Stores::cached : Stores::streaming, number % kInARow >= kInARow / 2, true};
  }

  // `favour_cached`: in percent; the program will read soon what was copied.
  void took(const Next& copy, std::size_t bytes, std::uint64_t nanoseconds, unsigned favour_cached) {
    if (!copy.counts || nanoseconds == 0) return;
    Times& times = copy.stores == Stores::cached ? cached_ : streaming_;
    times.add(static_cast<double>(bytes) / static_cast<double>(nanoseconds));
    if (cached_.count < kSamples || streaming_.count < kSamples) return;
    const double cached = cached_.middle(), streaming = streaming_.middle();
    figures_ = {streaming * 100 > cached * (100 + favour_cached) ? Stores::streaming : Stores::cached, true,
                cached * kGibPerSecond, streaming * kGibPerSecond};
  }

  const StoresFigures& figures() const { return figures_; }

  constexpr StoresChoice() = default;

 private:
  explicit StoresChoice(const StoresFigures& known) : figures_(known) {}

  static constexpr unsigned kSamples = kCopiesOfALook / 4;
  static constexpr double kGibPerSecond = 1e9 / (1 << 30);  // one byte a nanosecond, in GiB a second

  struct Times {
    void add(double bytes_per_nanosecond) {
      if (count < kSamples) sample[count++] = bytes_per_nanosecond;
    }
    double middle() {
      std::nth_element(sample, sample + kSamples / 2, sample + kSamples);
      return sample[kSamples / 2];
    }
    double sample[kSamples]{};
    unsigned count = 0;
  };

  StoresFigures figures_{};
  unsigned copies_ = 0;
  Times cached_{}, streaming_{};
};

}  // namespace cistern::staging
