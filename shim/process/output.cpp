// See output.hpp. Files are report_file.hpp's. Pipes, devices, sockets and the process's own descriptors are written to
// as they are.
#include "shim/process/output.hpp"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>

#include "pool/base/file_status.hpp"
#include "pool/base/system_call.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/log.hpp"
#include "shim/process/process.hpp"
#include "shim/process/report_file.hpp"
#include "shim/process/standard_error.hpp"
#include "shim/process/system_filter.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/format.hpp"
#include "stats/report/report.hpp"

namespace cistern {
namespace {

// --- What was noted at the start
// The place for it is there in any case, so that a signal handler can write.
alignas(InheritedFile) constinit char named_place[sizeof(InheritedFile)] = {};
constinit InheritedFile* named = nullptr;  // CISTERN_REPORT names this descriptor
constinit bool could_be_made = false;      // the report, by this process as it was
constinit uid_t made_by = 0;
constinit bool refusal_said = false;

std::uintptr_t word(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

int may_access(const String& path, int how) {
  const long answer = system_call(SYS_faccessat, static_cast<std::uintptr_t>(AT_FDCWD), word(path.c_str()),
                                  static_cast<std::uintptr_t>(how));
  return answer < 0 ? static_cast<int>(-answer) : 0;
}

// A report is appended to a file that a process has open, as to this process's own descriptors.
bool is_written_to_as_it_is(const String& path, const struct stat& file) {
  if (S_ISREG(file.st_mode)) return path.starts_with("/proc/") && path.find("/fd/") != path.npos;
  return S_ISCHR(file.st_mode) || S_ISFIFO(file.st_mode) || S_ISSOCK(file.st_mode);
}

// Why no report can be made there, or 0: errno. A folder that is missing may come.
int refusal_of(const String& path) {
  struct stat file;
  const int failure = status_of_link(path.c_str(), file);
  if (failure && failure != ENOENT) return failure;
  if (!failure && !status_of_file(path.c_str(), file)) {
    if (S_ISBLK(file.st_mode)) return EOPNOTSUPP;
    if (is_written_to_as_it_is(path, file)) return may_access(path, W_OK);
  }
  const std::size_t slash = path.rfind('/');
  const String folder = slash == path.npos ? String(".") : path.substr(0, slash + 1);
  const int refused = may_access(folder, W_OK | X_OK);
  return refused == ENOENT ? 0 : refused;
}

// --- Where it goes
int failed_with(int failure) {
  errno = failure;
  return -1;
}

// As the status of files is asked: by the system's own call.
int open_with(const String& path, int how) {
  const long answer = system_call(SYS_openat, static_cast<std::uintptr_t>(AT_FDCWD), word(path.c_str()),
                                  static_cast<std::uintptr_t>(how | O_WRONLY | O_CLOEXEC | O_NOCTTY), 0666);
  return answer < 0 ? failed_with(static_cast<int>(-answer)) : static_cast<int>(answer);
}

// A stream, or else one datagram, if the report fits into one.
int open_socket(const String& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return failed_with(ENAMETOOLONG);
  memcpy(address.sun_path, path.c_str(), path.size());
  long failure = -EPROTOTYPE;
  for (const int type : {SOCK_STREAM, SOCK_DGRAM}) {
    if (failure != -EPROTOTYPE) break;
    const long made =
        system_call(SYS_socket, AF_UNIX, static_cast<std::uintptr_t>(type | SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (made < 0) return failed_with(static_cast<int>(-made));
    failure = system_call(SYS_connect, static_cast<std::uintptr_t>(made), word(&address), sizeof address);
    if (failure == 0) return static_cast<int>(made);
    close(static_cast<int>(made));
  }
  return failed_with(static_cast<int>(-failure));
}

// Through links, too, which lead to no file that a report could destroy: what was opened is looked at again. ENOENT:
// there is no such file; ENXIO: it is a pipe without a reader.
int open_as_it_is(const String& path) {
  struct stat file;
  if (status_of_file(path.c_str(), file)) return failed_with(ENOENT);
  if (S_ISSOCK(file.st_mode)) return open_socket(path);
  if (S_ISBLK(file.st_mode)) return failed_with(EOPNOTSUPP);  // a disk
  if (!is_written_to_as_it_is(path, file)) return failed_with(ENOENT);
  const int descriptor = open_with(path, O_APPEND | O_NONBLOCK);
  if (descriptor == -1 && errno == ENXIO && !S_ISFIFO(file.st_mode)) return failed_with(ENODEV);
  if (descriptor == -1 || (!status_of_file(descriptor, file) && is_written_to_as_it_is(path, file))) return descriptor;
  close(descriptor);
  return failed_with(ENOENT);
}

// The outline of the report that its process was about to write. That process may be the parent of this one. A signal
// handler makes the object.
struct Outline {
  int pid;
  ReportFile file;
};
alignas(Outline) constinit char outline_place[sizeof(Outline)] = {};
constinit Outline* outline = nullptr;

// A pipe without a reader is like a file that exists.
ReportFile deliver(const String& path, Reporter reporter, std::string_view text) {
  if (outline && outline->pid == reporter.pid) return replace_report_file(outline->file, reporter, text);
  const int as_it_is = open_as_it_is(path);
  if (as_it_is == -1 && errno != ENOENT && errno != ENXIO) return {errno, path};
  if (as_it_is == -1) return write_report_file(path, reporter, text);
  int failure = write_whole(as_it_is, text);
  if (close(as_it_is) != 0 && !failure) failure = errno;
  return {failure, path};
}

void write_to_standard_error(std::string_view text) {
  const int descriptor = standard_error();
  if (descriptor != -1) write_whole(descriptor, text);
}

String report_path(const String& pattern, int pid) { return from_start_directory(expanded_path(pattern, pid)); }

void say_not_written(const String& path, int failure, const char* what_now) {
  char reason[128];
  warn_line("cannot write the report to " + path + ": " + strerror_r(failure, reason, sizeof reason) + "; " + what_now);
}

// A report that cannot be stored where it was asked for is shown, so that nothing is lost. The report of a process that
// the user did not start and that used no GPU memory is not shown, nor that of a process that gave up the right to
// write there.
void write_to_file(const String& pattern, Reporter reporter, bool worth_showing, std::string_view text) {
  const ReportFile report = deliver(report_path(pattern, reporter.pid), reporter, text);
  if (report.failure == 0) return;
  const bool gave_up = could_be_made && (geteuid() != made_by || refusal_of(report.path));
  if (gave_up)
    return say_not_written(report.path, report.failure, "this process has given up its right to write there");
  if (!worth_showing)
    return say_not_written(report.path, report.failure, "it is dropped, because no GPU memory was used");
  if (!refusal_said) say_not_written(report.path, report.failure, "the report follows");
  write_to_standard_error(text);
}

void write_to_descriptor(InheritedFile& file, const String& pattern, bool worth_showing, std::string_view text) {
  const int descriptor = file.descriptor();
  const int failure = descriptor == -1 ? EBADF : write_whole(descriptor, text);
  if (failure == 0 || !worth_showing) return;
  say_not_written(pattern, failure, "the report follows");
  write_to_standard_error(text);
}

// One that is set later, by a call, is noted when it is needed.
InheritedFile* named_descriptor(const String& pattern) {
  const int number = descriptor_named_by(pattern);
  if (named && named->number() == number) return named;
  return number == -1 ? nullptr : named = new (named_place) InheritedFile(number);
}

bool goes_to_standard_error(const String& pattern) {
  return pattern.empty() || pattern == "stderr" || descriptor_named_by(pattern) == STDERR_FILENO;
}

StringSink rendered(Snapshot& snapshot) {
  const std::string_view format = options().report_format;
  StringSink text, json;
  if (format != "json") render_text(snapshot, text);
  if (format == "text") return text;
  snapshot.text = text.text();
  render_json(snapshot, json);
  return json;
}

}  // namespace

String expand_report_path(std::string_view pattern, const PathValues& values) {
  String path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'p') {
      path += decimal(values.pid, 0);
    } else if (next == 'h') {
      path += values.host;
    } else if (next == 'r') {
      path += decimal(values.rank.value_or(0), 0);
    } else if (next == '%') {
      path += '%';
    } else {
      path += pattern[i];
      continue;
    }
    ++i;
  }
  return path;
}

String expanded_path(std::string_view pattern, int pid) {
  const String host = host_name();
  return expand_report_path(pattern, {pid, host, read_ranks(environment_variable).rank});
}

int descriptor_named_by(std::string_view path) {
  if (path == "/dev/stdin") return STDIN_FILENO;
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    int number = -1;
    const char* const end = path.data() + path.size();
    const auto read = std::from_chars(path.data() + folder.size(), end, number);
    if (read.ec == std::errc() && read.ptr == end && number >= 0) return number;
  }
  return -1;
}

void note_report_destination() {
  const String& pattern = options().report;
  if (pattern == "none" || goes_to_standard_error(pattern)) return;
  Uncounted uncounted;
  if (InheritedFile* const file = named_descriptor(pattern)) {
    if (started_by_user() || starters_have_the_same(file->number()))
      file->note();
    else
      file->leave_alone();
    return;
  }
  if (system_calls_are_filtered() || launches_ranks()) return;
  const String path = report_path(pattern, getpid());
  const int refused = refusal_of(path);
  could_be_made = !refused;
  made_by = geteuid();
  if (!refused) set_earlier_report_aside(path);
  if (!refused || !started_by_user()) return;
  refusal_said = true;
  say_not_written(path, refused, "the report will follow here");
}

void hold_report_descriptor() {
  if (named) named->hold();
}

void write_report(Snapshot snapshot) {
  const Options& chosen = options();
  if (chosen.report == "none") return;
  Uncounted uncounted;
  say_deferred_lines();
  const StringSink report = rendered(snapshot);
  say_limited_lines();
  const bool worth_showing = snapshot.used_gpu_memory() || started_by_user();
  if (goes_to_standard_error(chosen.report)) {
    write_to_standard_error(report.text());
  } else if (InheritedFile* const file = named_descriptor(chosen.report)) {
    write_to_descriptor(*file, chosen.report, worth_showing, report.text());
  } else {
    write_to_file(chosen.report, {snapshot.pid, snapshot.used_gpu_memory()}, worth_showing, report.text());
  }
}

void write_outline_of_report(Snapshot snapshot) {
  const String& pattern = options().report;
  if (pattern == "none" || goes_to_standard_error(pattern) || named_descriptor(pattern)) return;
  Uncounted uncounted;
  const String path = report_path(pattern, snapshot.pid);
  struct stat file;
  if (!status_of_file(path.c_str(), file) && (!S_ISREG(file.st_mode) || is_written_to_as_it_is(path, file))) return;
  const StringSink report = rendered(snapshot);
  ReportFile written = write_report_file(path, {snapshot.pid, snapshot.used_gpu_memory()}, report.text());
  if (!written.failure) outline = new (outline_place) Outline{snapshot.pid, std::move(written)};
}

}  // namespace cistern
