// Something of each call site, by its number, in memory that is zero at first. Not thread-safe.
#pragma once
#include <string.h>

#include <algorithm>

#include "pool/base/internal_memory.hpp"
#include "stats/sites.hpp"

namespace cistern {

template <class T>
class SiteTable {
 public:
  // Null: no site, or no memory for it.
  T* of(SiteId site) {
    if (!site || site >= kPageSites * kPages) return nullptr;
    if (!pages_ && !(pages_ = static_cast<T**>(internal_try_allocate_zeroed(kPages * sizeof(T*))))) return nullptr;
    T*& page = pages_[site / kPageSites];
    if (!page && !(page = static_cast<T*>(internal_try_allocate_zeroed(kPageSites * sizeof(T))))) return nullptr;
    end_ = std::max(end_, site + 1);
    return &page[site % kPageSites];
  }
  // visit(SiteId, T&) for each up to the last that was asked for, as far as there is memory, whether it was asked for
  // or not. Memory behind it stays untouched.
  template <class Visit>
  void for_each(Visit visit) {
    for (SiteId first = 0; first < end_; first += kPageSites)
      if (T* const page = pages_[first / kPageSites])
        for (SiteId i = 0; i < std::min(kPageSites, end_ - first); ++i) visit(first + i, page[i]);
  }
  void clear() {
    for_each([](SiteId, T& of_site) { memset(static_cast<void*>(&of_site), 0, sizeof of_site); });
    end_ = 0;
  }

 private:
  static constexpr SiteId kPageSites = 128, kPages = 8192;  // a million; what is beyond is not noted

  T** pages_ = nullptr;
  SiteId end_ = 0;  // behind all that were asked for
};

}  // namespace cistern
