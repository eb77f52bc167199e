// The library's view of a kind: its figures, its live blocks one by one (cistern/cistern.h), and where those came from
// (cistern/plugins.h).
#include <algorithm>

#include "shim/judging/judging.hpp"
#include "shim/library/answers.hpp"
#include "shim/library/kind_memory.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/counters.hpp"
#include "stats/format.hpp"
#include "stats/resolve.hpp"

namespace cistern::library {
namespace {

constexpr int kAllDevices = -1;
constexpr unsigned kSymbolBudgetMs = 1000;

// Whether a row of a report is about this memory.
bool is_of(const String& row, const KindMemory& memory, int device) {
  const String name = memory.name;
  if (!memory.device_count) return row == name;
  return device == kAllDevices ? row.starts_with(name + ":") : row == name + ":" + decimal(device, 0);
}

double part(std::uint64_t of, std::uint64_t all) {
  return all ? static_cast<double>(of) / static_cast<double>(all) : 0.0;
}

void add(cistern_figures& total, const KindFigures& row) {
  total.allocations += row.allocations;
  total.frees += row.frees;
  total.failed += row.failed;
  total.pool_hits += row.pool_hits;
  total.pool_misses += row.pool_misses;
  total.allocated_bytes += row.allocated_bytes.value_or(0);
  total.live_blocks += row.live_blocks;
  total.live_bytes += row.live_bytes;
  total.peak_bytes = std::max(total.peak_bytes, row.peak_bytes);
}

struct Fragments {
  std::uint64_t live_bytes = 0, requested_bytes = 0;
  bool splits = false;
};

void add(cistern_figures& total, Fragments& fragments, const FragmentationFigures& row) {
  total.reserved_bytes += row.reserved_bytes;
  total.reserved_peak_bytes = std::max(total.reserved_peak_bytes, row.reserved_peak_bytes.value_or(row.reserved_bytes));
  total.free_bytes += row.free_bytes;
  total.largest_free_bytes = std::max(total.largest_free_bytes, row.largest_free_bytes);
  fragments.live_bytes += row.live_bytes;
  fragments.requested_bytes += row.requested_bytes.value_or(row.live_bytes);
  fragments.splits |= row.splits;
  if (!row.worst ||
      row.worst->reserved_bytes - row.worst->live_bytes < total.worst_reserved_bytes - total.worst_live_bytes)
    return;
  total.worst_reserved_bytes = row.worst->reserved_bytes;
  total.worst_live_bytes = row.worst->live_bytes;
  total.worst_at_seconds = row.worst->at_s;
}

// Peaks of devices lie at different times: their sum is none.
void add_joint_peaks(cistern_figures& total, cistern_kind kind) {
  for (const Kind* of : kinds())
    for (const KindPool& pool : of->pools)
      if (pool.id == kind && pool.reserved_peak_bytes) {
        std::uint64_t largest_kept = 0;
        total.peak_bytes = pool.figures(&largest_kept).peak_bytes;
        total.reserved_peak_bytes = std::max(total.reserved_bytes, pool.reserved_peak_bytes());
      }
}

void add_ratios(cistern_figures& total, const Fragments& fragments) {
  total.seconds = static_cast<double>(nanoseconds_since_start()) / 1e9;
  if (total.seconds > 0) {
    total.allocations_per_second = static_cast<double>(total.allocations) / total.seconds;
    total.bytes_per_second = static_cast<double>(total.allocated_bytes) / total.seconds;
  }
  total.hit_rate = part(total.pool_hits, total.allocations);
  const std::uint64_t unasked = fragments.live_bytes - std::min(fragments.live_bytes, fragments.requested_bytes);
  total.internal_fragmentation = part(unasked, fragments.live_bytes);
  if (fragments.splits && total.free_bytes)
    total.external_fragmentation = 1 - part(total.largest_free_bytes, total.free_bytes);
  total.reserved_per_live_at_peak = part(total.reserved_peak_bytes, total.peak_bytes);
}

}  // namespace

cistern_status get_figures(cistern_kind kind, int device, cistern_figures* figures) {
  native = 0;
  const bool has_room = clear_sized(figures);
  const KindMemory* const memory = memory_of(kind);
  if (!memory || !has_room || device < kAllDevices) return CISTERN_INVALID;
  const bool is_there = device <= 0 || (memory->device_count && device < memory->device_count());
  if (!is_there) return CISTERN_INVALID;
  Snapshot snapshot{};
  {
    const Uncounted uncounted;
    const JudgementHeld held;
    for (const Kind* of : kinds())
      if (std::find(of->memory.begin(), of->memory.end(), memory) != of->memory.end()) of->add_to(snapshot);
  }
  cistern_figures total{};
  Fragments fragments;
  for (const KindFigures& row : snapshot.kinds)
    if (is_of(row.name, *memory, device)) add(total, row);
  for (const FragmentationFigures& row : snapshot.fragmentation)
    if (is_of(row.kind, *memory, device)) add(total, fragments, row);
  if (device == kAllDevices) add_joint_peaks(total, kind);
  add_ratios(total, fragments);
  write_sized(figures, total);
  return CISTERN_OK;
}

cistern_status visit(cistern_kind kind, int (*visit)(const cistern_block* block, void* user), void* user) {
  native = 0;
  if (!memory_of(kind) || !visit) return CISTERN_INVALID;
  struct Found {
    int pool;
    Vector<LiveBlock> blocks;
  } found{kind, {}};
  for (const Kind* of : kinds()) {
    if (!of->visit_live) continue;
    of->visit_live(
        [](void* context, const LiveBlock& block) {
          auto& [pool, blocks] = *static_cast<Found*>(context);
          if (block.pool == pool) blocks.push_back(block);
        },
        &found);
  }
  Map<SiteId, Vector<const void*>> frames;
  for (const LiveBlock& block : found.blocks) {
    auto [of_site, is_new] = frames.try_emplace(block.site);
    if (is_new && block.site)
      for (const FrameFigures& frame : site_frames(block.site))
        if (frame.address) of_site->second.push_back(reinterpret_cast<const void*>(frame.address));
    cistern_block shown{};
    shown.struct_bytes = sizeof shown;
    shown.kind = kind;
    shown.device = block.device;
    shown.address = reinterpret_cast<void*>(block.address);
    shown.bytes = block.bytes;
    shown.call = block.api;
    shown.born_seconds = static_cast<double>(block.born_ns) / 1e9;
    shown.frames = of_site->second.data();
    shown.frame_count = of_site->second.size();
    shown.site = block.site;
    if (visit(&shown, user)) break;
  }
  return CISTERN_OK;
}

cistern_status visit_frames(uint32_t site, int (*visit)(const cistern_frame* frame, void* user), void* user) {
  native = 0;
  if (!visit) return CISTERN_INVALID;
  if (!site) return CISTERN_OK;
  const auto text_or_null = [](const String& text) { return text.empty() ? nullptr : text.c_str(); };
  for (const FrameFigures& frame : resolved_frames(site, kSymbolBudgetMs)) {
    const cistern_frame shown{sizeof shown,
                              text_or_null(frame.function),
                              text_or_null(frame.file),
                              frame.line,
                              frame.python ? nullptr : text_or_null(frame.module),
                              frame.python};
    if (visit(&shown, user)) break;
  }
  return CISTERN_OK;
}

}  // namespace cistern::library
