// See perfetto.hpp. A heap of Perfetto is a name; here "device:0" (live at the end), "device:0 lost", "device:0 at the
// peak". Dumps of one heap are sums since the start, of which Perfetto takes differences: a heap has one dump, or, of a
// recording, those of its moments.
#include "stats/formats/perfetto.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "stats/format.hpp"
#include "stats/formats/protobuf.hpp"

namespace cistern::formats {
namespace {

// The fields of perfetto_trace.proto.
enum TraceField { kPacket = 1 };
enum PacketField {
  kClockSnapshot = 6,
  kTimestamp = 8,
  kSequence = 10,
  kTrackEvent = 11,
  kInternedData = 12,
  kSequenceFlags = 13,
  kProfilePacket = 37,
  kTrackDescriptor = 60
};
enum SequenceFlag { kStateCleared = 1, kNeedsState = 2 };
enum ClockField { kClocks = 1, kClockId = 1, kClockTime = 2 };
enum Clock { kRealtime = 1, kMonotonicCoarse = 4, kBoottime = 6 };  // heap dumps have the second, packets the third
enum TrackField { kUuid = 1, kTrackName = 2, kProcess = 3, kParent = 5, kCounter = 8 };
enum ProcessField { kPid = 1, kCommandLine = 2, kProcessName = 6 };
enum CounterField { kUnit = 3, kSizeBytes = 3 };
enum EventField { kEventType = 9, kTrack = 11, kEventName = 23, kCounterValue = 30, kCallstackOfEvent = 56 };
enum EventType { kInstant = 3, kCounterEvent = 4 };
enum InternedField {
  kFunctionNames = 5,
  kFrames = 6,
  kCallstacks = 7,
  kBuildIds = 16,
  kMappingPaths = 17,
  kSourcePaths = 18,
  kMappings = 19
};
enum TextField { kTextId = 1, kText };
enum MappingField { kMappingId = 1, kBuildId, kPathParts = 7 };
enum FrameField { kFrameId = 1, kFunction, kMapping, kRelativeAddress, kSourcePath, kLineNumber, kFrameKind };
enum FrameKind { kNative = 1, kInterpreted = 3 };
enum CallstackField { kCallstackId = 1, kFrameIds };
enum ProfileField { kDumps = 5, kIndex = 7 };
enum DumpField { kDumpPid = 1, kDumpSamples, kDumpTime = 9, kHeapName = 11 };
enum HeapSampleField { kSampleCallstack = 1, kAllocated, kFreed, kSampleTime, kAllocatedBlocks, kFreedBlocks };

constexpr Count kOnlySequence = 1;

Count nanoseconds(Seconds seconds) { return static_cast<Count>(std::clamp(seconds, 0.0, 9e9) * 1e9); }

std::string bytes_of_hexadecimal(const std::string& text) {
  std::string bytes;
  for (std::size_t at = 0; at + 1 < text.size(); at += 2)
    bytes += static_cast<char>(std::strtoul(text.substr(at, 2).c_str(), nullptr, 16));
  return bytes;
}

// Texts, frames and stacks that packets name by numbers. Numbers begin at 1.
class Interned {
 public:
  explicit Interned(const Samples& samples) : samples_(samples) {}

  Count callstack(std::span<const FrameId> innermost_first) {
    const auto [at, is_new] =
        callstacks_.try_emplace(Stack(innermost_first.rbegin(), innermost_first.rend()), callstacks_.size() + 1);
    if (is_new) {
      std::vector<Count> ids;
      for (const FrameId id : at->first) ids.push_back(frame(id));
      Message callstack;
      callstack.number(kCallstackId, at->second);
      for (const Count id : ids) callstack.number(kFrameIds, id);
      all_.message(kCallstacks, callstack);
    }
    return at->second;
  }
  const Message& all() const { return all_; }

 private:
  Count frame(FrameId id) {
    if (!frames_.insert(id).second) return id + 1;
    const Frame& of = samples_.frames[id];
    Message frame;
    frame.number(kFrameId, id + 1);
    frame.number(kFunction, text(kFunctionNames, of.function));
    frame.number(kMapping, mapping(of));
    // Perfetto takes frames with one address and one name for the same frame.
    frame.number(kRelativeAddress, of.module.empty() ? id : of.offset);
    if (!of.file.empty()) frame.number(kSourcePath, text(kSourcePaths, of.file));
    if (of.line) frame.number(kLineNumber, of.line & 0xffffffff);
    frame.number(kFrameKind, of.python ? kInterpreted : kNative);
    all_.message(kFrames, frame);
    return id + 1;
  }

  // Perfetto refuses a frame without a mapping: frames of no file share a mapping without a name.
  Count mapping(const Frame& of) {
    const auto [at, is_new] = mappings_.try_emplace(of.module, mappings_.size() + 1);
    if (is_new) {
      Message mapping;
      mapping.number(kMappingId, at->second);
      if (!of.build_id.empty()) mapping.number(kBuildId, text(kBuildIds, bytes_of_hexadecimal(of.build_id)));
      if (!of.module.empty()) mapping.number(kPathParts, text(kMappingPaths, of.module));
      all_.message(kMappings, mapping);
    }
    return at->second;
  }

  Count text(InternedField list, const std::string& value) {
    const auto [at, is_new] = texts_.try_emplace({list, value}, texts_.size() + 1);
    if (is_new) {
      Message text;
      text.number(kTextId, at->second);
      text.text(kText, value);
      all_.message(list, text);
    }
    return at->second;
  }

  const Samples& samples_;
  Message all_;
  std::set<FrameId> frames_;
  std::map<Stack, Count> callstacks_;
  std::map<std::string, Count> mappings_;
  std::map<std::pair<InternedField, std::string>, Count> texts_;
};

class Trace {
 public:
  explicit Trace(const Run& run) : run_(run), samples_(samples_of(run)), interned_(samples_) {}

  std::string write() {
    write_clocks();
    // The dumps are written after the texts and stacks that they name.
    std::vector<Message> dumps;
    std::span<const Sample> samples = samples_.list;
    for (const Report& report : run_.reports) {
      const auto others = std::ranges::find_if(samples, [&](const Sample& of) { return of.report != &report; });
      const auto own = samples.first(static_cast<std::size_t>(others - samples.begin()));
      samples = samples.subspan(own.size());
      const Count pid = unused_pid(report.cistern.pid);
      const Count process = write_process(report.cistern, pid);
      write_counters(report, process);
      if (report.recorded) add_moments(*report.recorded, pid, dumps);
      add_dumps(report, pid, own, dumps);
      if (report.recorded) add_failures(*report.recorded, process, dumps);
    }
    Message state;
    state.message(kInternedData, interned_.all());
    write_packet(state, kNeedsState);
    for (const Message& dump : dumps) write_packet(dump, kNeedsState);
    return trace_.bytes();
  }

 private:
  void write_packet(Message packet, int flags = 0) {
    packet.number(kSequence, kOnlySequence);
    if (flags) packet.number(kSequenceFlags, static_cast<Count>(flags));
    trace_.message(kPacket, packet);
  }

  void write_clocks() {
    Message snapshot;
    const auto add = [&](Clock clock, Count time) {
      Message at_zero;
      at_zero.number(kClockId, clock);
      at_zero.number(kClockTime, time);
      snapshot.message(kClocks, at_zero);
    };
    add(kMonotonicCoarse, 0), add(kBoottime, 0);
    // Several processes began at several times.
    if (run_.reports.size() == 1)
      if (const auto start = run_.reports[0].cistern.start_unix_s) add(kRealtime, nanoseconds(*start));
    Message packet;
    packet.message(kClockSnapshot, snapshot);
    write_packet(packet, kStateCleared);  // Perfetto refuses events before a packet with this flag
  }

  // Processes of several machines may have the same id; Perfetto would show them as one process.
  Count unused_pid(Count pid) {
    constexpr Count kLargest = 0x7fffffff;
    for (pid = std::min(pid, kLargest); !pids_.insert(pid).second;) pid = pid % kLargest + 1;
    return pid;
  }

  // The number of its track.
  Count write_process(const Process& of, Count pid) {
    Message process;
    process.number(kPid, pid);
    process.text(kCommandLine, printable(of.command));
    process.text(kProcessName, process_name(of));
    Message track;
    track.number(kUuid, ++tracks_);
    track.message(kProcess, process);
    write_track(track);
    return tracks_;
  }

  void write_track(const Message& track) {
    Message packet;
    packet.message(kTrackDescriptor, track);
    write_packet(packet);
  }

  void write_counters(const Report& report, Count process) {
    Message bytes;
    bytes.number(kUnit, kSizeBytes);
    for (const auto& [kind, figures] : report.kinds) {
      Message track;
      track.number(kUuid, ++tracks_);
      track.number(kParent, process);
      track.text(kTrackName, printable(kind) + " live");
      track.message(kCounter, bytes);
      write_track(track);
      for (const auto& [time, value] : levels_of(report, kind, figures)) {
        Message event;
        event.number(kEventType, kCounterEvent);
        event.number(kTrack, tracks_);
        event.number(kCounterValue, signed_count(value));
        Message packet;
        packet.number(kTimestamp, time);
        packet.message(kTrackEvent, event);
        write_packet(packet);
      }
    }
  }

  // Live bytes of one kind by time: after each interval, at the peak and at the end.
  static std::map<Count, Count> levels_of(const Report& report, const std::string& kind, const Kind& figures) {
    std::map<Count, Count> levels = {{0, 0}};
    const Seconds end = report.cistern.wall_s;
    if (const auto& over_time = figures.live_over_time)
      for (std::size_t i = 0; i < over_time->last.size(); ++i) {
        const Seconds after = over_time->start_s + over_time->interval_s * static_cast<double>(i + 1);
        levels[nanoseconds(std::min(after, end))] = over_time->last[i];
      }
    const bool estimated =
        std::ranges::find(report.estimated, "kinds." + kind + ".peak_bytes") != report.estimated.end();
    if (figures.peak_at_s && !estimated) levels[nanoseconds(std::min(*figures.peak_at_s, end))] = figures.peak_bytes;
    levels[nanoseconds(end)] = figures.live_bytes;
    return levels;
  }

  void add_dumps(const Report& report, Count pid, std::span<const Sample> samples, std::vector<Message>& dumps) {
    for (const std::string& kind : samples_.kinds) {
      for (const Value value : kValues) {
        // A stack that is in a dump twice would count as a later figure of the same memory.
        if (value == Value::live && report.recorded) continue;  // the last moment has it
        std::map<Count, Amount> by_callstack;
        for (const Sample& sample : samples) {
          if (sample.kind != kind || !sample.at(value).bytes) continue;
          Amount& sum = by_callstack[interned_.callstack(std::span(sample.stack).first(sample.site_frames))];
          sum.blocks += sample.at(value).blocks;
          sum.bytes += sample.at(value).bytes;
        }
        if (by_callstack.empty()) continue;
        const Count time = nanoseconds(value == Value::peak ? peak_of(report, kind) : report.cistern.wall_s);
        const char* const what = value == Value::live ? "" : value == Value::lost ? " lost" : " at the peak";
        Message heap = heap_of(pid, time, printable(kind) + what);
        for (const auto& [callstack, amount] : by_callstack)
          heap.message(kDumpSamples, heap_sample(callstack, amount, {}, time));
        add_dump(heap, time, dumps);
      }
    }
  }

  // A call site of a recording as it is in the dumps so far.
  struct Course {
    Amount allocated, freed;
    // Neither may fall: what a moment's list is too short for counts as freed until it is in one again. False: it stays
    // as it was.
    bool go_to(const MomentUse& use) {
      const bool blocks = go_to(allocated.blocks, freed.blocks, use.allocations, use.blocks);
      return go_to(allocated.bytes, freed.bytes, use.allocated_bytes, use.bytes) || blocks;
    }

   private:
    static bool go_to(Count& in, Count& out, Count allocated, Count live) {
      const Count in_before = std::exchange(in, std::max({in, allocated, out + live}));
      const Count out_before = std::exchange(out, in - live);
      return in != in_before || out != out_before;
    }
  };

  void add_moments(const Recorded& of, Count pid, std::vector<Message>& dumps) {
    std::vector<Count> callstacks;
    for (const MomentSite& site : of.sites) callstacks.push_back(interned_.callstack(samples_.stack_of(run_, site)));
    std::map<std::string, std::map<Count, Course>> heaps;
    for (const Moment& moment : of.moments) {
      std::map<std::string, std::map<Count, MomentUse>> now;
      for (const auto& [kind, courses] : heaps)
        for (const auto& [callstack, course] : courses) now[kind][callstack];
      for (const MomentUse& use : moment.uses) {
        MomentUse& sum = now[of.sites[use.site].kind][callstacks[use.site]];
        sum.blocks += use.blocks, sum.bytes += use.bytes;
        sum.allocations += use.allocations, sum.allocated_bytes += use.allocated_bytes;
      }
      const Count time = nanoseconds(moment.at_s);
      for (const auto& [kind, uses] : now) {
        Message heap = heap_of(pid, time, printable(kind));
        bool has_changed = false;
        for (const auto& [callstack, use] : uses) {
          Course& course = heaps[kind][callstack];
          if (!course.go_to(use)) continue;
          heap.message(kDumpSamples, heap_sample(callstack, course.allocated, course.freed, time));
          has_changed = true;
        }
        if (has_changed) add_dump(heap, time, dumps);
      }
    }
  }

  void add_failures(const Recorded& of, Count process, std::vector<Message>& packets) {
    if (of.failed.empty()) return;
    Message track;
    track.number(kUuid, ++tracks_);
    track.number(kParent, process);
    track.text(kTrackName, "failed requests");
    write_track(track);
    for (const FailedRequest& failed : of.failed) {
      Message event;
      event.number(kEventType, kInstant);
      event.number(kTrack, tracks_);
      const String size = human_bytes(failed.bytes);
      event.text(kEventName, printable(failed.kind) + ": " + std::string(size.data(), size.size()) + " failed");
      if (failed.frames) event.number(kCallstackOfEvent, interned_.callstack(run_.stacks[failed.frames]));
      Message packet;
      packet.number(kTimestamp, nanoseconds(failed.at_s));
      packet.message(kTrackEvent, event);
      packets.push_back(std::move(packet));
    }
  }

  static Message heap_of(Count pid, Count time, const std::string& name) {
    Message heap;
    heap.number(kDumpPid, pid);
    heap.number(kDumpTime, time);
    heap.text(kHeapName, name);
    return heap;
  }

  void add_dump(const Message& heap, Count time, std::vector<Message>& dumps) {
    Message profile;
    profile.message(kDumps, heap);
    profile.number(kIndex, indices_++);
    Message packet;
    packet.number(kTimestamp, time);
    packet.message(kProfilePacket, profile);
    dumps.push_back(std::move(packet));
  }

  static Message heap_sample(Count callstack, const Amount& allocated, const Amount& freed, Count time) {
    Message sample;
    sample.number(kSampleCallstack, callstack);
    sample.number(kAllocated, signed_count(allocated.bytes));
    if (freed.bytes) sample.number(kFreed, signed_count(freed.bytes));
    sample.number(kSampleTime, time);
    sample.number(kAllocatedBlocks, signed_count(allocated.blocks));
    if (freed.blocks) sample.number(kFreedBlocks, signed_count(freed.blocks));
    return sample;
  }

  static Seconds peak_of(const Report& report, const std::string& kind) {
    for (const auto& [name, figures] : report.kinds)
      if (name == kind) return figures.peak_at_s.value_or(report.cistern.wall_s);
    return report.cistern.wall_s;
  }

  const Run& run_;
  const Samples samples_;
  Interned interned_;
  Message trace_;
  Count tracks_ = 0, indices_ = 0;
  std::set<Count> pids_;
};

}  // namespace

std::string perfetto(const Run& run) { return Trace(run).write(); }

}  // namespace cistern::formats
