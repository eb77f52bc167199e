// See read_ahead.hpp.
#include "shim/staging/read_ahead.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "pool/base/clock.hpp"
#include "pool/base/page_size.hpp"
#include "pool/base/system_call.hpp"
#include "shim/staging/touchable.hpp"
#include "stats/counters.hpp"

namespace cistern {
namespace {

constexpr std::uint64_t kPartOfHeadroom = 4;

std::uintptr_t word(const char* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
const char* page_of(const char* address) { return address - word(address) % page_bytes(); }
bool are_cached(const char* first, const char* end, const FilePages& pages) {
  return pages.is_cached(page_of(first)) && pages.is_cached(page_of(end - 1));
}

}  // namespace

// Where nothing is mapped any more the system reads nothing.
void FilePages::read_ahead(const char* first, const char* end) const {
  const char* const page = page_of(first);
  system_call(SYS_madvise, word(page), static_cast<std::uintptr_t>(end - page),
              static_cast<std::uintptr_t>(MADV_WILLNEED));
}

std::uint64_t FilePages::now_ns() const { return monotonic_ns(); }

bool PagesByAddress::is_cached(const char* page) const { return is_resident(word(page)); }

std::size_t ReadAhead::window_most() {
  const std::uint64_t headroom = headroom_.bytes({0, coarse_now_ns(), false});
  return static_cast<std::size_t>(std::min<std::uint64_t>(kWindowBytesMost, headroom / kPartOfHeadroom));
}

// A copy continues a row where the row ended, or among the bytes that were asked for behind it.
ReadAhead::Copy ReadAhead::begin(const char* first, std::size_t bytes, const char* mapping_end) {
  Copy copy;
  copy.of_ = this;
  copy.end_ = copy.last_ = first + bytes;
  copy.asked_to_ = first;
  Locked hold(lock_);
  copy.asks_ = look_ == Look::over ? asks_ : look_ == Look::with;
  for (Row& row : rows_) {
    if (!row.end || first < row.end || first > std::max(row.end, row.asked_to)) continue;
    copy.last_ = std::max(copy.end_, mapping_end);
    copy.asked_to_ = std::max(first, row.asked_to);
    copy.window_ = row.window;
    row = {};
    break;
  }
  return copy;
}

void ReadAhead::end(const Copy& copy) {
  if (!copy.of_) return;
  Locked hold(lock_);
  if (copy.missing_bytes_ && copy.asks_ == (look_ == Look::over ? asks_ : look_ == Look::with))
    measured(copy.missing_bytes_, copy.missing_ns_);
  Row* row = std::find_if(rows_, rows_ + std::size(rows_), [](const Row& one) { return !one.end; });
  if (row == rows_ + std::size(rows_)) row = &rows_[next_++ % std::size(rows_)];
  *row = {copy.end_, copy.asked_to_, copy.window_};
}

void ReadAhead::measured(std::uint64_t bytes, std::uint64_t ns) {
  look_bytes_ += bytes;
  look_ns_ += ns;
  const std::uint64_t wanted = look_ == Look::without ? kBytesWithout
                               : look_ == Look::with  ? kBytesWith
                                                      : kBytesBetweenLooks;
  if (look_bytes_ < wanted) return;
  const double rate = static_cast<double>(look_bytes_) / static_cast<double>(std::max<std::uint64_t>(look_ns_, 1));
  if (look_ == Look::without) {
    rate_without_ = rate;
    asks_ = false;
    look_ = rate > kFastBytesPerNs ? Look::over : Look::with;
  } else if (look_ == Look::with) {
    asks_ = rate > rate_without_ * kGain;
    look_ = Look::over;
  } else {
    look_ = Look::without;
  }
  look_bytes_ = look_ns_ = 0;
}

// Two looks at each step: what is there is not asked for.
void ReadAhead::Copy::ask(const char* read_to, const FilePages& pages) {
  const auto goal = [&] { return read_to + std::min(window_, static_cast<std::size_t>(last_ - read_to)); };
  bool has_grown = false;
  while (asked_to_ < goal()) {
    const char* const first = asked_to_;
    asked_to_ += std::min(kStepBytes, static_cast<std::size_t>(last_ - first));
    if (are_cached(first, asked_to_, pages)) continue;
    const std::size_t most = of_->window_most();
    if (!has_grown) window_ = std::min(window_ * 2, most);
    has_grown = true;
    if (most) pages.read_ahead(first, asked_to_);
  }
}

// A piece is measured from its begin to that of the next, if it was missing or was asked for in this copy.
bool ReadAhead::Copy::reads(const char* first, const char* end, const FilePages& pages) {
  if (!of_ || first == end) return true;
  const std::uint64_t now_ns = pages.now_ns();
  if (begun_bytes_) {
    missing_bytes_ += begun_bytes_;
    missing_ns_ += now_ns - began_ns_;
  }
  const bool was_asked_for = asks_ && first < asked_to_;
  if (asks_) ask(end, pages);
  const bool here = are_cached(first, end, pages);
  began_ns_ = now_ns;
  begun_bytes_ = was_asked_for || !here ? static_cast<std::uint64_t>(end - first) : 0;
  return here;
}

}  // namespace cistern
