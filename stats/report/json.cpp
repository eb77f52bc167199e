// The JSON report, the source of every other format. Its shape is stats/report/report.schema.json.

#include "pool/size_class.hpp"
#include "stats/format.hpp"
#include "stats/report/report.hpp"

namespace cistern {
namespace {

constexpr unsigned kSchema = 4;

// One JSON document, written as it goes: knows where commas and line breaks belong.
class Json {
 public:
  explicit Json(Sink& sink) : sink_(sink) {}

  void open(char bracket) {
    sink_.write({&bracket, 1});
    ++depth_;
    first_ = true;
  }
  void close(char bracket) {
    --depth_;
    if (!first_) line_break();
    sink_.write({&bracket, 1});
    first_ = false;
  }
  void element() {
    if (!first_) sink_.write(",");
    first_ = false;
    line_break();
  }
  void key(std::string_view name) {
    element();
    sink_.write(json_string(name));
    sink_.write(": ");
  }
  void field(std::string_view name, std::string_view text) {
    key(name);
    sink_.write(json_string(text));
  }
  void count(std::string_view name, std::uint64_t value) {
    key(name);
    sink_.print("{}", value);
  }
  void number(std::string_view name, double value, int digits) {
    key(name);
    sink_.write(decimal(value, digits));
  }
  void flag(std::string_view name, bool value) {
    key(name);
    sink_.write(value ? "true" : "false");
  }
  // In one line.
  void counts(std::string_view name, const Vector<std::uint64_t>& values) {
    key(name);
    for (const char* before = "["; const std::uint64_t value : values) {
      sink_.print("{}{}", before, value);
      before = ", ";
    }
    sink_.write(values.empty() ? "[]" : "]");
  }
  void text(std::string_view value) { sink_.write(json_string(value)); }

 private:
  void line_break() {
    sink_.write("\n");
    for (int i = 0; i < depth_; ++i) sink_.write("  ");
  }
  Sink& sink_;
  int depth_ = 0;
  bool first_ = true;
};

// An array of what `write` makes of each item.
template <class Item>
void write_list(Json& json, std::string_view key, const Vector<Item>& items, void (*write)(Json&, const Item&)) {
  json.key(key);
  json.open('[');
  for (const Item& item : items) write(json, item);
  json.close(']');
}

void write_process(Json& json, const Snapshot& snapshot) {
  json.key("cistern");
  json.open('{');
  json.field("version", snapshot.version);
  json.count("schema", kSchema);
  json.count("pid", static_cast<std::uint64_t>(snapshot.pid));
  json.flag("gpu_memory_used", snapshot.used_gpu_memory());
  if (snapshot.rank) json.count("rank", static_cast<std::uint64_t>(*snapshot.rank));
  if (snapshot.ranks) json.count("ranks", static_cast<std::uint64_t>(*snapshot.ranks));
  json.field("command", snapshot.command);
  json.number("wall_s", snapshot.wall_s, 6);
  json.field("moment", snapshot.moment);
  if (snapshot.exit_code) json.count("exit_code", static_cast<std::uint64_t>(*snapshot.exit_code));
  if (snapshot.gate) {
    json.key("gate");
    json.open('{');
    json.field("outcome", name_of(snapshot.gate->outcome));
    if (!snapshot.gate->reason.empty()) json.field("reason", snapshot.gate->reason);
    json.close('}');
  }
  if (snapshot.family.judged()) {
    json.key("children");
    json.open('{');
    for (const Outcome outcome : {Outcome::passed, Outcome::failed, Outcome::undecided, Outcome::misconfigured})
      json.count(name_of(outcome), snapshot.family.of(outcome));
    json.close('}');
  }
  json.close('}');
}

void write_classes(Json& json, const Vector<ClassFigures>& classes) {
  json.key("classes");
  json.open('[');
  for (const ClassFigures& figures : classes) {
    json.element();
    json.open('{');
    json.count("class", static_cast<std::uint64_t>(figures.size_class));
    json.field("sizes", report_class_name(figures.size_class));
    json.count("allocations", figures.allocations);
    json.count("hits", figures.hits);
    json.count("live_blocks", figures.live_blocks);
    json.count("cached_blocks", figures.cached_blocks);
    json.count("cached_bytes", figures.cached_bytes);
    json.count("high_water_blocks", figures.high_water_blocks);
    if (figures.live_bytes) json.count("live_bytes", *figures.live_bytes);
    if (figures.requested_bytes) json.count("requested_bytes", *figures.requested_bytes);
    json.close('}');
  }
  json.close(']');
}

void write_levels(Json& json, const char* name, const Levels& levels) {
  json.key(name);
  json.open('{');
  json.number("start_s", levels.start_s, 3);
  json.number("interval_s", levels.interval_s, 3);
  json.counts("least", levels.least);
  json.counts("last", levels.last);
  json.close('}');
}

void write_sizes(Json& json, const Vector<SizeFigures>& sizes) {
  json.key("sizes");
  json.open('[');
  for (const SizeFigures& figures : sizes) {
    json.element();
    json.open('{');
    json.count("block_bytes", figures.block_bytes);
    json.count("allocations", figures.allocations);
    json.count("live_blocks", figures.live_blocks);
    json.count("free_blocks", figures.free_blocks);
    json.close('}');
  }
  json.close(']');
}

// Every kind has the same keys, for readers; of one that is only counted the pool's figures are true zeros.
void write_reasons(Json& json, const char* name, const Vector<UnpooledFigure>& reasons) {
  json.key(name);
  json.open('{');
  for (const UnpooledFigure& figure : reasons) json.count(figure.reason, figure.count);
  json.close('}');
}

void write_graph_memory(Json& json, const GraphMemoryFigures& of) {
  json.key("graph_memory");
  json.open('{');
  json.count("used_bytes", of.used_bytes);
  json.count("used_peak_bytes", of.used_peak_bytes);
  json.count("reserved_bytes", of.reserved_bytes);
  json.count("reserved_peak_bytes", of.reserved_peak_bytes);
  json.number("sampled_at_s", of.sampled_at_s, 6);
  json.close('}');
}

void write_kind(Json& json, const KindFigures& kind) {
  json.key(kind.name);
  json.open('{');
  json.flag("pooled", kind.pooled_kind);
  json.count("allocations", kind.allocations);
  json.count("frees", kind.frees);
  json.count("pool_hits", kind.pool_hits);
  json.count("pool_misses", kind.pool_misses);
  json.count("driver_allocs", kind.driver_allocs);
  json.count("driver_frees", kind.driver_frees);
  json.count("driver_syncs", kind.driver_syncs);
  json.count("driver_queries", kind.driver_queries);
  json.count("live_blocks", kind.live_blocks);
  json.count("live_bytes", kind.live_bytes);
  if (kind.requested_bytes) json.count("requested_bytes", *kind.requested_bytes);
  if (kind.allocated_bytes) json.count("allocated_bytes", *kind.allocated_bytes);
  if (kind.temporary) json.count("temporary", *kind.temporary);
  json.count("peak_bytes", kind.peak_bytes);
  if (kind.peak_at_s) json.number("peak_at_s", *kind.peak_at_s, 6);
  json.count("pooled_blocks", kind.pooled_blocks);
  json.count("pooled_bytes", kind.pooled_bytes);
  json.count("failed", kind.failed);
  if (!kind.over_time.least.empty()) write_levels(json, "live_over_time", kind.over_time);
  write_reasons(json, "unpooled", kind.unpooled);
  if (kind.kept_in_order) json.count("kept_in_order", kind.kept_in_order);
  if (!kind.waited.empty()) write_reasons(json, "waited", kind.waited);
  if (kind.graph_memory) write_graph_memory(json, *kind.graph_memory);
  if (!kind.classes.empty()) write_classes(json, kind.classes);
  if (!kind.sizes.empty()) write_sizes(json, kind.sizes);
  json.close('}');
}

void write_frame(Json& json, const FrameFigures& frame) {
  json.element();
  json.open('{');
  if (!frame.function.empty()) json.field("function", frame.function);
  if (!frame.file.empty()) json.field("file", frame.file);
  if (frame.line) json.count("line", frame.line);
  if (!frame.module.empty()) {
    json.field("module", frame.module);
    json.count("offset", frame.offset);
  } else if (!frame.python) {
    json.count("address", frame.address);
  }
  if (!frame.build_id.empty()) json.field("build_id", frame.build_id);
  if (frame.inlined) json.flag("inlined", true);
  if (frame.python) json.flag("python", true);
  json.close('}');
}

void write_frames(Json& json, const Vector<FrameFigures>& frames) { write_list(json, "frames", frames, write_frame); }

void write_leak(Json& json, const LeakFigures& leak) {
  json.element();
  json.open('{');
  json.field("kind", leak.kind);
  json.field("class", name_of(leak.leak_class));
  json.field("object", leak.object);
  json.count("blocks", leak.blocks);
  json.count("bytes", leak.bytes);
  if (leak.references) {
    json.count("created", leak.references->created);
    json.count("retained", leak.references->retained);
    json.count("released", leak.references->released);
  }
  if (leak.kept_parent_bytes) json.count("kept_parent_bytes", *leak.kept_parent_bytes);
  if (leak.api) json.field("api", leak.api);
  if (!leak.owner.empty()) {
    json.field("owner", leak.owner);
    json.flag("program", leak.owned_by_program);
  }
  if (leak.block_bytes) {
    json.count("block_bytes_min", leak.block_bytes->least);
    json.count("block_bytes_max", leak.block_bytes->most);
  }
  if (leak.bytes_error) json.count("bytes_error", *leak.bytes_error);
  if (leak.suppressed) json.flag("suppressed", true);
  if (leak.inherited) json.flag("inherited", true);
  json.number("first_s", leak.first_s, 6);
  json.number("last_s", leak.last_s, 6);
  if (leak.trend.kind != TrendKind::unknown) json.field("trend", name_of(leak.trend.kind));
  if (leak.trend.kind == TrendKind::growing) {
    json.number("bytes_per_s", leak.trend.bytes_per_s, 1);
    json.number("since_s", leak.trend.since_s, 3);
  }
  write_frames(json, leak.frames);
  json.close('}');
}

void write_blocks_and_bytes(Json& json, std::string_view key, const BlocksAndBytes& some) {
  json.key(key);
  json.open('{');
  json.count("blocks", some.blocks);
  json.count("bytes", some.bytes);
  json.close('}');
}

// By class; absent where the pool does not serve the host's memory.
void write_host_standings(Json& json, const Snapshot& snapshot) {
  const auto any = [](const BlocksAndBytes& some) { return some.blocks != 0; };
  if (std::none_of(snapshot.host_standings.begin(), snapshot.host_standings.end(), any)) return;
  json.key("host_classes");
  json.open('{');
  for (std::size_t i = 0; i < kStandings; ++i) {
    const BlocksAndBytes& some = snapshot.host_standings[i];
    if (any(some)) write_blocks_and_bytes(json, name_of(static_cast<LeakClass>(i)), some);
  }
  json.close('}');
}

void write_judging(Json& json, const JudgingFigures& judging) {
  json.key("judging");
  json.open('{');
  if (judging.why_not) json.field("why_not", judging.why_not);
  json.number("seconds", judging.seconds, 6);
  if (!judging.why_not) {
    json.count("unseen_threads", judging.unseen_threads);
    if (judging.threads_stopped_s > 0) json.number("threads_stopped_seconds", judging.threads_stopped_s, 6);
    json.count("unreadable_bytes", judging.unreadable_bytes);
    json.count("bytes_read", judging.bytes_read);
    json.count("memory_bytes", judging.memory_bytes);
  }
  json.close('}');
}

void write_growing(Json& json, const GrowingSite& site) {
  json.element();
  json.open('{');
  json.field("kind", site.kind);
  if (site.api) json.field("api", site.api);
  json.number("bytes_per_s", site.trend.bytes_per_s, 1);
  json.number("since_s", site.trend.since_s, 3);
  json.number("bytes", site.trend.bytes, 0);
  if (site.suppressed) json.flag("suppressed", true);
  write_levels(json, "live_bytes", site.levels);
  write_frames(json, site.frames);
  json.close('}');
}

void write_using_site(Json& json, const UsingSite& site) {
  json.element();
  json.open('{');
  json.field("kind", site.kind);
  if (site.api) json.field("api", site.api);
  if (site.allocations) {
    json.count("allocations", site.allocations);
    json.count("allocated_bytes", site.allocated_bytes);
    json.count("temporary", site.temporary);
  }
  json.count("peak_blocks", site.peak_blocks);
  json.count("peak_bytes", site.peak_bytes);
  write_frames(json, site.frames);
  json.close('}');
}

void write_transfer(Json& json, const TransferFigures& transfer) {
  json.element();
  json.open('{');
  json.field("kind", transfer.kind);
  json.field("direction", transfer.direction);
  if (transfer.touches_host()) json.flag("pageable", transfer.pageable);
  json.flag("asynchronous", transfer.asynchronous);
  json.count("count", transfer.count);
  json.count("bytes", transfer.bytes);
  json.count("failed", transfer.failed);
  if (transfer.seconds) {
    json.number("seconds", *transfer.seconds, 6);
    json.count("timed_bytes", transfer.timed_bytes);
  }
  if (transfer.rate_p50) json.number("bytes_per_s_p50", *transfer.rate_p50, 0);
  if (transfer.rate_p95) json.number("bytes_per_s_p95", *transfer.rate_p95, 0);
  if (transfer.efficiency) json.number("efficiency", *transfer.efficiency, 3);
  if (transfer.site_bytes) {
    json.key("worst_site");
    json.open('{');
    if (transfer.api) json.field("api", transfer.api);
    json.count("bytes", transfer.site_bytes);
    write_frames(json, transfer.frames);
    json.close('}');
  }
  json.close('}');
}

void write_copy_site(Json& json, const CopySite& site) {
  json.element();
  json.open('{');
  json.field("kind", site.kind);
  json.field("direction", site.direction);
  json.flag("pageable", site.pageable);
  json.flag("asynchronous", site.asynchronous);
  if (site.api) json.field("api", site.api);
  json.count("count", site.count);
  json.count("bytes", site.bytes);
  json.count("failed", site.failed);
  if (site.seconds) json.number("seconds", *site.seconds, 6);
  json.count("unaligned", site.unaligned);
  json.count("waited_for", site.waited_for);
  json.count("returns_sampled", site.returns_sampled);
  json.count("returned_unchanged", site.returned_unchanged);
  write_frames(json, site.frames);
  json.close('}');
}

void write_wait(Json& json, const WaitSite& wait) {
  json.element();
  json.open('{');
  json.field("kind", wait.kind);
  if (wait.api) json.field("api", wait.api);
  json.count("count", wait.count);
  json.number("seconds", wait.seconds, 6);
  write_frames(json, wait.frames);
  json.close('}');
}

void write_staging_range(Json& json, const StagingRange& range) {
  json.element();
  json.open('{');
  json.count("bytes_min", range.bytes_min);
  if (range.won) json.field("won", range.won);
  json.count("native_trials", range.native_trials);
  json.count("staged_trials", range.staged_trials);
  if (range.native_rate) json.number("native_bytes_per_s", *range.native_rate, 0);
  if (range.staged_rate) json.number("staged_bytes_per_s", *range.staged_rate, 0);
  if (range.native_blocked_rate) json.number("native_blocked_bytes_per_s", *range.native_blocked_rate, 0);
  if (range.staged_blocked_rate) json.number("staged_blocked_bytes_per_s", *range.staged_blocked_rate, 0);
  json.close('}');
}

void write_staging(Json& json, const StagingFigures& figures) {
  json.element();
  json.open('{');
  json.field("kind", figures.kind);
  json.count("device", static_cast<std::uint64_t>(figures.device));
  json.field("direction", figures.direction);
  json.count("staged_copies", figures.staged_copies);
  json.count("staged_bytes", figures.staged_bytes);
  json.count("passed_on_bytes", figures.passed_on_bytes);
  json.key("passed_on");
  json.open('{');
  for (const UnpooledFigure& reason : figures.passed_on) json.count(reason.reason, reason.count);
  json.close('}');
  write_list(json, "ranges", figures.ranges, write_staging_range);
  json.close('}');
}

void write_device_memory(Json& json, const DeviceMemoryFigures& memory) {
  json.element();
  json.open('{');
  json.count("device", static_cast<std::uint64_t>(memory.device));
  json.count("total_bytes", memory.total_bytes);
  json.count("free_bytes", memory.free_bytes);
  json.count("ours_bytes", memory.ours_bytes);
  json.count("driver_owned_bytes", memory.driver_owned_bytes());
  json.number("sampled_at_s", memory.sampled_at_s, 6);
  json.close('}');
}

void write_context_memory(Json& json, const ContextMemory& memory) {
  json.element();
  json.open('{');
  if (memory.number) json.count("context", memory.number);
  json.count("live_blocks", memory.live_blocks);
  json.count("live_bytes", memory.live_bytes);
  json.count("pooled_blocks", memory.pooled_blocks);
  json.count("pooled_bytes", memory.pooled_bytes);
  json.close('}');
}

void write_context_device(Json& json, const ContextDevice& device) {
  json.element();
  json.open('{');
  if (!device.name.empty()) json.field("name", device.name);
  if (device.total_bytes) json.count("total_bytes", device.total_bytes);
  json.close('}');
}

void write_contexts(Json& json, const ContextFigures& figures) {
  json.element();
  json.open('{');
  json.field("kind", figures.kind);
  write_list(json, "devices", figures.devices, write_context_device);
  json.count("created", figures.contexts_created);
  json.count("alive", figures.contexts_alive);
  json.count("allocations", figures.allocations);
  json.count("live_blocks", figures.live_blocks);
  json.count("live_bytes", figures.live_bytes);
  json.count("peak_bytes", figures.peak_bytes);
  if (figures.peak_at_s) json.number("peak_at_s", *figures.peak_at_s, 6);
  json.count("pooled_blocks", figures.pooled_blocks);
  json.count("pooled_bytes", figures.pooled_bytes);
  write_list(json, "contexts", figures.contexts, write_context_memory);
  json.close('}');
}

void write_fragmentation(Json& json, const FragmentationFigures& figures) {
  json.key(figures.kind);
  json.open('{');
  json.count("reserved_bytes", figures.reserved_bytes);
  json.count("live_bytes", figures.live_bytes);
  if (figures.requested_bytes) json.count("requested_bytes", *figures.requested_bytes);
  json.count("free_bytes", figures.free_bytes);
  json.count("largest_free_bytes", figures.largest_free_bytes);
  if (const std::optional<double> internal = figures.internal_ratio()) json.number("internal", *internal, 4);
  if (figures.splits) json.number("external", figures.external_ratio(), 4);
  if (figures.reserved_peak_bytes) json.count("reserved_peak_bytes", *figures.reserved_peak_bytes);
  if (const std::optional<double> ratio = figures.reserved_per_live()) json.number("reserved_per_live", *ratio, 4);
  if (figures.worst) {
    json.key("worst");
    json.open('{');
    json.number("at_s", figures.worst->at_s, 3);
    json.count("reserved_bytes", figures.worst->reserved_bytes);
    json.count("live_bytes", figures.worst->live_bytes);
    json.close('}');
  }
  json.close('}');
}

void write_suppression(Json& json, const SuppressionFigures& rule) {
  json.element();
  json.open('{');
  json.field("rule", rule.rule);
  json.flag("built_in", rule.built_in);
  json.count("sites", rule.sites);
  json.count("blocks", rule.blocks);
  json.count("bytes", rule.bytes);
  json.close('}');
}

void write_objects(Json& json, const Vector<ObjectFigures>& objects) {
  json.key("objects");
  json.open('{');
  for (const ObjectFigures& figures : objects) {
    json.key(figures.type);
    json.open('{');
    json.count("created", figures.created);
    json.count("alive", figures.alive);
    json.close('}');
  }
  json.close('}');
}

void write_library_pool(Json& json, const LibraryPoolFigures& pool) {
  json.element();
  json.open('{');
  json.field("name", pool.name);
  json.field("kind", pool.kind);
  json.flag("destroyed", pool.destroyed);
  json.count("allocations", pool.allocations);
  json.count("frees", pool.frees);
  json.count("failed", pool.failed);
  json.count("live_blocks", pool.live_blocks);
  json.count("live_bytes", pool.live_bytes);
  json.count("peak_bytes", pool.peak_bytes);
  json.count("allocated_bytes", pool.allocated_bytes);
  if (pool.bytes_max) json.count("bytes_max", pool.bytes_max);
  json.close('}');
}

void write_object_site(Json& json, const ObjectSite& site) {
  json.element();
  json.open('{');
  json.field("type", site.type);
  if (site.api) json.field("api", site.api);
  json.count("alive", site.alive);
  write_frames(json, site.frames);
  json.close('}');
}

void write_sites(Json& json, const Snapshot& snapshot) {
  json.key("sites");
  json.open('{');
  json.field("mode", snapshot.sites);
  json.count("count", snapshot.sites_count);
  json.close('}');
}

void write_python(Json& json, const PythonFigures& python) {
  json.element();
  json.open('{');
  json.field("version", decimal(python.major, 0) + "." + decimal(python.minor, 0) + "." + decimal(python.micro, 0));
  json.flag("frames", !python.why_not);
  if (python.why_not) json.field("why_not", python.why_not);
  json.close('}');
}

template <class Text>
void write_texts(Json& json, std::string_view key, const Vector<Text>& texts) {
  json.key(key);
  json.open('[');
  for (const Text& text : texts) {
    json.element();
    json.text(text);
  }
  json.close(']');
}

void write_unknown_functions(Json& json, const UnknownFunctions& unknown) {
  json.key("unknown_functions");
  json.open('{');
  write_texts(json, "names", unknown.names);
  if (unknown.others) json.count("other_look_ups", unknown.others);
  json.close('}');
}

void write_self(Json& json, const Snapshot& snapshot) {
  json.key("self");
  json.open('{');
  if (snapshot.capture_mean_ns) json.number("capture_mean_ns", *snapshot.capture_mean_ns, 1);
  json.count("tables_bytes", snapshot.tables_bytes);
  json.count("dropped_events", snapshot.dropped_events);
  if (snapshot.staging_bytes) json.count("staging_bytes", snapshot.staging_bytes);
  if (snapshot.escaped) json.count("escaped_calls", snapshot.escaped);
  json.close('}');
}

}  // namespace

void render_json(const Snapshot& snapshot, Sink& sink) {
  Json json(sink);
  json.open('{');
  write_process(json, snapshot);
  json.key("kinds");
  json.open('{');
  for (const KindFigures& kind : snapshot.kinds) write_kind(json, kind);
  json.close('}');
  Vector<LeakFigures> leaks = snapshot.leaks;
  leaks.insert(leaks.end(), snapshot.host_sites.begin(), snapshot.host_sites.end());
  write_list(json, "leaks", leaks, write_leak);
  write_host_standings(json, snapshot);
  if (snapshot.judging) write_judging(json, *snapshot.judging);
  if (snapshot.host_without_site) write_blocks_and_bytes(json, "host_without_site", *snapshot.host_without_site);
  write_list(json, "at_peak", snapshot.at_peak, write_using_site);
  write_list(json, "in_loops", snapshot.in_loops, write_using_site);
  write_list(json, "growing", snapshot.growing, write_growing);
  write_list(json, "suppressions", snapshot.suppressions, write_suppression);
  json.key("fragmentation");
  json.open('{');
  for (const FragmentationFigures& figures : snapshot.fragmentation) write_fragmentation(json, figures);
  json.close('}');
  write_objects(json, snapshot.objects);
  write_list(json, "object_sites", snapshot.object_sites, write_object_site);
  if (!snapshot.library_pools.empty()) write_list(json, "library_pools", snapshot.library_pools, write_library_pool);
  write_list(json, "transfers", snapshot.transfers, write_transfer);
  if (!snapshot.copy_sites.empty()) {
    write_list(json, "copy_sites", snapshot.copy_sites, write_copy_site);
  }
  write_list(json, "waits", snapshot.waits, write_wait);
  if (!snapshot.staging.empty()) {
    write_list(json, "staging", snapshot.staging, write_staging);
  }
  write_list(json, "device_memory", snapshot.device_memory, write_device_memory);
  if (!snapshot.contexts.empty()) write_list(json, "contexts", snapshot.contexts, write_contexts);
  write_list(json, "pythons", snapshot.pythons, write_python);
  Vector<std::string_view> frameworks;
  for (const FrameworkFigures& framework : snapshot.frameworks) frameworks.push_back(framework.name);
  write_texts(json, "frameworks", frameworks);
  if (!snapshot.unknown_functions.names.empty()) write_unknown_functions(json, snapshot.unknown_functions);
  write_sites(json, snapshot);
  write_self(json, snapshot);
  write_texts(json, "estimated", snapshot.estimated);
  json.close('}');
  sink.write("\n");
}

}  // namespace cistern
