// See output.hpp. An existing file is never written to, whoever made it: other processes of the same program
// have the same CISTERN_REPORT, and put their pid into the name. Pipes and devices are not files: they are written to
// as they are.
#include "shim/process/output.hpp"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/process/environment.hpp"
#include "shim/process/log.hpp"
#include "shim/process/process.hpp"
#include "shim/process/standard_error.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/format.hpp"
#include "stats/report/report.hpp"

namespace cistern {
namespace {

constexpr int kAttempts = 10'000;

struct Opened {
  int descriptor = -1;
  int failure = 0;  // errno when there is no descriptor
  String path;
};

int open_new(const String& path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0666);
}

// -1 where `path` is a file, a link or anything else that a report could destroy.
int open_pipe_or_device(const String& path) {
  struct stat file;
  if (lstat(path.c_str(), &file) != 0 || !(S_ISCHR(file.st_mode) || S_ISFIFO(file.st_mode))) return -1;
  return open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY);
}

const char* what_exists_at(const String& path) {
  struct stat file;
  return lstat(path.c_str(), &file) == 0 && S_ISLNK(file.st_mode) ? "is a symbolic link" : "exists";
}

// The process that the user started says where else its report went; of others nobody asks.
Opened open_beside(const String& path, int pid) {
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    String free_path = path_with_pid(path, pid, attempt);
    const int descriptor = open_new(free_path);
    if (descriptor == -1 && errno == EEXIST) continue;
    if (descriptor == -1) return {-1, errno, std::move(free_path)};
    if (!started_by_user()) return {descriptor, 0, std::move(free_path)};
    String line = path;
    line.append(" ").append(what_exists_at(path)).append("; the report is in ").append(free_path);
    warn_line(line);
    return {descriptor, 0, std::move(free_path)};
  }
  return {-1, EEXIST, path};
}

Opened open_report(const String& path, int pid) {
  if (!started_by_user()) {
    const int device = open_pipe_or_device(path);
    return device == -1 ? open_beside(path, pid) : Opened{device, 0, path};
  }
  int descriptor = open_new(path);
  if (descriptor == -1 && errno == EEXIST) {
    descriptor = open_pipe_or_device(path);
    if (descriptor == -1) return open_beside(path, pid);
  }
  if (descriptor == -1) return {-1, errno, path};
  return {descriptor, 0, path};
}

void write_to_standard_error(std::string_view text) {
  const int descriptor = standard_error();
  if (descriptor != -1) write_whole(descriptor, text);
}

// What cannot be stored where it was asked for is shown, so that nothing is lost; but not that of a process on the way,
// which the user did not start and which used no GPU memory: it may have given up the right to write there.
void write_to_file(const String& pattern, int pid, bool worth_showing, std::string_view text) {
  const String host = host_name();
  const String path =
      from_start_directory(expand_report_path(pattern, {pid, host, read_ranks(environment_variable).rank}));
  Opened report = open_report(path, pid);
  if (report.descriptor != -1) {
    report.failure = write_whole(report.descriptor, text);
    if (close(report.descriptor) != 0 && report.failure == 0) report.failure = errno;
  }
  if (report.failure == 0) return;
  char reason[128];
  warn_line("cannot write the report to " + report.path + ": " + strerror_r(report.failure, reason, sizeof reason) +
            (worth_showing ? "; it follows here" : "; no GPU memory was used"));
  if (worth_showing) write_to_standard_error(text);
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

String path_with_pid(std::string_view path, int pid, int attempt) {
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == path.npos ? 0 : slash + 1;
  const std::size_t dot = path.rfind('.');
  const std::size_t end = dot == path.npos || dot <= name ? path.size() : dot;
  String result(path.substr(0, end));
  result += "." + decimal(pid, 0);
  if (attempt > 1) result += "-" + decimal(attempt, 0);
  return result += path.substr(end);
}

void write_report(const Snapshot& snapshot) {
  const Options& chosen = options();
  if (chosen.report == "none") return;
  Uncounted uncounted;
  say_deferred_lines();
  StringSink report;
  if (chosen.report_format == "json") {
    render_json(snapshot, report);
  } else {
    render_text(snapshot, report);
  }
  say_limited_lines();
  if (chosen.report.empty() || chosen.report == "stderr" || chosen.report == "/dev/stderr") {
    write_to_standard_error(report.text());
  } else {
    write_to_file(chosen.report, snapshot.pid, snapshot.used_gpu_memory() || started_by_user(), report.text());
  }
}

}  // namespace cistern
