// The use of one kind's memory by each call site: the memory that it allocated in all, has now and had at the kind's
// peak, and the blocks that the very next call freed. Exact, for kinds whose calls keep their sites.
//
// At a new peak no site is visited: each notes what it had when it changes for the first time after it.
#pragma once
#include "stats/history.hpp"
#include "stats/site_table.hpp"
#include "stats/sites.hpp"

namespace cistern {

class SiteUse {
 public:
  struct Moment {
    std::uint64_t peaks;  // the number of the last one
    std::uint64_t ms;     // since the start
  };
  void born(const char* api, std::uint64_t bytes, Moment now) {
    note_peak(now.peaks);
    api_ = api;
    ++allocations_, ++live_blocks_;
    allocated_bytes_ += bytes;
    live_bytes_ += bytes;
    history_.note(now.ms, live_bytes_, now.ms);
  }
  // A block, or the bytes of one that went before.
  void died(std::uint64_t blocks, std::uint64_t bytes, bool was_last_born, Moment now) {
    note_peak(now.peaks);
    live_blocks_ -= blocks;
    live_bytes_ -= bytes;
    temporary_ += was_last_born;
    history_.note(now.ms, live_bytes_, 0);
  }
  void revived(std::uint64_t peaks, std::uint64_t bytes) {
    note_peak(peaks);
    ++live_blocks_;
    live_bytes_ += bytes;
  }
  const History& history() const { return history_; }
  // As a report shows it; `peaks`: the number of the last one.
  UsingSite figures(std::uint64_t peaks) const {
    const bool changed_since = peaks_seen_ == peaks;
    UsingSite figures{};
    figures.api = api_;
    figures.allocations = allocations_;
    figures.allocated_bytes = allocated_bytes_;
    figures.temporary = temporary_;
    figures.peak_blocks = changed_since ? peak_blocks_ : live_blocks_;
    figures.peak_bytes = changed_since ? peak_bytes_ : live_bytes_;
    return figures;
  }

 private:
  void note_peak(std::uint64_t peaks) {
    if (peaks_seen_ == peaks) return;
    peaks_seen_ = peaks;
    peak_blocks_ = live_blocks_;
    peak_bytes_ = live_bytes_;
  }

  const char* api_;
  std::uint64_t allocations_, allocated_bytes_, temporary_, live_blocks_, live_bytes_;
  std::uint64_t peak_blocks_, peak_bytes_, peaks_seen_;
  History history_;
};

using SiteUses = SiteTable<SiteUse>;

}  // namespace cistern
