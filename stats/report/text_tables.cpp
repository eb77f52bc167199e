// See text_tables.hpp.
#include "stats/report/text_tables.hpp"

#include <algorithm>

#include "stats/format.hpp"
#include "stats/report/text_columns.hpp"
#include "stats/report/text_parts.hpp"

namespace cistern {
namespace {

constexpr std::size_t kClassesShown = 6, kClassesOfTwo = 4, kClassesOfMany = 3;  // for one pool, for each of several
constexpr std::size_t kPoolsShown = 4;
constexpr std::uint64_t kWorstShown = std::uint64_t{1} << 20;
constexpr std::size_t kSizesShown = 4;
constexpr std::size_t kDeviceGroupsShown = 8, kContextsShown = 3;
constexpr std::size_t kLibraryPoolsShown = 8, kPoolNameBytes = 64;
constexpr std::size_t kTransfersShown = 8, kCopySitesShown = 3;

String waste(const ClassFigures& figures) {
  const std::optional<double> ratio = figures.waste_ratio();
  return ratio ? decimal(*ratio * 100, 1) : String("-");
}

constexpr Column<ClassFigures> kClassColumns[] = {
    {"class", -16, cells::of_size_class::show_sizes},
    {"allocs", 11, cells::of_size_class::show_allocations},
    {"live", 8, cells::of_size_class::show_live_blocks},
    {"retained", 24, [](const ClassFigures& of) { return blocks_and_bytes(of.cached_blocks, of.cached_bytes); }},
    {"hit%", 6, [](const ClassFigures& of) { return hit_rate(of.hits, of.allocations); }},
    {"high-water", 10, cells::of_size_class::show_high_water_blocks},
    {"waste%", 6, waste},
};

Vector<ClassFigures> busiest_classes(Vector<ClassFigures> classes, std::size_t classes_max) {
  // By class where counts are equal: std::stable_sort would allocate.
  std::sort(classes.begin(), classes.end(), [](const ClassFigures& a, const ClassFigures& b) {
    return a.allocations != b.allocations ? a.allocations > b.allocations : a.size_class < b.size_class;
  });
  if (classes.size() > classes_max) classes.resize(classes_max);
  std::sort(classes.begin(), classes.end(),
            [](const ClassFigures& a, const ClassFigures& b) { return a.size_class < b.size_class; });
  return classes;
}

void write_pool(const KindFigures& kind, std::size_t classes_max, Sink& sink) {
  const Vector<ClassFigures> classes = busiest_classes(kind.classes, classes_max);
  const bool with_waste =
      std::any_of(classes.begin(), classes.end(), [](const ClassFigures& figures) { return figures.waste_ratio(); });
  sink.print("POOLS {}", kind.name);
  if (kind.classes.size() > classes.size())
    sink.print(" ({} busiest of {} classes)", classes.size(), kind.classes.size());
  sink.write("\n");
  const std::span<const Column<ClassFigures>> all = kClassColumns, columns = all.first(all.size() - !with_waste);
  write_headers(columns, sink);
  for (const ClassFigures& figures : classes) write_row(columns, figures, sink);
}

// Leaves the `count_max` items with the greatest figure, in the order they had in their list: a process on many
// devices still has a report of about a screen.
template <class Item>
void keep_greatest(Vector<const Item*>& items, std::uint64_t Item::*figure, std::size_t count_max) {
  std::sort(items.begin(), items.end(), [figure](const Item* a, const Item* b) {
    return a->*figure != b->*figure ? a->*figure > b->*figure : a < b;
  });
  if (items.size() > count_max) items.resize(count_max);
  std::sort(items.begin(), items.end());
}

// "pageable, async"; the type of the host memory only where there is any.
String manner(const TransferFigures& transfer) {
  String text = !transfer.touches_host() ? "" : transfer.pageable ? "pageable" : "pinned";
  if (transfer.asynchronous) text += text.empty() ? "async" : ", async";
  return text;
}

String rate(const std::optional<double>& bytes_per_second) {
  return bytes_per_second ? decimal(*bytes_per_second / (1024.0 * 1024 * 1024), 2) : String("-");
}

// Asynchronous copies do not block a thread.
String blocking_for(const TransferFigures& transfer) {
  const bool blocks = transfer.seconds && *transfer.seconds > 0 && !transfer.asynchronous;
  return blocks ? duration(*transfer.seconds) : String("-");
}

String mean_rate(const TransferFigures& transfer) {
  if (!transfer.seconds || *transfer.seconds <= 0) return "-";
  return rate(static_cast<double>(transfer.timed_bytes) / *transfer.seconds);
}

constexpr Column<TransferFigures> kTransferColumns[] = {
    {"", -16, cells::of_transfer::show_direction},
    {"", -15, manner},
    {"count", 11, cells::of_transfer::show_count},
    {"bytes", 10, cells::of_transfer::show_bytes},
    {"blocked for", 12, blocking_for},
    {"GiB/s", 6, mean_rate},
    {"p50", 6, cells::of_transfer::show_bytes_per_s_p50},
    {"p95", 6, cells::of_transfer::show_bytes_per_s_p95},
    {"vs best", 7, cells::of_transfer::show_efficiency},
};
constexpr std::span<const Column<TransferFigures>> kTransfers = kTransferColumns;

void write_failed_copies(const Vector<TransferFigures>& transfers, Sink& sink) {
  std::uint64_t failed = 0;
  for (const TransferFigures& transfer : transfers) failed += transfer.failed;
  if (failed) sink.print("  {} more {} refused by the driver\n", grouped(failed), failed == 1 ? "was" : "were");
}

// Each line once per site: what most calls would be saved by comes first.
void write_copy_advice(const CopySite& site, Sink& sink) {
  const auto count_and_api = [&](std::uint64_t count) {
    return grouped(count) + " " + site.direction + " (" + (site.api ? site.api : "?") + ")";
  };
  if (site.tiny())
    sink.print("  tiny copies: {} {} of {} on average ({}){}\n", grouped(site.count), site.direction,
               human_bytes(site.bytes / site.count), site.api,
               site.seconds ? "; the calls took " + duration(*site.seconds) : String());
  if (site.in_lock_step())
    sink.print("  copies in lock step: {}, each waited for by the next call of its thread\n",
               count_and_api(site.waited_for));
  if (site.often_unaligned())
    sink.print("  unaligned copies: {}, an address or pitch is not a multiple of {} bytes\n",
               count_and_api(site.unaligned), CopySite::kCopyAlignment);
  if (site.returns_unchanged())
    sink.print("  copied back unchanged: {} of {} checked, out of {}\n", grouped(site.returned_unchanged),
               grouped(site.returns_sampled), count_and_api(site.count));
  write_frames(site.frames, kFramesShort, sink);
}

void write_copies_advised(const Vector<CopySite>& all, Sink& sink) {
  Vector<const CopySite*> sites;
  for (const CopySite& site : all)
    if (site.worth_a_line()) sites.push_back(&site);
  std::sort(sites.begin(), sites.end(), [](const CopySite* a, const CopySite* b) { return a->count > b->count; });
  for (std::size_t i = 0; i < sites.size() && i < kCopySitesShown; ++i) write_copy_advice(*sites[i], sink);
  if (sites.size() > kCopySitesShown)
    sink.print("  ({} of {} call sites with such copies)\n", kCopySitesShown, sites.size());
}

// Pageable memory is copied twice and cannot be copied behind the program's back: where most of it comes from.
void write_worst_pageable_site(const Vector<TransferFigures>& transfers, Sink& sink) {
  const TransferFigures* worst = nullptr;
  for (const TransferFigures& transfer : transfers)
    if (transfer.pageable && transfer.touches_host() && transfer.site_bytes > (worst ? worst->site_bytes : 0))
      worst = &transfer;
  if (!worst) return;
  sink.print("  most pageable bytes: {} {}{}{}{}\n", human_bytes(worst->site_bytes), worst->direction,
             worst->api ? " (" : "", worst->api ? worst->api : "", worst->api ? ")" : "");
  write_frames(worst->frames, kFramesShort, sink);
}

void write_slowest_site(const Vector<CopySite>& sites, Sink& sink) {
  const CopySite* worst = nullptr;
  for (const CopySite& site : sites)
    if (site.lost_seconds > (worst ? worst->lost_seconds : 0)) worst = &site;
  if (!worst || !worst->loses_time()) return;
  sink.print("  most time lost: {} of {} beside the best rate, {} ({})\n", duration(worst->lost_seconds),
             duration(*worst->seconds), worst->direction, worst->api ? worst->api : "?");
  write_frames(worst->frames, kFramesShort, sink);
}

// Ranges that were tried both ways; the others have nothing to compare.
void write_staging_range(const StagingRange& range, Sink& sink) {
  if (!range.native_rate || !range.staged_rate) return;
  sink.print("    from {:>9}: {:<7} (staged {} GiB/s, native {}; by blocked time staged {}, native {})\n",
             human_bytes(range.bytes_min), range.won ? range.won : "pending", rate(range.staged_rate),
             rate(range.native_rate), rate(range.staged_blocked_rate), rate(range.native_blocked_rate));
}

String names_of(const Vector<ContextDevice>& devices) {
  String names;
  for (const ContextDevice& device : devices) {
    if (!names.empty()) names += ", ";
    names += device.name.empty() ? String("an unnamed device") : printable(device.name, kPathBytesShown);
    if (device.total_bytes) names += " with " + human_bytes(device.total_bytes);
  }
  return names;
}

// "context 2: live 1.0 MiB in 1 block, retained 2.0 MiB in 3 blocks"; for a single context the line above says it.
void write_contexts_apart(const ContextFigures& figures, Sink& sink) {
  if (figures.contexts.size() < 2) return;
  String text;
  for (std::size_t i = 0; i < figures.contexts.size() && i < kContextsShown; ++i) {
    const ContextMemory& one = figures.contexts[i];
    if (i) text += "; ";
    text += one.number ? "context " + grouped(one.number) + ": " : String("a context: ");
    if (one.live_blocks) text += "live " + bytes_in_blocks(one.live_blocks, one.live_bytes);
    if (one.live_blocks && one.pooled_blocks) text += ", ";
    if (one.pooled_blocks) text += "retained " + bytes_in_blocks(one.pooled_blocks, one.pooled_bytes);
  }
  if (figures.contexts.size() > kContextsShown) text += "; ...";
  sink.print("      {}\n", text);
}

void write_contexts_of(const ContextFigures& figures, Sink& sink) {
  sink.print("  {} on {}: live {}, peak {}", figures.kind, names_of(figures.devices),
             figures.live_blocks ? bytes_in_blocks(figures.live_blocks, figures.live_bytes) : String("0 B"),
             human_bytes(figures.peak_bytes));
  if (figures.peak_at_s) sink.print(" ({})", seconds(*figures.peak_at_s));
  if (figures.pooled_blocks) sink.print(", retained {}", bytes_in_blocks(figures.pooled_blocks, figures.pooled_bytes));
  sink.print("; {} of {} live\n", grouped(figures.contexts_alive), counted(figures.contexts_created, "context"));
  write_contexts_apart(figures, sink);
}

}  // namespace

void write_contexts(const Snapshot& snapshot, Sink& sink) {
  std::size_t shown = 0;
  for (const ContextFigures& figures : snapshot.contexts)
    if (figures.allocations && ++shown <= kDeviceGroupsShown) write_contexts_of(figures, sink);
  if (shown > kDeviceGroupsShown)
    sink.print("  (the first {} of {} sets of devices; the JSON report has all)\n", kDeviceGroupsShown, shown);
}

void write_device_memory(const Snapshot& snapshot, Sink& sink) {
  for (const DeviceMemoryFigures& memory : snapshot.device_memory)
    sink.print("  device {}: this process {}, driver and other processes {} (at {}), free {} of {}\n", memory.device,
               human_bytes(memory.ours_bytes), human_bytes(memory.driver_owned_bytes()), seconds(memory.sampled_at_s),
               human_bytes(memory.free_bytes), human_bytes(memory.total_bytes));
}

void write_device_ranges(const Snapshot& snapshot, Sink& sink) {
  for (const DeviceRangeFigures& range : snapshot.device_ranges)
    sink.print(
        "  device {}: {} mapped in a range (peak {} for {} used); {} served with {}, {} moved; largest free {}\n",
        range.device, human_bytes(range.mapped_bytes), human_bytes(range.mapped_peak_bytes),
        human_bytes(range.used_peak_bytes), counted(range.allocations, "allocation"),
        counted(range.driver_calls, "driver call"), counted(range.moved_pieces, "piece"),
        human_bytes(range.largest_free_bytes));
}

void write_pools(const Snapshot& snapshot, Sink& sink) {
  Vector<const KindFigures*> pools;
  for (const KindFigures& kind : snapshot.kinds)
    if (kind.pooled_kind && !kind.classes.empty()) pools.push_back(&kind);
  const std::size_t pools_used = pools.size();
  keep_greatest(pools, &KindFigures::allocations, kPoolsShown);
  const std::size_t classes_max = pools_used <= 1 ? kClassesShown : pools_used == 2 ? kClassesOfTwo : kClassesOfMany;
  for (const KindFigures* kind : pools) write_pool(*kind, classes_max, sink);
  if (pools_used > pools.size())
    sink.print("      (pools of the {} busiest of {} kinds; the JSON report has all)\n", pools.size(), pools_used);
}

namespace {

constexpr Column<LibraryPoolFigures> kLibraryPoolColumns[] = {
    {"name", -24, [](const LibraryPoolFigures& of) { return printable(of.name, kPoolNameBytes); }},
    {"kind", -8, cells::of_library_pool::show_kind},
    {"live", 24,
     [](const LibraryPoolFigures& of) {
       return of.destroyed ? String("destroyed") : blocks_and_bytes(of.live_blocks, of.live_bytes);
     },
     0},
    {"peak", 10, cells::of_library_pool::show_peak_bytes},
    {"limit", 10, cells::of_library_pool::show_bytes_max},
    {"allocs", 11, cells::of_library_pool::show_allocations},
    {"failed", 6, cells::of_library_pool::show_failed},
};
constexpr std::span<const Column<LibraryPoolFigures>> kLibraryPools = kLibraryPoolColumns;

constexpr Column<SizeFigures> kSizeColumns[] = {
    {"block", -16, cells::of_block_size::show_block_bytes},
    {"allocs", 11, cells::of_block_size::show_allocations},
    {"live", 24,
     [](const SizeFigures& of) { return blocks_and_bytes(of.live_blocks, of.live_blocks * of.block_bytes); }},
    {"free in pages", 24,
     [](const SizeFigures& of) { return blocks_and_bytes(of.free_blocks, of.free_blocks * of.block_bytes); }},
};
constexpr std::span<const Column<SizeFigures>> kSizes = kSizeColumns;

// ", network file"; most copies are of plain memory, and nothing is said of it.
String copied_memory(std::string_view source) {
  if (source == "memory") return {};
  String text = ", " + String(source);
  std::replace(text.begin(), text.end(), '-', ' ');
  return text;
}

}  // namespace

// Those with most memory; the figures of their kinds have it too.
void write_library_pools(const Snapshot& snapshot, Sink& sink) {
  if (snapshot.library_pools.empty()) return;
  Vector<const LibraryPoolFigures*> pools;
  for (const LibraryPoolFigures& pool : snapshot.library_pools) pools.push_back(&pool);
  keep_greatest(pools, &LibraryPoolFigures::peak_bytes, kLibraryPoolsShown);
  sink.write("POOLS MADE BY THE PROGRAM");
  if (pools.size() < snapshot.library_pools.size())
    sink.print(" ({} of {}, those with the highest peaks)", pools.size(), snapshot.library_pools.size());
  sink.write("\n");
  write_headers(kLibraryPools, sink);
  for (const LibraryPoolFigures* pool : pools) write_row(kLibraryPools, *pool, sink);
}

void write_sizes(const Snapshot& snapshot, Sink& sink) {
  for (const KindFigures& kind : snapshot.kinds) {
    if (kind.sizes.empty()) continue;
    Vector<SizeFigures> sizes = kind.sizes;
    std::sort(sizes.begin(), sizes.end(), [](const SizeFigures& a, const SizeFigures& b) {
      return a.live_blocks * a.block_bytes != b.live_blocks * b.block_bytes
                 ? a.live_blocks * a.block_bytes > b.live_blocks * b.block_bytes
                 : a.block_bytes < b.block_bytes;
    });
    if (sizes.size() > kSizesShown) sizes.resize(kSizesShown);
    sink.print("SIZES {} ({} of {} block sizes, those with most live bytes)\n", kind.name, sizes.size(),
               kind.sizes.size());
    write_headers(kSizes, sink);
    for (const SizeFigures& figures : sizes) write_row(kSizes, figures, sink);
  }
}

void write_fragmentation(const Snapshot& snapshot, Sink& sink) {
  Vector<const FragmentationFigures*> fragmented;
  for (const FragmentationFigures& figures : snapshot.fragmentation)
    if (figures.reserved_bytes) fragmented.push_back(&figures);
  keep_greatest(fragmented, &FragmentationFigures::reserved_bytes, kPoolsShown);
  for (const FragmentationFigures* shown : fragmented) {
    const FragmentationFigures& figures = *shown;
    sink.print("FRAGMENTATION {}  reserved {}  live {}", figures.kind, human_bytes(figures.reserved_bytes),
               human_bytes(figures.live_bytes));
    const std::optional<double> internal = figures.internal_ratio();
    if (figures.live_bytes && internal) sink.print("  internal {}", percent(*internal));
    if (figures.reserved_peak_bytes) sink.print("  high-water {}", human_bytes(*figures.reserved_peak_bytes));
    if (const auto ratio = figures.reserved_per_live()) sink.print(" ({}x the live peak)", decimal(*ratio, 2));
    if (const auto& worst = figures.worst; worst && worst->reserved_bytes >= kWorstShown + 2 * worst->live_bytes)
      sink.print("  worst {} reserved for {} live (at {})", human_bytes(worst->reserved_bytes),
                 human_bytes(worst->live_bytes), seconds(worst->at_s));
    if (figures.splits && figures.free_bytes)
      sink.print("  external {}  largest free block {}", percent(figures.external_ratio()),
                 human_bytes(figures.largest_free_bytes));
    sink.write("\n");
  }
}

void write_transfers(const Snapshot& snapshot, Sink& sink) {
  const Vector<TransferFigures>& transfers = snapshot.transfers;
  std::string_view kind;
  std::size_t shown = 0;
  for (const TransferFigures& transfer : transfers) {
    if (kind != transfer.kind) {
      kind = transfer.kind;
      shown = 0;
      sink.print("TRANSFERS {:<25}", kind);  // over the first two columns
      write_headers(kTransfers.subspan(2), sink);
    }
    if (++shown <= kTransfersShown) write_row(kTransfers, transfer, sink);
    if (shown == kTransfersShown + 1) sink.print("  (the {} largest; the JSON report has all)\n", kTransfersShown);
  }
  write_failed_copies(transfers, sink);
  write_worst_pageable_site(transfers, sink);
  write_slowest_site(snapshot.copy_sites, sink);
  write_copies_advised(snapshot.copy_sites, sink);
}

void write_waits(const Snapshot& snapshot, Sink& sink) {
  bool titled = false;
  for (const WaitSite& wait : snapshot.waits) {
    if (!wait.worth_a_line()) continue;
    if (!titled) sink.write("WAITS FOR A DEVICE  (each blocks its thread)\n");
    titled = true;
    sink.print("  {}  {} calls, blocked for {}{}{}{}\n", wait.kind, grouped(wait.count), duration(wait.seconds),
               wait.api ? " (" : "", wait.api ? wait.api : "", wait.api ? ")" : "");
    write_frames(wait.frames, kFramesShort, sink);
  }
}

void write_staging(const Snapshot& snapshot, Sink& sink) {
  for (const StagingFigures& figures : snapshot.staging) {
    const bool tried = std::any_of(figures.ranges.begin(), figures.ranges.end(),
                                   [](const StagingRange& range) { return range.staged_rate.has_value(); });
    if (!figures.staged_copies && !tried && !figures.asked_for) continue;
    String reasons;
    for (const UnpooledFigure& reason : figures.passed_on)
      reasons +=
          String(reasons.empty() ? "; left to the driver: " : ", ") + reason.reason + " " + grouped(reason.count);
    sink.print("STAGING {} device {}  {}{}  {} in {} through bounce buffers{}\n", figures.kind, figures.device,
               figures.direction, copied_memory(figures.source), human_bytes(figures.staged_bytes),
               figures.staged_copies == 1 ? String("1 copy") : grouped(figures.staged_copies) + " copies", reasons);
    for (const StagingRange& range : figures.ranges) write_staging_range(range, sink);
  }
}

// "GATHERED 26,677 copies of 80 MiB in 12 submissions; sent for: full 10, driver-call 2"
void write_gathered(const Snapshot& snapshot, Sink& sink) {
  if (!snapshot.gathered) return;
  const GatherFigures& figures = *snapshot.gathered;
  String reasons;
  for (const UnpooledFigure& why : figures.sent)
    reasons += String(reasons.empty() ? "; sent for: " : ", ") + why.reason + " " + grouped(why.count);
  sink.print("GATHERED {} of {} in {}{}\n",
             figures.copies == 1 ? String("1 small copy") : grouped(figures.copies) + " small copies",
             human_bytes(figures.bytes), counted(figures.submissions, "submission"), reasons);
  if (figures.off)
    sink.print("    no more are held back: {}{}{}\n", figures.off, figures.off_for.empty() ? "" : " ",
               printable(figures.off_for));
}

}  // namespace cistern
