// Live memory of any kind as reports group it: blocks of one origin in one row. The origin is the site that allocated
// them; if sites are off, it is the call.
#pragma once
#include <algorithm>
#include <utility>

#include "stats/sites.hpp"

namespace cistern {

// Some blocks of one origin.
struct LiveBlocks {
  const char* object;
  const char* api;
  SiteId site = 0;
  std::uint64_t bytes = 0, first_ns = 0, last_ns = 0;  // allocated, since the start
  std::uint64_t blocks = 1;
};

class LeakRows {
 public:
  explicit LeakRows(Vector<LeakFigures>& rows) : rows_(rows) {}
  LeakRows(const LeakRows&) = delete;
  LeakRows& operator=(const LeakRows&) = delete;

  // `apart`: what keeps rows apart besides their origin, less than 2^16. `kind()`: the kind's name.
  template <class Kind>
  LeakFigures& add(const LiveBlocks& live, std::uint64_t apart, Kind kind) {
    const std::uint64_t origin = live.site ? live.site : reinterpret_cast<std::uintptr_t>(live.api);
    const auto [entry, is_new] = places_.try_emplace(origin << 16 | apart, rows_.size());
    if (is_new) rows_.push_back(leak_at(live.site, kind(), live.object, live.api));
    LeakFigures& row = rows_[entry->second];
    row.blocks += live.blocks;
    row.bytes += live.bytes;
    row.first_s = std::min(row.first_s, static_cast<double>(live.first_ns) / 1e9);
    row.last_s = std::max(row.last_s, static_cast<double>(live.last_ns) / 1e9);
    return row;
  }

 private:
  Vector<LeakFigures>& rows_;
  Map<std::uint64_t, std::size_t> places_;
};

// Counts live objects of one type by their site.
class ObjectRows {
 public:
  explicit ObjectRows(const char* type) : type_(type) {}
  void add(SiteId site, const char* api) {
    ++alive_;
    if (!site) return;
    ObjectSite& row = sites_[site];
    row = {type_, api, site, row.alive + 1, {}};
  }
  // Nothing where there was never one.
  void add_to(Snapshot& snapshot, std::uint64_t created) {
    constexpr std::size_t kShown = 3;
    if (!created) return;
    snapshot.objects.push_back({type_, created, alive_});
    Vector<ObjectSite> sites;
    for (auto& [site, row] : sites_) sites.push_back(std::move(row));
    std::sort(sites.begin(), sites.end(), [](const ObjectSite& a, const ObjectSite& b) {
      return a.alive != b.alive ? a.alive > b.alive : a.site < b.site;
    });
    for (std::size_t i = 0; i < sites.size() && i < kShown; ++i) snapshot.object_sites.push_back(std::move(sites[i]));
  }

 private:
  const char* type_;
  std::uint64_t alive_ = 0;
  Map<SiteId, ObjectSite> sites_;
};

}  // namespace cistern
