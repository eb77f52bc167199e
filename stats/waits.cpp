// See waits.hpp.
#include "stats/waits.hpp"

#include <algorithm>

namespace cistern {

void Waits::add(SiteId site, const char* api, std::uint64_t ns) {
  Locked hold(lock_);
  Row& row = rows_[{site, api}];
  ++row.count;
  row.ns += ns;
}

[[gnu::cold]] void Waits::add_to(Snapshot& snapshot, const char* kind) {
  constexpr std::size_t kShown = 3;
  Vector<WaitSite> waits;
  {
    Locked hold(lock_);
    for (const auto& [key, row] : rows_)
      waits.push_back({kind, key.api, key.site, row.count, static_cast<double>(row.ns) / 1e9, {}});
  }
  std::sort(waits.begin(), waits.end(), [](const WaitSite& a, const WaitSite& b) {
    return a.count != b.count ? a.count > b.count : a.site < b.site;
  });
  for (std::size_t i = 0; i < waits.size() && i < kShown; ++i) snapshot.waits.push_back(std::move(waits[i]));
}

void Waits::clear() {
  Locked hold(lock_);
  rows_.clear();
}

}  // namespace cistern
