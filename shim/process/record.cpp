// See record.hpp.
#include "shim/process/record.hpp"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "pool/base/file_status.hpp"
#include "pool/base/process_start.hpp"
#include "pool/base/system_call.hpp"
#include "pool/heap/sampling.hpp"
#include "shim/process/file_names.hpp"
#include "shim/process/log.hpp"
#include "shim/process/other_processes.hpp"
#include "shim/process/output.hpp"
#include "shim/process/process.hpp"
#include "shim/process/small_file.hpp"
#include "shim/process/system_filter.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/counters.hpp"
#include "stats/recording.hpp"
#include "stats/resolve.hpp"

namespace cistern {
namespace {

// --- Where
struct Place {
  int pid = 0;
  String names[kNamesOfRecording];
  const char* paths[kNamesOfRecording + 1] = {};
  recording::Plan plan;
};
constinit String* pattern = nullptr;  // the path, absolute, with its %p
constinit Place* place = nullptr;     // null: nothing is recorded
constinit bool is_forked = false;

// Programs change their directory later.
String absolute(String path) {
  char directory[PATH_MAX];
  if (path.starts_with('/') ||
      system_call(SYS_getcwd, reinterpret_cast<std::uintptr_t>(directory), sizeof directory) <= 0 || *directory != '/')
    return path;
  return String(directory) + "/" + path;
}

// The former stays, for threads that still read it.
Place* make_place(const String& path, int pid) {
  auto* const made = new (internal_allocate(sizeof(Place))) Place;
  made->pid = pid;
  for (int i = 0; i < kNamesOfRecording; ++i) {
    made->names[i] = name_of_recording(path, pid, i);
    made->paths[i] = made->names[i].c_str();
  }
  const SmallFile<16> clock("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  const std::string_view source = clock.text();
  made->plan = {made->paths, options().record_max, host_pool::sample_interval_bytes(),
                source.starts_with("tsc") || source.starts_with("arch_sys_counter"), start_arguments()};
  return made;
}

void say_not_recorded(const String& path, const char* reason) { warn_line("cannot record to " + path + ": " + reason); }

// False: it is said why.
bool can_be_made(const String& path) {
  struct stat file;
  // Beside a pipe, a terminal or /dev/null no file is meant.
  if (!status_of_file(path.c_str(), file) && !S_ISREG(file.st_mode))
    return say_not_recorded(path, "it is not a file"), false;
  const String folder = path.substr(0, path.rfind('/') + 1);
  const long answer = system_call(SYS_faccessat, static_cast<std::uintptr_t>(AT_FDCWD),
                                  reinterpret_cast<std::uintptr_t>(folder.c_str()), W_OK | X_OK);
  char reason[128];
  if (answer < 0) say_not_recorded(path, strerror_r(static_cast<int>(-answer), reason, sizeof reason));
  return answer >= 0;
}

// A file of the same name was there before. Other processes of the run are expected to have made it: one of the same
// number that executed this program, or one that has the same path.
bool is_worth_telling() {
  return !is_forked && pattern->find("%p") == pattern->npos &&
         value_in(environment_of(parent_of(kThisProcess)), "CISTERN_RECORD") != options().record;
}

// --- The names of call sites, in the end
class Names {
 public:
  void add(const LeakFigures& row) {
    Vector<std::uint64_t> frames;
    for (const FrameFigures& frame : row.frames)
      if (!frame.folded) frames.push_back(number_of(frame));
    begin();
    number(row.site);
    number(frames.size());
    for (const std::uint64_t frame : frames) number(frame);
    end(recording::Definition::names_of_site);
  }
  std::span<const std::uint8_t> bytes() const { return bytes_; }

 private:
  std::uint64_t number_of(const String& text) {
    if (text.empty()) return 0;
    std::uint64_t& known = texts_[text];
    if (known) return known;
    known = texts_.size();
    begin();
    part_.insert(part_.end(), text.begin(), text.end());
    end(recording::Definition::text);
    return known;
  }
  std::uint64_t number_of(const FrameFigures& frame) {
    const std::uint64_t parts[] = {number_of(frame.function),
                                   number_of(frame.file),
                                   frame.line,
                                   number_of(frame.module),
                                   number_of(frame.build_id),
                                   frame.offset,
                                   (frame.inlined ? 1u : 0u) | (frame.python ? 2u : 0u)};
    begin();
    for (const std::uint64_t part : parts) number(part);
    std::uint64_t& known = frames_[String(part_.begin(), part_.end())];
    if (known) return known;
    end(recording::Definition::frame);
    return known = frames_.size();
  }

  void begin() { part_.clear(); }
  void number(std::uint64_t value) {
    std::uint8_t coded[10];
    part_.insert(part_.end(), coded, recording::put_number(coded, value));
  }
  void end(recording::Definition tag) {
    std::uint8_t head[11] = {static_cast<std::uint8_t>(tag)};
    bytes_.insert(bytes_.end(), head, recording::put_number(head + 1, part_.size()));
    bytes_.insert(bytes_.end(), part_.begin(), part_.end());
  }

  Vector<std::uint8_t> bytes_, part_;
  struct Hash {
    std::size_t operator()(const String& text) const { return std::hash<std::string_view>()(text); }
  };
  Map<String, std::uint64_t, Hash> texts_, frames_;
};

void add_names(Names& names) {
  constexpr std::size_t kAtATime = 512;
  constexpr std::uint64_t kBudgetMs = 5000;
  const std::uint64_t begin_ms = coarse_milliseconds_since_start();
  const SiteId last = recording::last_defined();
  for (SiteId site = 1; site <= last;) {
    Vector<LeakFigures> rows;
    for (; site <= last && rows.size() < kAtATime; ++site)
      if (recording::is_defined(site)) rows.push_back(leak_at(site, "", "", ""));
    const std::uint64_t spent_ms = coarse_milliseconds_since_start() - begin_ms;
    if (spent_ms >= kBudgetMs) return;
    resolve(rows, static_cast<unsigned>(kBudgetMs - spent_ms), options().frames == "python");
    for (const LeakFigures& row : rows) names.add(row);
  }
}

void say_what_went_wrong() {
  const auto [step, error] = recording::trouble();
  const String path = recording::file_path() ? recording::file_path() : place->names[0];
  char text[128];
  const char* const reason = strerror_r(error, text, sizeof text);
  if (step == recording::Step::making) return say_not_recorded(path, reason);
  if (step == recording::Step::growing) return warn_line(path + " could not grow: " + reason);
  if (step == recording::Step::thinning)
    return warn_line("the recording ended early: " + path + " is full of live memory; see CISTERN_RECORD_MAX");
}

}  // namespace

void make_recording() {
  const String& asked = options().record;
  if (system_calls_are_filtered()) return warn_later("CISTERN_RECORD: a process of few system calls is not recorded");
  const Uncounted uncounted;
  pattern = new (internal_allocate(sizeof(String))) String(absolute(asked));
  const int pid = this_process();
  const String path = expanded_path(*pattern, pid);
  if (!can_be_made(path)) return;
  place = make_place(path, pid);
  recording::start(place->plan);
  is_recording = true;
}

void end_recording() {
  if (!place || system_calls_are_filtered() || this_process() != place->pid) return;
  if (!is_recording.exchange(false)) return;
  const Uncounted uncounted;
  if (recording::end_chunks()) {
    Names names;
    add_names(names);
    recording::end_file(names.bytes());
    if (recording::file_path() != place->paths[0] && is_worth_telling())
      warn_line(place->names[0] + " was there before; the recording is in " + recording::file_path());
  }
  say_what_went_wrong();
}

void recording_after_fork_in_child(bool under_lock) {
  if (!place) return;
  is_forked = true;
  is_recording = true;
  const int pid = this_process();
  if (under_lock || recording::is_writing_here() || system_calls_are_filtered()) {
    place = nullptr;
    is_recording = false;
    return recording::record_nothing_in_child();
  }
  place = make_place(expanded_path(*pattern, pid), pid);
  recording::begin_anew_in_child(place->plan);
}

}  // namespace cistern
