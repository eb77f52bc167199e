// See out_of_memory.hpp.
#include "shim/process/out_of_memory.hpp"

#include <algorithm>

#include "shim/process/headroom.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/misuse.hpp"
#include "stats/counters.hpp"
#include "stats/format.hpp"
#include "stats/resolve.hpp"

namespace cistern {
namespace {

constexpr std::size_t kSitesShown = 3, kSitesDescribed = 12, kWrappersMax = 8;
constexpr unsigned kSymbolBudgetMs = 500;

// Debug information takes some times its file's size, for good: it is read where that is little of what there is. Else
// what is out may be the host's memory, which the program's next call needs.
unsigned symbol_budget_ms() {
  constexpr std::uint64_t kPlentyBytes = std::uint64_t{256} << 20;
  return Headroom().bytes({.now_ns = coarse_now_ns()}) >= kPlentyBytes ? kSymbolBudgetMs : 0;
}

struct Holder {
  String place;
  std::uint64_t bytes, blocks;
};

// By the `depth`-th caller's line, which is reached on many stacks; by the last one where a stack ends before.
Vector<Holder> holders_at(const Vector<Holding>& sites, const Vector<Vector<FrameFigures>>& stacks, std::size_t depth) {
  Vector<Holder> holders;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (stacks[i].empty()) continue;
    String place = describe_frame(stacks[i][std::min(depth, stacks[i].size() - 1)]);
    auto same = std::find_if(holders.begin(), holders.end(), [&](const Holder& h) { return h.place == place; });
    if (same == holders.end()) {
      holders.push_back({std::move(place), sites[i].bytes, sites[i].blocks});
    } else {
      same->bytes += sites[i].bytes;
      same->blocks += sites[i].blocks;
    }
  }
  return holders;
}

}  // namespace

void print_other_kinds(Sink& line, const Kind& own) {
  for (const Kind* other : kinds())
    if (const std::uint64_t bytes = other == &own ? 0 : other->live_bytes())
      line.print("; {}: {}", other->name, human_bytes(bytes));
}

void Holdings::print(Sink& line) const {
  Vector<Holding> sites;
  for (const auto& [site, holding] : by_site_) sites.push_back(holding);
  std::sort(sites.begin(), sites.end(), [](const Holding& a, const Holding& b) { return a.bytes > b.bytes; });
  if (sites.size() > kSitesDescribed) sites.resize(kSitesDescribed);
  Vector<Vector<FrameFigures>> stacks;
  const unsigned budget_ms = symbol_budget_ms();
  for (const Holding& site : sites) stacks.push_back(resolved_frames(site.site, budget_ms));
  Vector<Holder> holders = holders_at(sites, stacks, 0);
  for (std::size_t depth = 1; depth <= kWrappersMax && holders.size() == 1 && sites.size() > 1; ++depth) {
    Vector<Holder> above = holders_at(sites, stacks, depth);
    if (above.size() > 1) holders = std::move(above);
  }
  std::sort(holders.begin(), holders.end(), [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
  if (holders.size() > kSitesShown) holders.resize(kSitesShown);
  for (const Holder& holder : holders)
    line.print("; {} in {} at {}", human_bytes(holder.bytes), counted(holder.blocks, "block"), holder.place);
}

void print_this_call(Sink& line, SiteId site) {
  if (!site) return;
  const Vector<FrameFigures> frames = resolved_frames(site, symbol_budget_ms());
  if (!frames.empty()) line.print("; this call at {}", describe_frame(frames.front()));
}

}  // namespace cistern
