// When memory ran out for good: one joint account of all kinds, so that the reader sees at once who holds it.
#include <algorithm>

#include "shim/cuda/state.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/log.hpp"
#include "shim/process/misuse.hpp"
#include "shim/process/process.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/format.hpp"
#include "stats/sink.hpp"

namespace cistern::cuda {

extern const Kind kind;

namespace {

constexpr std::size_t kSitesShown = 3, kSitesDescribed = 12;

struct SiteBytes {
  Tracked first;
  std::uint64_t bytes = 0, blocks = 0;
};

Vector<SiteBytes> top_sites(CudaState& s, Family family, int device) {
  Map<SiteId, SiteBytes> by_site;
  s.blocks.table.for_each([&](Block& block) {
    const auto record = read_live(block, [&] { return as_tracked(block); });
    if (!record || !record->site || record->family != family || record->device != device) return;
    SiteBytes& site = by_site[record->site];
    site.first = *record;
    site.bytes += record->bytes;
    ++site.blocks;
  });
  Vector<SiteBytes> sites;
  for (auto& [id, site] : by_site) sites.push_back(site);
  std::sort(sites.begin(), sites.end(), [](const SiteBytes& a, const SiteBytes& b) { return a.bytes > b.bytes; });
  if (sites.size() > kSitesDescribed) sites.resize(kSitesDescribed);
  return sites;
}

struct Holder {
  String place;
  std::uint64_t bytes, blocks;
};

// The largest sites by the line that they name: one line is reached on many stacks.
Vector<Holder> largest_holders(CudaState& s, Family family, int device) {
  Vector<Holder> holders;
  for (const SiteBytes& site : top_sites(s, family, device)) {
    String place = describe_site(site.first.site);
    auto same = std::find_if(holders.begin(), holders.end(), [&](const Holder& h) { return h.place == place; });
    if (same == holders.end()) {
      holders.push_back({std::move(place), site.bytes, site.blocks});
    } else {
      same->bytes += site.bytes;
      same->blocks += site.blocks;
    }
  }
  std::sort(holders.begin(), holders.end(), [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
  if (holders.size() > kSitesShown) holders.resize(kSitesShown);
  return holders;
}

std::uint64_t live(CudaState& s, Family family, int device = 0) {
  KindCounters* counted = s.kinds[static_cast<int>(family)][device].load();
  return counted ? read(counted->live_bytes) : 0;
}

}  // namespace

void report_out_of_memory(CudaState& s, const char* api, Family family, int device, std::uint64_t bytes) {
  if (phase() != Phase::running) return;
  Uncounted uncounted;
  const bool on_device = family != Family::pinned;
  StringSink line;
  line.print("{} of {}: out of memory", api, human_bytes(bytes));
  if (on_device) {
    line.print("; device {}: {} live", device, human_bytes(live(s, Family::device, device)));
    if (const std::uint64_t async = live(s, Family::async, device))
      line.print(", {} stream-ordered", human_bytes(async));
    if (const std::uint64_t vmm = live(s, Family::vmm, device)) line.print(", {} mapped", human_bytes(vmm));
  }
  line.print("; pinned: {} live", human_bytes(live(s, Family::pinned)));
  if (const std::uint64_t managed = live(s, Family::managed)) line.print("; managed: {}", human_bytes(managed));
  for (const Kind* other : kinds())
    if (const std::uint64_t bytes = other == &kind ? 0 : other->live_bytes())
      line.print("; {}: {}", other->name, human_bytes(bytes));
  const PoolUsage usage = on_device ? s.device_pool.usage() : s.pinned_pool.usage();
  if (usage.blocks)
    line.print("; cached: {}, largest block {}", human_bytes(usage.bytes), human_bytes(usage.largest_bytes));
  for (const Holder& holder : largest_holders(s, on_device ? Family::device : Family::pinned, on_device ? device : 0))
    line.print("; {} in {} at {}", human_bytes(holder.bytes), counted(holder.blocks, "block"), holder.place);
  warn_line(line.text());
}

}  // namespace cistern::cuda
