// A recording (CISTERN_RECORD), read as a stream: its events in the order of time, and what they name. Nothing in the
// file is trusted, and memory is bounded by what it defines, not by its events. The file may be that of a process that
// still runs, or was killed: then it is what was there when it was opened.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "stats/formats/read.hpp"
#include "stats/recording_format.hpp"

namespace cistern::formats {

using RecordedEvent = recording::Event;
using RecordedType = recording::EventType;

// The facts in the file's header.
struct RecordingHead {
  std::string version, command;
  Count pid = 0, start_unix_ns = 0;
  Count host_sample_bytes = 0;  // one host block in so many bytes is in the file; 1: each; 0: none
  Count thinned_events = 0;     // left out since the file is full, all before `thinned_until_s`; what was live is there
  Seconds thinned_until_s = 0;
  Count lost_events = 0;  // never written, from `lost_since_s` on
  Seconds lost_since_s = 0;
  std::optional<Seconds> stopped_s;  // nothing was recorded since
  std::optional<Seconds> ended_s;    // absent: the process was killed, or runs
  Count file_bytes = 0;
};

struct RecordedSite {
  std::string call;
  StackId stack = 0;
};

class Recording {
 public:
  // `bytes` stay. Throws BadReport.
  explicit Recording(std::span<const std::uint8_t> bytes);

  static bool is_one(std::span<const std::uint8_t> bytes);

  const RecordingHead& head() const { return head_; }
  // The frames and stacks of sites, and no reports.
  const Run& run() const { return names_.run(); }
  // "device:0"; of a kind that was not defined "kind 17".
  std::string kind_name(Count kind) const;
  // Null: it is not known.
  const RecordedSite* site(std::uint32_t site) const;
  // Seconds since the process started, of an event's time.
  Seconds seconds_at(Count time) const;
  // The system's number; 0: not known.
  Count thread(std::uint32_t thread) const;

  // Each event that the file has, in the order of time. Throws BadReport where one cannot be read.
  void for_each_event(const std::function<void(const RecordedEvent&)>& visit) const;

 private:
  struct Chunk {
    std::uint64_t first_time;
    std::span<const std::uint8_t> committed;
  };
  struct Names;

  std::uint64_t word(std::size_t at) const;
  std::string text(std::size_t at, std::size_t room) const;
  void read_head();
  void read_chunks();
  void read_definitions(std::span<const std::uint8_t> bytes);
  void read_names();
  void define_site(recording::Bytes& from);
  void count_definition(Count more = 1);

  const std::span<const std::uint8_t> bytes_;
  RecordingHead head_;
  std::uint64_t epoch_ = 0, zero_ns_ = 0;
  double ns_per_tick_ = 1;
  std::vector<Chunk> chunks_;  // with events, by their first moment
  Count definitions_ = 0;
  RunReader names_;
  std::unordered_map<Count, std::string> kinds_;
  std::unordered_map<Count, Frame> modules_, lines_;
  std::unordered_map<Count, RecordedSite> sites_;
  std::unordered_map<Count, Count> threads_;
};

// The file at a path, mapped. Throws BadReport, std::system_error.
class RecordingFile {
 public:
  explicit RecordingFile(const std::string& path);
  ~RecordingFile();
  RecordingFile(const RecordingFile&) = delete;
  RecordingFile& operator=(const RecordingFile&) = delete;
  std::span<const std::uint8_t> bytes() const { return {static_cast<const std::uint8_t*>(first_), bytes_}; }

 private:
  void* first_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace cistern::formats
