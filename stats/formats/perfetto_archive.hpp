// Processes of several machines as one file of Perfetto: a tar with a trace of each, and a manifest that says which
// machine each is of (perfetto.dev/docs/reference/perfetto-manifest). Perfetto puts them on one timeline by the wall
// clock. A trace is written when its process is added: memory is bounded, however many there are.
#pragma once
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "stats/formats/model.hpp"

namespace cistern::formats {

class PerfettoArchive {
 public:
  explicit PerfettoArchive(std::function<void(std::string_view)> write) : write_(std::move(write)) {}
  // A run of one process. Throws BadReport.
  void add(const Run& run);
  // The archive is complete, and nothing may be added.
  void end();

 private:
  void put(const std::string& name, const std::string& content);

  const std::function<void(std::string_view)> write_;
  std::vector<std::string> machines_;  // in the order of the archive
  std::set<std::string> names_;        // the same
  std::string first_;                  // the machine whose process started first
  std::optional<Seconds> first_s_;
};

}  // namespace cistern::formats
