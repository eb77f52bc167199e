// See hints.hpp. Each hint is a function that looks at all reports and says one sentence or nothing.
#include "stats/formats/hints.hpp"

#include <algorithm>

#include "stats/format.hpp"
#include "stats/formats/rows.hpp"
#include "stats/report/text_parts.hpp"

namespace cistern::formats {
namespace {

using Hint = String (*)(const Run& run);

String failed_requests(const Run& run) {
  for (const Report& report : run.reports)
    for (const auto& [name, kind] : report.kinds)
      if (kind.failed)
        return counted(kind.failed, "request") + " for " + String(std::string_view(name)) +
               " memory failed: the line about memory on stderr says what would have succeeded";
  return {};
}

String not_judged(const Run& run) {
  for (const Report& report : run.reports)
    if (report.judging && report.judging->why_not)
      return "live memory was not judged (" + printable(*report.judging->why_not) +
             "): lost and reachable memory cannot be told apart";
  return {};
}

String grows(const Run& run) {
  for (const Report& report : run.reports)
    for (const GrowingRow& row : report.growing)
      if (!row.suppressed)
        return String(std::string_view(row.kind)) + " memory grows by " +
               human_bytes(static_cast<Count>(row.bytes_per_s)) +
               " a second: a longer run shows whether it ends; --fail-on growing fails a test for it";
  return {};
}

String without_lines(const Run& run) {
  for (const Report& report : run.reports)
    if (report.cistern.moment == "recording") return {};  // the names come at the end
  for (const Entry& entry : entries(run, {.host = false})) {
    const Stack& stack = run.stacks[entry.row.frames];
    if (stack.empty()) return "leaks without a call site: --sites gpu keeps them";
    const bool named = std::ranges::any_of(stack, [&](FrameId id) { return run.frames[id].line != 0; });
    return named ? String() : String("stacks have no lines: build the program with -g1");
  }
  return {};
}

// Host memory is sampled unless all of it is wanted.
String host_is_sampled(const Run& run) {
  for (const Report& report : run.reports) {
    Count lost = 0;
    for (const auto& [name, some] : report.host_classes)
      if (name == "lost") lost += some.bytes;
    if (lost && report.sites.mode.find("host:all") == std::string::npos)
      return human_bytes(lost) +
             " of host memory are lost, and most small blocks have no call site: --sites all names each";
  }
  return {};
}

String slow_copies(const Run& run) {
  constexpr Count kMany = Count{256} << 20;
  for (const char* driver : {"cuda", "opencl"}) {
    Count bytes = 0;
    double time = 0;
    for (const Report& report : run.reports)
      for (const Transfer& transfer : report.transfers)
        if (transfer.kind == driver && transfer.pageable.value_or(false))
          bytes += transfer.bytes, time += transfer.seconds.value_or(0);
    if (bytes >= kMany)
      return human_bytes(bytes) + " were copied from and to pageable memory, which blocked callers for " +
             duration(time) + ": " +
             (driver == std::string_view("cuda") ? "pinned memory (cudaMallocHost)"
                                                 : "a mapped buffer (CL_MEM_ALLOC_HOST_PTR)") +
             " is copied faster";
  }
  return {};
}

String loops(const Run& run) {
  const UseRow* most = nullptr;
  for (const Report& report : run.reports)
    for (const UseRow& row : report.in_loops)
      if (row.kind != "host" && (!most || row.temporary > most->temporary)) most = &row;
  if (!most) return {};
  const Stack& stack = run.stacks[most->frames];
  const std::string name = stack.empty() ? most->api : run.frames[stack[0]].function;
  return grouped(most->temporary) + " blocks of " + String(std::string_view(most->kind)) +
         " were freed right away by " + printable(name.empty() ? most->api : name, kPathBytesShown) +
         ": keep one and use it again";
}

String lost_in_tests(const Run& run) {
  const std::vector<Entry> leaks = entries(run, {.host = false});
  if (leaks.empty() || standing_of(leaks[0].row) != Standing::lost) return {};
  String text = "cistern run --fail-on lost makes a test fail for this";
  const Stack& stack = run.stacks[leaks[0].row.frames];
  if (!stack.empty() && !run.frames[stack[0]].function.empty())
    text += "; known leaks: --suppressions FILE with lines such as leak:" +
            printable(run.frames[stack[0]].function, kPathBytesShown);
  return text;
}

String fragmented(const Run& run) {
  constexpr Count kMuch = Count{256} << 20;
  for (const Report& report : run.reports)
    for (const auto& [kind, of] : report.fragmentation)
      if (kind.starts_with("device") && of.reserved_per_live.value_or(1) > 1.5 &&
          of.reserved_peak_bytes.value_or(0) > kMuch)
        return String(std::string_view(kind)) + " reserved " + decimal(*of.reserved_per_live, 2) +
               " times its live peak: --device-pool ranges joins freed blocks";
  return {};
}

}  // namespace

std::vector<std::string> hints(const Run& run) {
  std::vector<std::string> all;
  for (const Hint hint : {failed_requests, not_judged, without_lines, grows, host_is_sampled, loops, slow_copies,
                          fragmented, lost_in_tests})
    if (const String text = hint(run); !text.empty() && all.size() < kHintsMax)
      all.emplace_back(text.data(), text.size());
  return all;
}

}  // namespace cistern::formats
