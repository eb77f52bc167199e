// See recording_moments.hpp.
#include "stats/formats/recording_moments.hpp"

#include <algorithm>
#include <set>

namespace cistern::formats {
namespace {

// More do not live at a time in any process that writes a file of a size that is read.
constexpr std::size_t kLiveMax = std::size_t{1} << 27;
constexpr Count kBytesMax = Count{1} << 62;

Count plus(Count value, std::int64_t change) {
  const Count sum = value + static_cast<Count>(change);
  if (sum > kBytesMax) throw BadReport("is a damaged recording: its sizes make no sense");
  return sum;
}

}  // namespace

Count LiveRecorded::Block::weighted_bytes() const {
  if (weight == RecordedEvent::kWeight1) return std::min(bytes, kBytesMax / 2);
  const double weighted = static_cast<double>(bytes) * static_cast<double>(weight) / RecordedEvent::kWeight1;
  return static_cast<Count>(std::min(weighted, static_cast<double>(kBytesMax / 2)));
}

LiveRecorded::Change LiveRecorded::apply(const RecordedEvent& event) {
  Change change;
  const auto count = [&](const Block& block, int sign) {
    change.blocks += sign * static_cast<std::int64_t>(block.weighted_blocks());
    change.bytes += sign * static_cast<std::int64_t>(block.weighted_bytes());
  };
  if (event.type > RecordedType::resized) return change;
  const auto known = blocks_.find({event.kind, event.address});
  if (event.type == RecordedType::allocation) {
    if (known != blocks_.end()) count(known->second, -1);
    const Block block{event.bytes, event.time, event.weight, event.site, event.thread};
    count(block, 1);
    if (known != blocks_.end())
      known->second = block;
    else if (blocks_.size() == kLiveMax)
      throw BadReport("has more live blocks than can be shown");
    else
      blocks_.emplace(Key{event.kind, event.address}, block);
    return change;
  }
  change.unknown = known == blocks_.end();
  if (change.unknown) return change;
  count(known->second, -1);
  if (event.type == RecordedType::free) {
    blocks_.erase(known);
  } else {
    known->second.bytes = event.bytes;
    count(known->second, 1);
  }
  return change;
}

void LiveRecorded::for_each(const std::function<void(Count, Count, const Block&)>& visit) const {
  for (const auto& [key, block] : blocks_) visit(key.kind, key.address, block);
}

RecordedTotals totals(const Recording& recording) {
  RecordedTotals all;
  LiveRecorded live;
  std::set<std::uint32_t> threads;
  recording.for_each_event([&](const RecordedEvent& event) {
    ++all.events;
    threads.insert(event.thread);
    all.last_s = recording.seconds_at(event.time);
    RecordedKind& kind = all.kinds[event.kind];
    const LiveRecorded::Change change = live.apply(event);
    all.unknown_frees += change.unknown;
    kind.allocations += event.type == RecordedType::allocation;
    kind.frees += event.type == RecordedType::free;
    kind.failed += event.type == RecordedType::failed;
    if (event.type == RecordedType::copy) {
      kind.copies += event.count;
      kind.copied_bytes = plus(kind.copied_bytes, static_cast<std::int64_t>(std::min(event.bytes, kBytesMax)));
    }
    kind.live_blocks = plus(kind.live_blocks, change.blocks);
    kind.live_bytes = plus(kind.live_bytes, change.bytes);
    if (kind.live_bytes <= kind.peak_bytes) return;
    kind.peak_bytes = kind.live_bytes;
    kind.peak_blocks = kind.live_blocks;
    kind.peak_s = all.last_s;
    kind.peak_events = all.events;
  });
  all.threads = threads.size();
  for (auto& [number, kind] : all.kinds) kind.name = recording.kind_name(number);
  return all;
}

Named<Levels> levels(const Recording& recording, Seconds end_s, std::size_t points) {
  struct OfKind {
    Count now = 0;
    std::size_t at = 0;  // the interval that it is in
    Levels levels;
  };
  std::map<Count, OfKind> kinds;
  LiveRecorded live;
  const Seconds interval_s = end_s / static_cast<double>(points);
  const auto go_to = [&](OfKind& kind, std::size_t at) {
    for (; kind.at < at; ++kind.at) {
      kind.levels.last[kind.at] = kind.now;
      if (kind.at + 1 < points) kind.levels.least[kind.at + 1] = kind.now;
    }
  };
  recording.for_each_event([&](const RecordedEvent& event) {
    const LiveRecorded::Change change = live.apply(event);
    if (event.type > RecordedType::resized) return;
    OfKind& kind = kinds[event.kind];
    if (kind.levels.last.empty()) kind.levels = {0, interval_s, std::vector<Count>(points), std::vector<Count>(points)};
    const double at = interval_s > 0 ? recording.seconds_at(event.time) / interval_s : 0;
    go_to(kind, static_cast<std::size_t>(std::min(at, static_cast<double>(points - 1))));
    kind.now = plus(kind.now, change.bytes);
    kind.levels.least[kind.at] = std::min(kind.levels.least[kind.at], kind.now);
  });
  Named<Levels> named;
  for (auto& [number, kind] : kinds) {
    go_to(kind, points);
    named.emplace_back(recording.kind_name(number), std::move(kind.levels));
  }
  return named;
}

std::vector<RecordedUse> live_by_site(const Recording& recording, const Until& until) {
  LiveRecorded live;
  Count events = 0;
  recording.for_each_event([&](const RecordedEvent& event) {
    if (events++ < until.events && recording.seconds_at(event.time) <= until.seconds) live.apply(event);
  });
  std::map<std::pair<Count, std::uint32_t>, RecordedUse> by_site;
  live.for_each([&](Count kind, Count, const LiveRecorded::Block& block) {
    RecordedUse& use = by_site.try_emplace({kind, block.site}, RecordedUse{kind, block.site}).first->second;
    use.blocks = plus(use.blocks, static_cast<std::int64_t>(block.weighted_blocks()));
    use.bytes = plus(use.bytes, static_cast<std::int64_t>(block.weighted_bytes()));
  });
  std::vector<RecordedUse> uses;
  for (const auto& [key, use] : by_site) uses.push_back(use);
  std::ranges::stable_sort(uses, std::ranges::greater(), &RecordedUse::bytes);
  return uses;
}

}  // namespace cistern::formats
