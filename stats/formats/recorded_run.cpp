// See recorded_run.hpp. The first reading knows the end and the peaks, the second one what was live at moments between.
#include "stats/formats/recorded_run.hpp"

#include <algorithm>
#include <tuple>

#include "stats/copy_direction.hpp"
#include "stats/format.hpp"
#include "stats/formats/recorded_memory.hpp"
#include "stats/report/text_parts.hpp"

namespace cistern::formats {
namespace {

constexpr std::size_t kIntervals = 500;  // of the levels
constexpr std::size_t kMoments = 100, kPeaksMax = 16, kUsesOfMoment = 4096, kFailedMax = 1000;
constexpr std::size_t kCopySitesMax = std::size_t{1} << 20;

constexpr std::string_view kHost = "host";

// A file may have any number.
std::string name_of_direction(std::uint8_t number) {
  return direction_name(std::min(static_cast<CopyDirection>(number), CopyDirection::unknown));
}

std::string text(const String& from) { return {from.data(), from.size()}; }

// --- The first reading
struct CopyKey {
  Count kind;  // the driver that copied
  std::uint8_t direction;
  bool pageable, asynchronous;
  std::uint32_t site;  // 0: not known; of sums over all sites
  auto members() const { return std::tie(kind, direction, pageable, asynchronous, site); }
  friend bool operator<(const CopyKey& one, const CopyKey& other) { return one.members() < other.members(); }
};
struct CopySum {
  Count count = 0, bytes = 0;
  void add(const RecordedEvent& event) { count += event.count, bytes += std::min(event.bytes, Count{1} << 50); }
};

struct FirstReading {
  RecordedMemory memory;
  std::map<CopyKey, CopySum> transfers, copies_by_site;
  std::vector<RecordedEvent> failed;
  std::vector<std::pair<Count, Count>> times;  // the first and the last allocation of what is live, by use
  Seconds end_s = 0;

  explicit FirstReading(const Recording& recording) {
    recording.for_each_event([&](const RecordedEvent& event) {
      memory.apply(event);
      end_s = std::max(end_s, recording.seconds_at(event.time));
      if (event.type == RecordedType::copy) add_copy(event);
      if (event.type == RecordedType::failed && failed.size() < kFailedMax) failed.push_back(event);
    });
    end_s = std::max(end_s, recording.head().ended_s.value_or(0));
    times.resize(memory.uses().size(), {UINT64_MAX, 0});
    memory.for_each_block([&](const RecordedMemory::Block& block) {
      auto& [first, last] = times[block.use];
      first = std::min(first, block.time), last = std::max(last, block.time);
    });
    memory.forget_blocks();
  }

 private:
  void add_copy(const RecordedEvent& event) {
    if (copies_by_site.size() == kCopySitesMax) throw BadReport("has more call sites than can be shown");
    transfers[{event.kind, event.direction, event.pageable, event.asynchronous, 0}].add(event);
    copies_by_site[{event.kind, event.direction, event.pageable, event.asynchronous, event.site}].add(event);
  }
};

// --- The second reading
class Course {
 public:
  explicit Course(Seconds end_s) {
    levels_.interval_s = end_s / static_cast<double>(kIntervals);
    levels_.least.resize(kIntervals), levels_.last.resize(kIntervals);
  }
  void note(Seconds at_s, Count bytes) {
    const double interval = levels_.interval_s > 0 ? at_s / levels_.interval_s : 0;
    go_to(static_cast<std::size_t>(std::min(interval, static_cast<double>(kIntervals - 1))));
    now_ = bytes;
    levels_.least[at_] = std::min(levels_.least[at_], now_);
  }
  Levels end() {
    go_to(kIntervals);
    return std::move(levels_);
  }

 private:
  void go_to(std::size_t interval) {
    for (; at_ < interval; ++at_) {
      levels_.last[at_] = now_;
      if (at_ + 1 < kIntervals) levels_.least[at_ + 1] = now_;
    }
  }
  Levels levels_;
  Count now_ = 0;
  std::size_t at_ = 0;
};

class SecondReading {
 public:
  struct Site {
    Count kind;
    std::uint32_t site;
    bool others;
  };

  SecondReading(const Recording& recording, const FirstReading& first) : recording_(recording), end_s_(first.end_s) {
    for (const auto& [number, kind] : first.memory.kinds())
      if (kind.peak_bytes) peaks_.emplace(kind.peak_events, number);
    recording.for_each_event([&](const RecordedEvent& event) {
      const Seconds at_s = recording.seconds_at(event.time);
      go_to(at_s);
      memory_.apply(event);
      if (event.type <= RecordedType::resized)
        courses_.try_emplace(event.kind, end_s_).first->second.note(at_s, memory_.kinds().at(event.kind).bytes);
      if (const auto peak = peaks_.find(memory_.events()); peak != peaks_.end()) take_peak(peak->second, at_s);
    });
    go_to(2 * end_s_);
    take(end_s_, {});
  }

  std::map<Count, Course>& courses() { return courses_; }                                  // by kind
  const std::map<Count, std::vector<RecordedUse>>& at_peaks() const { return at_peaks_; }  // by kind
  std::vector<Moment>& moments() { return moments_; }
  const std::vector<Site>& sites() const { return sites_; }  // of the moments

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  // The equal intervals that end before a time: all events until then have gone by.
  void go_to(Seconds at_s) {
    const auto next_s = [&] { return end_s_ * static_cast<double>(next_) / static_cast<double>(kMoments); };
    for (; next_ < kMoments && next_s() < at_s; ++next_) take(next_s(), {});
  }

  void take_peak(Count kind, Seconds at_s) {
    std::vector<RecordedUse>& uses = at_peaks_[kind];
    for (const RecordedUse& use : memory_.uses())
      if (use.kind == kind && use.bytes) uses.push_back(use);
    if (at_peaks_.size() <= kPeaksMax) take(at_s, recording_.kind_name(kind));
  }

  // The largest that are live; the others are added up by kind.
  void take(Seconds at_s, std::string peak_of) {
    std::vector<const RecordedUse*> live;
    for (const RecordedUse& use : memory_.uses())
      if (use.blocks || use.bytes) live.push_back(&use);
    if (live.size() > kUsesOfMoment) {
      const auto rank = [this](const RecordedUse* use) {
        return std::pair(recording_.kind_name(use->kind) != kHost, use->bytes);
      };
      std::ranges::nth_element(live, live.begin() + kUsesOfMoment, std::greater(), rank);
    }
    Moment& moment = moments_.emplace_back(Moment{at_s, std::move(peak_of), {}});
    std::map<Count, RecordedSums> others;
    for (std::size_t i = 0; i < live.size(); ++i) {
      if (i < kUsesOfMoment) {
        moment.uses.push_back(use_of(number_of(*live[i]), *live[i]));
      } else {
        others[live[i]->kind].add(*live[i]);
      }
    }
    for (const auto& [kind, sums] : others) moment.uses.push_back(use_of(number_of_others(kind), sums));
  }
  static MomentUse use_of(std::uint32_t site, const RecordedSums& of) {
    return {site, of.blocks, of.bytes, of.allocations, of.allocated_bytes};
  }

  std::uint32_t number_of(const RecordedUse& use) {
    numbers_.resize(memory_.uses().size(), kNone);
    return number(numbers_[static_cast<std::size_t>(&use - memory_.uses().data())], {use.kind, use.site, false});
  }
  std::uint32_t number_of_others(Count kind) {
    return number(others_.try_emplace(kind, kNone).first->second, {kind, 0, true});
  }
  std::uint32_t number(std::uint32_t& known, Site site) {
    if (known != kNone) return known;
    sites_.push_back(site);
    return known = static_cast<std::uint32_t>(sites_.size() - 1);
  }

  const Recording& recording_;
  const Seconds end_s_;
  RecordedMemory memory_;
  std::map<Count, Count> peaks_;  // kinds by the count of events until then
  std::size_t next_ = 1;          // interval to take
  std::map<Count, Course> courses_;
  std::map<Count, std::vector<RecordedUse>> at_peaks_;
  std::vector<Moment> moments_;
  std::vector<Site> sites_;
  std::vector<std::uint32_t> numbers_;     // of the uses
  std::map<Count, std::uint32_t> others_;  // by kind
};

// --- The report
class Maker {
 public:
  Maker(const Recording& recording, RunReader& stacks)
      : recording_(recording), stacks_(stacks), first_(recording), second_(recording, first_) {}

  Report make() {
    add_process();
    for (const auto& [number, kind] : first_.memory.kinds()) add_kind(number, kind);
    add_live();
    for (const auto& [kind, uses] : second_.at_peaks()) add_peak(uses);
    add_copies();
    add_recorded();
    return std::move(report_);
  }

 private:
  bool is_sampled() const { return recording_.head().host_sample_bytes > 1; }

  void add_process() {
    const RecordingHead& head = recording_.head();
    Process& process = report_.cistern;
    process.version = head.version, process.command = head.command, process.pid = head.pid;
    if (head.start_unix_ns) process.start_unix_s = static_cast<Seconds>(head.start_unix_ns) / 1e9;
    process.moment = head.ended_s ? "exit" : "recording";
    process.wall_s = first_.end_s;
    report_.sites.mode = "gpu:all,host:" + (head.host_sample_bytes == 1 ? "all"
                                            : is_sampled() ? std::to_string(head.host_sample_bytes >> 10) + "KiB"
                                                           : std::string("off"));
  }

  void add_kind(Count number, const RecordedKind& of) {
    auto& [name, kind] = report_.kinds.emplace_back(recording_.kind_name(number), Kind());
    report_.cistern.gpu_memory_used |= name != kHost;
    kind.allocations = of.allocations, kind.frees = of.frees, kind.failed = of.failed;
    kind.live_blocks = of.blocks, kind.live_bytes = of.bytes;
    kind.allocated_bytes = of.allocated_bytes;
    kind.peak_bytes = of.peak_bytes;
    if (of.peak_bytes) kind.peak_at_s = recording_.seconds_at(of.peak_time);
    if (const auto course = second_.courses().find(number); course != second_.courses().end())
      kind.live_over_time = course->second.end();
    if (name == kHost && is_sampled())
      report_.estimated = {"kinds.host.live_bytes", "kinds.host.peak_bytes", "leaks.host", "at_peak.host"};
  }

  // Whether the program could still reach them is not known. If it ended, its live blocks were never freed.
  void add_live() {
    const bool ended = recording_.head().ended_s.has_value();
    const std::vector<RecordedUse>& uses = first_.memory.uses();
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const RecordedUse& use = uses[i];
      if (!use.blocks) continue;
      LiveRow row;
      row.kind = recording_.kind_name(use.kind);
      row.leak_class = !ended ? "live" : row.kind == kHost ? "unclassified" : "never freed";
      row.object = "block", row.api = call_of(use.site), row.frames = stack_of(use.site);
      row.blocks = use.blocks, row.bytes = use.bytes;
      row.first_s = recording_.seconds_at(first_.times[i].first);
      row.last_s = recording_.seconds_at(first_.times[i].second);
      report_.leaks.push_back(std::move(row));
    }
    std::ranges::stable_sort(report_.leaks, std::greater(),
                             [](const LiveRow& row) { return std::pair(row.kind != kHost, row.bytes); });
  }

  void add_peak(const std::vector<RecordedUse>& uses) {
    const std::size_t first = report_.at_peak.size();
    for (const RecordedUse& use : uses)
      report_.at_peak.push_back({.kind = recording_.kind_name(use.kind),
                                 .api = call_of(use.site),
                                 .allocations = use.allocations,
                                 .allocated_bytes = use.allocated_bytes,
                                 .peak_blocks = use.blocks,
                                 .peak_bytes = use.bytes,
                                 .frames = stack_of(use.site)});
    std::stable_sort(report_.at_peak.begin() + static_cast<std::ptrdiff_t>(first), report_.at_peak.end(),
                     [](const UseRow& one, const UseRow& other) { return one.peak_bytes > other.peak_bytes; });
  }

  void add_copies() {
    for (const auto& [key, sum] : first_.transfers) {
      Transfer& row = report_.transfers.emplace_back();
      row.kind = recording_.kind_name(key.kind), row.direction = name_of_direction(key.direction);
      if (touches_host(row.direction)) row.pageable = key.pageable;
      row.asynchronous = key.asynchronous, row.count = sum.count, row.bytes = sum.bytes;
    }
    for (const auto& [key, sum] : first_.copies_by_site) {
      CopyRow& row = report_.copy_sites.emplace_back();
      row.kind = recording_.kind_name(key.kind), row.direction = name_of_direction(key.direction);
      row.pageable = key.pageable, row.asynchronous = key.asynchronous, row.count = sum.count, row.bytes = sum.bytes;
      row.api = call_of(key.site), row.frames = stack_of(key.site);
    }
    std::ranges::stable_sort(report_.transfers, std::greater(), &Transfer::bytes);
    std::ranges::stable_sort(report_.copy_sites, std::greater(), &CopyRow::bytes);
  }

  void add_recorded() {
    Recorded& recorded = report_.recorded.emplace();
    recorded.events = first_.memory.events(), recorded.file_bytes = recording_.head().file_bytes;
    add_missing(recorded.missing);
    recorded.moments = std::move(second_.moments());
    for (const SecondReading::Site& of : second_.sites())
      recorded.sites.push_back({recording_.kind_name(of.kind), call_of(of.site), stack_of(of.site), of.others});
    for (const RecordedEvent& event : first_.failed)
      recorded.failed.push_back({recording_.seconds_at(event.time), recording_.kind_name(event.kind),
                                 call_of(event.site), event.bytes, stack_of(event.site)});
  }

  void add_missing(Named<std::string>& missing) const {
    const RecordingHead& head = recording_.head();
    const auto add = [&](const char* what, const String& sentence) { missing.emplace_back(what, text(sentence)); };
    if (!head.ended_s)
      add("killed",
          "The process was killed, still runs, or executed another program: stacks have modules and offsets only.");
    if (head.thinned_events)
      add("thinned", counted(head.thinned_events, "event") + " before " + seconds(head.thinned_until_s) +
                         " are left out, since the file was full; memory that was live then is known.");
    if (head.lost_events)
      add("missing", counted(head.lost_events, "event") + " could not be written, the first at " +
                         seconds(head.lost_since_s) + ".");
    if (head.stopped_s) add("stopped", "Nothing is recorded from " + seconds(*head.stopped_s) + " on.");
  }

  std::string call_of(std::uint32_t site) const {
    const RecordedSite* const known = recording_.site(site);
    return known ? known->call : "";
  }
  StackId stack_of(std::uint32_t site) {
    const RecordedSite* const known = recording_.site(site);
    if (!known) return 0;
    const auto [at, is_new] = stack_ids_.try_emplace(known->stack, StackId{0});
    if (!is_new) return at->second;
    std::vector<Frame> frames;
    for (const FrameId frame : recording_.run().stacks[known->stack]) frames.push_back(recording_.run().frames[frame]);
    return at->second = stacks_.stack_of(frames);
  }

  const Recording& recording_;
  RunReader& stacks_;
  const FirstReading first_;
  SecondReading second_;
  std::unordered_map<StackId, StackId> stack_ids_;  // ours, by the recording's
  Report report_;
};

}  // namespace

Report report_of(const Recording& recording, RunReader& stacks) { return Maker(recording, stacks).make(); }

Run run_of(const Recording& recording) {
  RunReader reader;
  reader.add(report_of(recording, reader));
  return reader.take();
}

}  // namespace cistern::formats
