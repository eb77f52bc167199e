// Something of each call site, by its number, in memory that is zero at first. Not thread-safe.
#pragma once
#include <string.h>

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
    return &page[site % kPageSites];
  }
  // visit(SiteId, T&) for each of which there is memory, whether it was asked for or not.
  template <class Visit>
  void for_each(Visit visit) {
    for (SiteId page = 0; pages_ && page < kPages; ++page)
      for (SiteId i = 0; pages_[page] && i < kPageSites; ++i) visit(page * kPageSites + i, pages_[page][i]);
  }
  void clear() {
    for (SiteId page = 0; pages_ && page < kPages; ++page)
      if (pages_[page]) memset(static_cast<void*>(pages_[page]), 0, kPageSites * sizeof(T));
  }

 private:
  static constexpr SiteId kPageSites = 128, kPages = 8192;  // a million; what is beyond is not noted

  T** pages_ = nullptr;
};

}  // namespace cistern
