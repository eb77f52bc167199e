// Reports as the command `cistern` sees them: what the JSON contract has (stats/report/fields.def), read from any
// number of files, with each stack once. Writers of other formats are pure functions of a Run.
//
// Room: reports that were read back, and other tools' formats of them; for the command `cistern` only.
// May include: pool/base, stats, stats/report.
//
// `visit_fields` names each member once, as the contract does, for reading and for writing.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cistern::formats {

using Count = std::uint64_t;
using Seconds = double;
// In the order of the file.
template <class Value>
using Named = std::vector<std::pair<std::string, Value>>;

// --- Stacks
struct Frame {
  std::string function, file, module, build_id;
  Count line = 0, offset = 0, address = 0;
  bool inlined = false, python = false;
  friend bool operator==(const Frame&, const Frame&) = default;
};
template <class Visitor>
void visit_fields(Visitor& visit, Frame& of) {
  visit("function", of.function), visit("file", of.file), visit("line", of.line), visit("module", of.module);
  visit("offset", of.offset), visit("address", of.address), visit("build_id", of.build_id);
  visit("inlined", of.inlined), visit("python", of.python);
}

using FrameId = std::uint32_t;
using StackId = std::uint32_t;
// Innermost frame first. Stack 0 is empty: no call site is known.
using Stack = std::vector<FrameId>;

// --- The process
struct Gate {
  std::string outcome, reason;
};
template <class Visitor>
void visit_fields(Visitor& visit, Gate& of) {
  visit("outcome", of.outcome), visit("reason", of.reason);
}

struct Process {
  std::string version, command, moment;
  Count schema = 0, pid = 0;
  bool gpu_memory_used = false;
  std::optional<Count> rank, ranks, exit_code;
  std::optional<Seconds> start_unix_s;
  Seconds wall_s = 0;
  std::optional<Gate> gate;
};
template <class Visitor>
void visit_fields(Visitor& visit, Process& of) {
  visit("version", of.version), visit("schema", of.schema), visit("pid", of.pid);
  visit("gpu_memory_used", of.gpu_memory_used), visit("rank", of.rank), visit("ranks", of.ranks);
  visit("command", of.command), visit("start_unix_s", of.start_unix_s), visit("wall_s", of.wall_s);
  visit("moment", of.moment), visit("exit_code", of.exit_code), visit("gate", of.gate);
}

// --- Kinds of memory
struct Levels {  // bytes, in equal intervals
  Seconds start_s = 0, interval_s = 0;
  std::vector<Count> least, last;
};
template <class Visitor>
void visit_fields(Visitor& visit, Levels& of) {
  visit("start_s", of.start_s), visit("interval_s", of.interval_s), visit("least", of.least), visit("last", of.last);
}

struct SizeClass {
  std::string sizes;
  Count allocations = 0, hits = 0, live_blocks = 0, cached_blocks = 0, cached_bytes = 0, high_water_blocks = 0;
};
template <class Visitor>
void visit_fields(Visitor& visit, SizeClass& of) {
  visit("sizes", of.sizes), visit("allocations", of.allocations), visit("hits", of.hits);
  visit("live_blocks", of.live_blocks), visit("cached_blocks", of.cached_blocks);
  visit("cached_bytes", of.cached_bytes), visit("high_water_blocks", of.high_water_blocks);
}

struct BlockSize {  // in a pool that cuts pages into blocks
  Count block_bytes = 0, allocations = 0, live_blocks = 0, free_blocks = 0;
};
template <class Visitor>
void visit_fields(Visitor& visit, BlockSize& of) {
  visit("block_bytes", of.block_bytes), visit("allocations", of.allocations), visit("live_blocks", of.live_blocks);
  visit("free_blocks", of.free_blocks);
}

struct Kind {
  bool pooled = false;
  Count allocations = 0, frees = 0, pool_hits = 0, pool_misses = 0, driver_allocs = 0, driver_frees = 0;
  Count driver_syncs = 0, driver_queries = 0;
  Count live_blocks = 0, live_bytes = 0, peak_bytes = 0, pooled_blocks = 0, pooled_bytes = 0, failed = 0;
  std::optional<Count> requested_bytes, allocated_bytes, temporary;
  std::optional<Seconds> peak_at_s;
  std::optional<Levels> live_over_time;
  Named<Count> unpooled;
  std::vector<SizeClass> classes;
  std::vector<BlockSize> sizes;
};
template <class Visitor>
void visit_fields(Visitor& visit, Kind& of) {
  visit("pooled", of.pooled), visit("allocations", of.allocations), visit("frees", of.frees);
  visit("pool_hits", of.pool_hits), visit("pool_misses", of.pool_misses), visit("driver_allocs", of.driver_allocs);
  visit("driver_frees", of.driver_frees), visit("driver_syncs", of.driver_syncs);
  visit("driver_queries", of.driver_queries), visit("live_blocks", of.live_blocks), visit("live_bytes", of.live_bytes);
  visit("requested_bytes", of.requested_bytes), visit("allocated_bytes", of.allocated_bytes);
  visit("temporary", of.temporary), visit("peak_bytes", of.peak_bytes), visit("peak_at_s", of.peak_at_s);
  visit("pooled_blocks", of.pooled_blocks), visit("pooled_bytes", of.pooled_bytes), visit("failed", of.failed);
  visit("live_over_time", of.live_over_time), visit("unpooled", of.unpooled), visit("classes", of.classes);
  visit("sizes", of.sizes);
}

struct WorstMoment {
  Seconds at_s = 0;
  Count reserved_bytes = 0, live_bytes = 0;
};
template <class Visitor>
void visit_fields(Visitor& visit, WorstMoment& of) {
  visit("at_s", of.at_s), visit("reserved_bytes", of.reserved_bytes), visit("live_bytes", of.live_bytes);
}

struct Fragmentation {
  Count reserved_bytes = 0, live_bytes = 0, free_bytes = 0, largest_free_bytes = 0;
  std::optional<Count> requested_bytes, reserved_peak_bytes;
  std::optional<double> internal, external, reserved_per_live;
  std::optional<WorstMoment> worst;
};
template <class Visitor>
void visit_fields(Visitor& visit, Fragmentation& of) {
  visit("reserved_bytes", of.reserved_bytes), visit("live_bytes", of.live_bytes);
  visit("requested_bytes", of.requested_bytes), visit("free_bytes", of.free_bytes);
  visit("largest_free_bytes", of.largest_free_bytes), visit("internal", of.internal), visit("external", of.external);
  visit("reserved_peak_bytes", of.reserved_peak_bytes), visit("reserved_per_live", of.reserved_per_live);
  visit("worst", of.worst);
}

struct DeviceMemory {
  Count device = 0, total_bytes = 0, free_bytes = 0, ours_bytes = 0, driver_owned_bytes = 0;
};
template <class Visitor>
void visit_fields(Visitor& visit, DeviceMemory& of) {
  visit("device", of.device), visit("total_bytes", of.total_bytes), visit("free_bytes", of.free_bytes);
  visit("ours_bytes", of.ours_bytes), visit("driver_owned_bytes", of.driver_owned_bytes);
}

struct DeviceRange {
  Count device = 0, address_bytes = 0, mapped_bytes = 0, mapped_peak_bytes = 0, used_peak_bytes = 0, waiting_bytes = 0;
  Count largest_free_bytes = 0, allocations = 0, hits = 0, moved_pieces = 0, driver_calls = 0, lost_bytes = 0;
};
template <class Visitor>
void visit_fields(Visitor& visit, DeviceRange& of) {
  visit("device", of.device), visit("address_bytes", of.address_bytes), visit("mapped_bytes", of.mapped_bytes);
  visit("mapped_peak_bytes", of.mapped_peak_bytes), visit("used_peak_bytes", of.used_peak_bytes);
  visit("waiting_bytes", of.waiting_bytes), visit("largest_free_bytes", of.largest_free_bytes);
  visit("allocations", of.allocations), visit("hits", of.hits), visit("moved_pieces", of.moved_pieces);
  visit("driver_calls", of.driver_calls), visit("lost_bytes", of.lost_bytes);
}

// --- Rows by call site
struct LiveRow {  // in `leaks`: all that is live
  std::string kind, leak_class, object, api, owner, trend;
  Count blocks = 0, bytes = 0;
  std::optional<Count> created, retained, released, kept_parent_bytes;
  std::optional<double> bytes_error, bytes_per_s;
  bool program = false, suppressed = false, inherited = false;
  Seconds first_s = 0, last_s = 0;
  StackId frames = 0;
};
template <class Visitor>
void visit_fields(Visitor& visit, LiveRow& of) {
  visit("kind", of.kind), visit("class", of.leak_class), visit("object", of.object), visit("blocks", of.blocks);
  visit("bytes", of.bytes), visit("created", of.created), visit("retained", of.retained);
  visit("released", of.released), visit("kept_parent_bytes", of.kept_parent_bytes);
  visit("api", of.api), visit("owner", of.owner), visit("program", of.program);
  visit("bytes_error", of.bytes_error), visit("suppressed", of.suppressed), visit("inherited", of.inherited);
  visit("first_s", of.first_s), visit("last_s", of.last_s), visit("trend", of.trend);
  visit("bytes_per_s", of.bytes_per_s), visit.stack("frames", of.frames);
}

struct UseRow {  // in `at_peak` and `in_loops`
  std::string kind, api;
  Count allocations = 0, allocated_bytes = 0, temporary = 0, peak_blocks = 0, peak_bytes = 0;
  StackId frames = 0;
};
template <class Visitor>
void visit_fields(Visitor& visit, UseRow& of) {
  visit("kind", of.kind), visit("api", of.api), visit("allocations", of.allocations);
  visit("allocated_bytes", of.allocated_bytes), visit("temporary", of.temporary), visit("peak_blocks", of.peak_blocks);
  visit("peak_bytes", of.peak_bytes), visit.stack("frames", of.frames);
}

struct GrowingRow {
  std::string kind, api;
  double bytes_per_s = 0;
  Seconds since_s = 0;
  Count bytes = 0;
  bool suppressed = false;
  StackId frames = 0;
};
template <class Visitor>
void visit_fields(Visitor& visit, GrowingRow& of) {
  visit("kind", of.kind), visit("api", of.api), visit("bytes_per_s", of.bytes_per_s), visit("since_s", of.since_s);
  visit("bytes", of.bytes), visit("suppressed", of.suppressed), visit.stack("frames", of.frames);
}

// --- Transfers and waits
struct Transfer {
  std::string kind, direction;
  std::optional<bool> pageable;
  bool asynchronous = false;
  Count count = 0, bytes = 0, failed = 0;
  std::optional<Seconds> seconds;
  std::optional<double> bytes_per_s_p50, bytes_per_s_p95, efficiency;
};
template <class Visitor>
void visit_fields(Visitor& visit, Transfer& of) {
  visit("kind", of.kind), visit("direction", of.direction), visit("pageable", of.pageable);
  visit("asynchronous", of.asynchronous), visit("count", of.count), visit("bytes", of.bytes);
  visit("failed", of.failed), visit("seconds", of.seconds), visit("bytes_per_s_p50", of.bytes_per_s_p50);
  visit("bytes_per_s_p95", of.bytes_per_s_p95), visit("efficiency", of.efficiency);
}

struct CopyRow {
  std::string kind, direction, api;
  bool pageable = false, asynchronous = false;
  Count count = 0, bytes = 0, waited_for = 0, returned_unchanged = 0;
  std::optional<Seconds> seconds;
  StackId frames = 0;
};
template <class Visitor>
void visit_fields(Visitor& visit, CopyRow& of) {
  visit("kind", of.kind), visit("direction", of.direction), visit("pageable", of.pageable);
  visit("asynchronous", of.asynchronous), visit("api", of.api), visit("count", of.count), visit("bytes", of.bytes);
  visit("seconds", of.seconds), visit("waited_for", of.waited_for);
  visit("returned_unchanged", of.returned_unchanged), visit.stack("frames", of.frames);
}

struct WaitRow {
  std::string kind, api;
  Count count = 0;
  Seconds seconds = 0;
  StackId frames = 0;
};
template <class Visitor>
void visit_fields(Visitor& visit, WaitRow& of) {
  visit("kind", of.kind), visit("api", of.api), visit("count", of.count), visit("seconds", of.seconds);
  visit.stack("frames", of.frames);
}

struct StagedCopies {
  std::string kind, direction, source;
  Count device = 0, staged_copies = 0, staged_bytes = 0, passed_on_bytes = 0;
  Named<Count> passed_on;
};
template <class Visitor>
void visit_fields(Visitor& visit, StagedCopies& of) {
  visit("kind", of.kind), visit("device", of.device), visit("direction", of.direction), visit("source", of.source);
  visit("staged_copies", of.staged_copies), visit("staged_bytes", of.staged_bytes);
  visit("passed_on_bytes", of.passed_on_bytes), visit("passed_on", of.passed_on);
}

// --- What the report says of itself
struct Judging {
  std::optional<std::string> why_not;
  Seconds seconds = 0;
  std::optional<Count> unseen_threads, unreadable_bytes;
};
template <class Visitor>
void visit_fields(Visitor& visit, Judging& of) {
  visit("why_not", of.why_not), visit("seconds", of.seconds), visit("unseen_threads", of.unseen_threads);
  visit("unreadable_bytes", of.unreadable_bytes);
}

struct KnownSites {
  std::string mode;
  Count count = 0;
};
template <class Visitor>
void visit_fields(Visitor& visit, KnownSites& of) {
  visit("mode", of.mode), visit("count", of.count);
}

struct BlocksAndBytes {
  Count blocks = 0, bytes = 0;
};
template <class Visitor>
void visit_fields(Visitor& visit, BlocksAndBytes& of) {
  visit("blocks", of.blocks), visit("bytes", of.bytes);
}

// --- What a report has that was made of a recording (recorded_run.hpp); nothing of it is in the contract
struct MomentSite {
  std::string kind, api;
  StackId frames = 0;
  bool others = false;  // all call sites of the kind that are in no list
};
template <class Visitor>
void visit_fields(Visitor& visit, MomentSite& of) {
  visit("kind", of.kind), visit("api", of.api), visit.stack("frames", of.frames), visit("others", of.others);
}
struct MomentUse {
  std::uint32_t site = 0;                      // of Recorded::sites
  Count blocks = 0, bytes = 0;                 // live then
  Count allocations = 0, allocated_bytes = 0;  // until then
};
struct Moment {
  Seconds at_s = 0;
  std::string peak_of;  // the kind whose bytes were most then; empty: it is one of the equal intervals
  std::vector<MomentUse> uses;
};
struct FailedRequest {
  Seconds at_s = 0;
  std::string kind, api;
  Count bytes = 0;
  StackId frames = 0;
};

struct Recorded {
  Count events = 0, file_bytes = 0;
  Named<std::string> missing;  // "thinned" and what that means, in a sentence
  std::vector<MomentSite> sites;
  std::vector<Moment> moments;        // in the order of time, the end last
  std::vector<FailedRequest> failed;  // the first of them
};

struct Report {
  Process cistern;
  Named<Kind> kinds;
  std::vector<LiveRow> leaks;
  Named<BlocksAndBytes> host_classes;
  std::optional<Judging> judging;
  std::optional<BlocksAndBytes> host_without_site;
  std::vector<UseRow> at_peak, in_loops;
  std::vector<GrowingRow> growing;
  Named<Fragmentation> fragmentation;
  std::vector<Transfer> transfers;
  std::vector<CopyRow> copy_sites;
  std::vector<WaitRow> waits;
  std::vector<StagedCopies> staging;
  std::vector<DeviceMemory> device_memory;
  std::vector<DeviceRange> device_ranges;
  std::vector<std::string> frameworks, estimated;
  KnownSites sites;
  std::string text;  // the text report; empty where the file has none
  std::optional<Recorded> recorded;
};
template <class Visitor>
void visit_fields(Visitor& visit, Report& of) {
  visit("cistern", of.cistern), visit("kinds", of.kinds), visit("leaks", of.leaks);
  visit("host_classes", of.host_classes), visit("judging", of.judging);
  visit("host_without_site", of.host_without_site), visit("at_peak", of.at_peak), visit("in_loops", of.in_loops);
  visit("growing", of.growing), visit("fragmentation", of.fragmentation), visit("transfers", of.transfers);
  visit("copy_sites", of.copy_sites), visit("waits", of.waits), visit("staging", of.staging);
  visit("device_memory", of.device_memory), visit("device_ranges", of.device_ranges);
  visit("frameworks", of.frameworks), visit("estimated", of.estimated), visit("sites", of.sites);
  visit("text", of.text);
}

// The reports of one run, one for each process, and their stacks.
struct Run {
  std::vector<Frame> frames;
  std::vector<Stack> stacks = {Stack{}};
  std::vector<Report> reports;
};

}  // namespace cistern::formats
