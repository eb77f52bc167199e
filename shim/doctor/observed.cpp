// See observed.hpp. Three witnesses, which neither delay nor trace the program. Each process that has the preload
// leaves a report. The loader writes where each library's calls go (LD_DEBUG=scopes shows RTLD_DEEPBIND). From time to
// time the doctor looks in /proc for processes that have neither.
#include "shim/doctor/observed.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <optional>

#include "pool/base/path.hpp"
#include "pool/base/system_call.hpp"
#include "shim/doctor/elf_file.hpp"
#include "shim/doctor/environment.hpp"
#include "shim/doctor/json.hpp"
#include "shim/process/environment.hpp"
#include "stats/format.hpp"

namespace cistern::doctor {
namespace {

constexpr std::string_view kObject = "libcistern.so";
constexpr int kNamedMax = 8;
constexpr std::size_t kCommandMax = 400;  // a longer one ends in "..."
constexpr long kFirstWaitNs = 2'000'000, kLongestWaitNs = 100'000'000;
// A process that has just begun to run a program has nothing loaded yet.
constexpr int kLooksMin = 3;

std::uintptr_t word(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

struct Seen {
  long process;
  String program;
  bool preloaded, asked_for;  // by its environment
  int looks_without;
};

class Watch {
 public:
  void look(long process) {
    const String of_process = "/proc/" + number(process);
    const String maps = text_of(of_process + "/maps");
    if (maps.empty()) return;  // it has ended
    const String program = link_target(of_process + "/exe");
    const bool preloaded = maps.find(kObject) != maps.npos;
    Seen& seen = entry(process);
    if (seen.program != program) seen = {process, program, false, false, 0};
    seen.preloaded = preloaded;
    seen.looks_without += preloaded ? 0 : 1;
    seen.asked_for = text_of(of_process + "/environ").find("LD_PRELOAD=") != String::npos;
    const String tasks = of_process + "/task/";
    for (const String& thread : names_in(tasks)) {
      String children = tasks;
      children.append(thread).append("/children");
      for_each_part(text_of(children), " ", [this](std::string_view child) {
        long number = 0;
        for (const char digit : child) number = number * 10 + (digit - '0');
        look(number);
      });
    }
  }
  const Vector<Seen>& all() const { return all_; }

 private:
  Seen& entry(long process) {
    for (Seen& seen : all_)
      if (seen.process == process) return seen;
    return all_.emplace_back(Seen{process, {}, false, false, 0});
  }
  Vector<Seen> all_;
};

// Its status, as of wait.
int watch_to_its_end(long child, Watch& watch) {
  int status = 0;
  for (long wait_ns = kFirstWaitNs;; wait_ns = std::min(wait_ns + wait_ns / 4, kLongestWaitNs)) {
    const long ended = system_call(SYS_wait4, static_cast<std::uintptr_t>(child), word(&status), WNOHANG, 0);
    if (ended != 0 && ended != -EINTR) return status;
    watch.look(child);
    const timespec pause{0, wait_ns};
    system_call(SYS_nanosleep, word(&pause), 0);
  }
}

// The loader's lines about one process: a block for each program that it executed, then the bindings of each opened
// library.
struct Scopes {
  int programs = 0, with_preload = 0;
  Vector<String> bound_to_themselves;
};

bool is_symbolic(const String& library) {
  const MappedFile contents(library);
  return ElfFile(contents.bytes()).is_symbolic();
}

Scopes read_scopes(const String& text) {
  constexpr std::string_view kBegin = "Initial object scopes", kLibrary = "object=", kScope = " scope ";
  Scopes scopes;
  String program, library;
  char deciding = '0';  // the scope that tells: the first, or behind what -Bsymbolic puts before it
  bool is_first = false;
  for_each_part(text, "\n", [&](std::string_view line) {
    line.remove_prefix(std::min(line.find('\t') + 1, line.size()));
    if (line == kBegin) {
      is_first = true;
    } else if (line.starts_with(kLibrary)) {
      const std::size_t end = line.rfind(" [0]");
      library = end == line.npos ? "" : line.substr(kLibrary.size(), end - kLibrary.size());
      deciding = '0';
      if (is_first) program = library;
    } else if (line.starts_with(kScope) && line.size() > kScope.size() + 3 && line[kScope.size()] == deciding) {
      const String names(line.substr(kScope.size() + 3));
      if (is_first) ++scopes.programs;
      if (is_first && names.find(kObject) != names.npos) ++scopes.with_preload;
      is_first = false;
      if (deciding == '0' && names == library && is_symbolic(library)) {
        deciding = '1';
        return;
      }
      auto& found = scopes.bound_to_themselves;
      if (!library.empty() && !(names + " ").starts_with(program + " ") &&
          std::find(found.begin(), found.end(), library) == found.end())
        found.push_back(library);
    }
  });
  return scopes;
}

// The report of a process about itself.
struct Report {
  String command, allocations;  // "host 12, opencl 3"
};

// Nothing: the text is not a report, or it was not written to its end.
std::optional<Report> read_report(const String& text) {
  const std::optional<Json> json = Json::parse(text);
  if (!json) return {};
  Report report{printable((*json)["cistern"]["command"].string().value_or(""), kCommandMax), {}};
  (*json)["kinds"].for_each_member([&](const String& kind, Json figures) {
    const std::optional<std::uint64_t> count = figures["allocations"].count();
    if (!count) return;
    if (!report.allocations.empty()) report.allocations += ", ";
    report.allocations.append(printable(kind)).append(" ").append(number(static_cast<std::int64_t>(*count)));
  });
  return report;
}

// A folder for what the witnesses write, gone with this.
class Folder {
 public:
  explicit Folder(std::string_view parent)
      : path_(String(parent) + "/cistern-doctor-" + number(this_process())),
        error_(static_cast<int>(-system_call(SYS_mkdirat, kHere, word(path_.c_str()), 0700))) {}
  ~Folder() {
    if (error_ != 0) return;
    for (const String& name : names_in(path_)) system_call(SYS_unlinkat, kHere, word((path_ + "/" + name).c_str()), 0);
    system_call(SYS_unlinkat, kHere, word(path_.c_str()), AT_REMOVEDIR);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  int error() const { return error_; }
  const String& path() const { return path_; }
  String text(const String& name) const { return text_of(path_ + "/" + name); }

 private:
  static constexpr auto kHere = static_cast<std::uintptr_t>(AT_FDCWD);
  String path_;
  int error_;
};

void tell_library_bound_to_itself(const String& library, Findings& findings) {
  constexpr char kGpu[][12] = {"libcuda", "libcudart", "libOpenCL"};
  for (const char* name : kGpu)
    if (basename_of(library).starts_with(name)) {
      findings.problem(library +
                       " was opened with RTLD_DEEPBIND: its calls bypass Cistern; set CISTERN_DEEPBIND=clear");
      return;
    }
  findings.note(library +
                " was opened with RTLD_DEEPBIND: if it looks up GPU functions itself, set "
                "CISTERN_DEEPBIND=clear");
}

void tell_why_there_is_no_report(const String& name, int status, bool had_preload, Way way, Findings& findings) {
  if (WIFSIGNALED(status))
    findings.note(name + " was ended by signal " + number(WTERMSIG(status)) + ", so there is no report");
  if (way == Way::layer)
    findings.note(name + " left no report: it allocated no OpenCL memory, or did not load the layer");
  else if (!had_preload)
    findings.problem(name + " ran without the preload");
  else if (!WIFSIGNALED(status))
    findings.problem(name +
                     " started with the preload and ended without it: it executed another program with an environment "
                     "of its own, or filters system calls");
}

void tell_of_started(long child, const Start& start, int status, Way way, const Folder& folder, Findings& findings) {
  const String text = folder.text(number(child) + ".json");
  const std::optional<Report> report = read_report(text);
  const Scopes scopes = read_scopes(folder.text("ld." + number(child)));
  const String name = "process " + number(child);
  for (const String& library : scopes.bound_to_themselves) tell_library_bound_to_itself(library, findings);
  const String what = way == Way::layer ? "layer" : "preload";
  if (report)
    findings.ok(name + " (" + report->command + ") had the " + what +
                " to its end; allocations: " + report->allocations);
  else if (!text.empty())
    findings.note(name + " had the " + what + "; its report is incomplete");
  else if (scopes.with_preload && launches_ranks(basename_of(start.file)))
    findings.note(name + " had the preload; as a launcher of other processes it writes no report");
  else
    tell_why_there_is_no_report(name, status, scopes.with_preload, way, findings);
}

void tell_of_other(const String& process, const std::optional<Report>& report, const String& what, Findings& findings) {
  const String name = "process " + process;
  if (report)
    findings.ok(name + " (" + report->command + ") had the " + what + " too; allocations: " + report->allocations);
  else
    findings.note(name + " had the " + what + " too; its report is incomplete");
}

void tell_of_others(long child, Way way, const Folder& folder, const Watch& watch, Findings& findings) {
  const String what = way == Way::layer ? "layer" : "preload";
  int named = 0, more = 0;
  for (const String& file : names_in(folder.path())) {
    if (!file.ends_with(".json") || file == number(child) + ".json") continue;
    if (++named > kNamedMax)
      ++more;
    else
      tell_of_other(file.substr(0, file.find('.')), read_report(folder.text(file)), what, findings);
  }
  if (more) findings.ok(number(more) + " further processes had the " + what);
  if (way == Way::layer) return;
  for (const Seen& seen : watch.all()) {
    const String process = number(seen.process);
    if (seen.preloaded || seen.looks_without < kLooksMin || seen.program.empty()) continue;
    if (!folder.text(process + ".json").empty()) continue;
    findings.problem("process " + process + " (" + seen.program + ") ran without the preload, " +
                     (seen.asked_for ? "although LD_PRELOAD was in its environment"
                                     : "because LD_PRELOAD was not in its environment"));
  }
}

}  // namespace

void observe(const Start& start, Way way, Findings& findings) {
  Environment environment(nullptr);
  for (const String& entry : start.environment) environment.set(entry);
  const Folder folder(environment.has("TMPDIR") ? environment.get("TMPDIR") : "/tmp");
  if (folder.error() != 0) {
    findings.problem("not run: " + folder.path() + " cannot be created: " + error_text(folder.error()));
    return;
  }
  environment.set("CISTERN_REPORT=" + folder.path() + "/%p.json");
  environment.set("CISTERN_REPORT_FORMAT=json");
  environment.set("LD_DEBUG=scopes");
  environment.set("LD_DEBUG_OUTPUT=" + folder.path() + "/ld");
  const long child = start_child({start.file, start.arguments, environment.entries()});
  if (child < 0) {
    findings.problem("not run: " + error_text(static_cast<int>(-child)));
    return;
  }
  Watch watch;
  const int status = watch_to_its_end(child, watch);
  if (WIFEXITED(status)) findings.note("it ran, and ended with exit code " + number(WEXITSTATUS(status)));
  tell_of_started(child, start, status, way, folder, findings);
  tell_of_others(child, way, folder, watch, findings);
}

}  // namespace cistern::doctor
