// Any number of processes in one summary: sums, the least and the most with the process that had it, and the processes
// with most. Merging is associative and commutative: summaries of parts may be merged in any order, by any engine.
// The size grows with the number of different call sites, not with the number of processes.
#pragma once
#include <map>
#include <string>

#include "stats/formats/model.hpp"

namespace cistern::formats {

// A value of each process.
struct Spread {
  struct At {
    Count value = 0;
    std::string process;  // "rank 3", "pid 4711"
    auto operator<=>(const At&) const = default;
  };
  Count processes = 0, sum = 0;
  At least, most;
  void add(Count value, const std::string& process);
  void merge(const Spread& other);
  bool operator==(const Spread&) const = default;
};

struct MergedKind {
  Spread live_bytes, peak_bytes, allocations, failed;
  // The largest peaks, most first; equal ones by the names of their processes.
  static constexpr std::size_t kLargestMax = 8;
  std::vector<Spread::At> largest;
  void merge(const MergedKind& other);
  bool operator==(const MergedKind&) const = default;
};

struct MergedSite {
  std::string kind, leak_class, object, api;
  std::vector<Frame> frames;  // without offsets and build ids
  Count blocks = 0;
  Spread bytes;
  bool operator==(const MergedSite&) const = default;
};

struct Merged {
  Count processes = 0;
  std::map<std::string, MergedKind> kinds;
  std::map<std::string, MergedSite> sites;  // by what makes them the same; suppressed memory is left out
  bool operator==(const Merged&) const = default;
};

Merged merged(const Run& run);
void merge(Merged& into, const Merged& other);

std::string merged_json(const Merged& merged);
// Throws BadReport.
Merged read_merged(std::string_view json);
// Whether a text is meant to be one: it may still be refused.
bool looks_merged(std::string_view json);
std::string merged_text(const Merged& merged, std::size_t sites_max);

}  // namespace cistern::formats
