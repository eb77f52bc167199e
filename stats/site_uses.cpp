// See site_uses.hpp.
#include "stats/site_uses.hpp"

#include <string.h>

namespace cistern {

SiteUse* SiteUses::of(SiteId site) {
  if (!site || site >= kPageSites * kPages) return nullptr;
  if (!pages_) {
    pages_ = static_cast<SiteUse**>(internal_try_allocate(kPages * sizeof(SiteUse*)));
    if (!pages_) return nullptr;
    memset(pages_, 0, kPages * sizeof(SiteUse*));
  }
  SiteUse*& page = pages_[site / kPageSites];
  if (!page) {
    page = static_cast<SiteUse*>(internal_try_allocate(kPageSites * sizeof(SiteUse)));
    if (!page) return nullptr;
    memset(static_cast<void*>(page), 0, kPageSites * sizeof(SiteUse));
  }
  return &page[site % kPageSites];
}

void SiteUses::clear() {
  for (SiteId page = 0; pages_ && page < kPages; ++page)
    if (pages_[page]) memset(static_cast<void*>(pages_[page]), 0, kPageSites * sizeof(SiteUse));
}

}  // namespace cistern
