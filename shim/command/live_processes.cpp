// See live_processes.hpp. Files of other processes may go or change at any time: each step fails alone.
#include "shim/command/live_processes.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "shim/command/input.hpp"
#include "shim/command/output.hpp"
#include "stats/format.hpp"

namespace cistern::command {
namespace {

namespace fs = std::filesystem;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The number behind the last word of the line that begins with `name`: in a process's own pid namespace.
std::string last_word_behind(const std::string& text, const std::string& name) {
  const std::size_t at = text.find("\n" + name);
  if (at == text.npos) return {};
  const std::string line = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
  return line.substr(line.find_last_of(" \t") + 1);
}

// The 22nd field of its line of state, behind the name in parentheses.
std::string start_of(const std::string& stat) {
  std::istringstream fields(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  return field;
}

// "NAMESPACE-PID-START"
std::string page_name(const std::string& proc) {
  char link[64];
  const ssize_t bytes = readlink((proc + "/ns/pid").c_str(), link, sizeof link);
  const std::string_view shown(link, static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));  // "pid:[4026531836]"
  const std::size_t begin = shown.find('['), end = shown.find(']');
  const std::string pid = last_word_behind(contents(proc + "/status"), "NSpid:");
  const std::string start = start_of(contents(proc + "/stat"));
  if (begin == shown.npos || end == shown.npos || pid.empty() || start.empty()) return {};
  return std::string(shown.substr(begin + 1, end - begin - 1)) + "-" + pid + "-" + start;
}

// By name, in the folders "cistern-UID" of a /dev/shm. Another user may have put one of the same name there.
using Pages = std::multimap<std::string, std::string>;
Pages pages_in(const std::string& shared_memory) {
  Pages pages;
  std::error_code error, other;
  for (fs::directory_iterator at(shared_memory, error), end; !error && at != end; at.increment(error)) {
    if (!at->path().filename().native().starts_with("cistern-") || !at->is_directory(other)) continue;
    for (fs::directory_iterator page(at->path(), other), none; !other && page != none; page.increment(other))
      pages.emplace(page->path().filename(), page->path());
  }
  return pages;
}

// The number of the file of this name that the process has mapped; 0: none. A program that this one executed has none.
ino_t number_of_mapped(const std::string& name, const std::string& proc) {
  std::istringstream maps(contents(proc + "/maps"));
  for (std::string line; std::getline(maps, line);) {
    if (!line.ends_with("/" + name)) continue;
    std::istringstream fields(line);
    std::string field;
    ino_t number = 0;
    for (int i = 0; i < 4; ++i) fields >> field;
    fields >> number;
    return number;
  }
  return 0;
}

// Processes of one container have one such folder.
class PagesOfAll {
 public:
  const Pages& of(const std::string& shared_memory) {
    struct stat found {};
    if (stat(shared_memory.c_str(), &found) != 0) return none_;
    const auto [at, is_new] = known_.try_emplace({found.st_dev, found.st_ino});
    if (is_new) at->second = pages_in(shared_memory);
    return at->second;
  }

 private:
  std::map<std::pair<dev_t, ino_t>, Pages> known_;
  const Pages none_{};
};

// The file's owner may cut it while it is mapped here: then the page is empty, and its process does not answer.
void have_empty_pages_for_cut_ones() {
  struct sigaction entry {};
  entry.sa_flags = SA_SIGINFO;
  entry.sa_sigaction = [](int, siginfo_t* info, void*) {
    const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr) & ~std::uintptr_t{LivePage::kBytes - 1};
    const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(reinterpret_cast<void*>(at), LivePage::kBytes, PROT_READ | PROT_WRITE, how, -1, 0) == MAP_FAILED)
      std::_Exit(2);
  };
  sigaction(SIGBUS, &entry, nullptr);
}

// Null: it is no page that this command understands, or not the file with this number.
std::shared_ptr<LivePage> map_page(const std::string& path, ino_t number) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return nullptr;
  struct stat found {};
  const bool is_whole = fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_ino == number &&
                        found.st_size >= static_cast<off_t>(LivePage::kBytes);
  have_empty_pages_for_cut_ones();
  void* const mapped =
      is_whole ? mmap(nullptr, LivePage::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  close(file);
  if (mapped == MAP_FAILED) return nullptr;
  std::shared_ptr<LivePage> page(static_cast<LivePage*>(mapped), [](LivePage* of) { munmap(of, LivePage::kBytes); });
  if (std::memcmp(page->magic, LivePage::kMagic, sizeof page->magic) != 0) return nullptr;
  if (page->version == LivePage::kVersion) return page;
  say(path + " is of another version of Cistern");
  return nullptr;
}

// The script or module that Python runs, by its command line; empty: none.
std::string script_of(const std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with('-')) return fs::path(word).filename();
    const std::size_t at = word.find_first_of("cmWX");  // they have a value, here or in the next word
    if (word.starts_with("--") || at == word.npos) continue;
    const bool is_next = at + 1 == word.size();
    if (word[at] == 'm') return !is_next ? word.substr(at + 1) : i + 1 < words.size() ? words[i + 1] : "";
    if (word[at] == 'c') return {};
    i += is_next;
  }
  return {};
}

// "train", or the script that Python was started with: "train.py". PyTorch gives Python's process another name.
std::string program_of(const std::string& proc) {
  std::string name = contents(proc + "/comm");
  if (name.ends_with('\n')) name.pop_back();
  std::vector<std::string> words;
  std::istringstream command(contents(proc + "/cmdline"));
  for (std::string word; std::getline(command, word, '\0');) words.push_back(word);
  if (!words.empty() && fs::path(words[0]).filename().native().starts_with("python"))
    if (const std::string script = script_of(words); !script.empty()) name = script;
  constexpr std::size_t kBytesMax = 255;
  const String shown = printable(name, kBytesMax);
  return {shown.data(), shown.size()};
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == text.npos;
}

void wait_on(std::atomic<std::uint32_t>& word, std::uint32_t value, std::chrono::nanoseconds time) {
  const timespec limit{static_cast<time_t>(time.count() / 1'000'000'000),
                       static_cast<long>(time.count() % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

std::uint32_t begin_to_ask(const LiveProcess& process, Request request) {
  LivePage& page = *process.memory;
  const std::uint32_t ticket = page.asked[static_cast<int>(request)].fetch_add(1) + 1;
  page.bell.fetch_add(1);
  syscall(SYS_futex, &page.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  return ticket;
}

bool is_gone(const LiveProcess& process) {
  return !fs::path(process.page).native().ends_with(page_name("/proc/" + std::to_string(process.pid)));
}

}  // namespace

std::vector<LiveProcess> live_processes() {
  std::vector<LiveProcess> processes;
  PagesOfAll pages;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const std::string number = at->path().filename(), proc = at->path();
    struct stat owner {};
    if (!is_number(number) || stat(proc.c_str(), &owner) != 0 || (geteuid() && owner.st_uid != geteuid())) continue;
    const std::string name = page_name(proc);
    const fs::path shared_memory = fs::path(proc) / "root/dev/shm";
    const auto [first, last] = pages.of(shared_memory).equal_range(name);
    const ino_t mapped = first == last ? 0 : number_of_mapped(name, proc);
    for (auto page = first; mapped && page != last; ++page) {
      // The folder may have been listed through another process, which may be gone by now.
      const fs::path path = shared_memory / fs::path(page->second).parent_path().filename() / name;
      if (auto memory = map_page(path, mapped))
        processes.push_back({static_cast<pid_t>(std::stol(number)), program_of(proc), path, std::move(memory)});
    }
  }
  std::ranges::sort(processes, {}, &LiveProcess::pid);
  return processes;
}

std::vector<LiveProcess> live_processes_named(const std::string& pid_or_name) {
  std::vector<LiveProcess> all = live_processes();
  std::erase_if(all, [&](const LiveProcess& process) {
    return is_number(pid_or_name) ? std::to_string(process.pid) != pid_or_name : process.program != pid_or_name;
  });
  if (all.empty())
    throw BadInput((is_number(pid_or_name) ? "pid " : "") + pid_or_name +
                   ": no such process of yours can be watched; start it by cistern run, or with CISTERN_LIVE=on");
  return all;
}

LiveProcess live_process_named(const std::string& pid_or_name) {
  const std::vector<LiveProcess> found = live_processes_named(pid_or_name);
  if (found.size() == 1) return found[0];
  std::string pids;
  for (const LiveProcess& process : found) pids.append(" ").append(std::to_string(process.pid));
  throw BadInput(pid_or_name + " is the name of several processes:" + pids);
}

std::vector<std::optional<int>> ask_all(const std::vector<LiveProcess>& processes, Request request, double seconds) {
  using Clock = std::chrono::steady_clock;
  using namespace std::chrono_literals;
  constexpr double kSecondsMax = 1e6;
  const std::chrono::duration<double> patience(seconds < kSecondsMax ? seconds : kSecondsMax);
  const int row = static_cast<int>(request);
  struct Waiting {
    std::size_t process;
    std::uint32_t ticket;
  };
  std::vector<Waiting> waiting;
  for (const LiveProcess& process : processes) waiting.push_back({waiting.size(), begin_to_ask(process, request)});
  std::vector<std::optional<int>> answers(processes.size());
  Clock::time_point last_answer = Clock::now();
  while (!waiting.empty() && Clock::now() - last_answer < patience) {
    std::atomic<std::uint32_t>& awaited = processes[waiting[0].process].memory->answered[row];
    const std::uint32_t at = awaited.load();
    const std::size_t erased = std::erase_if(waiting, [&](const Waiting& one) {
      const LivePage& page = *processes[one.process].memory;
      if (static_cast<std::int32_t>(page.answered[row].load() - one.ticket) < 0) return false;
      answers[one.process] = page.failures[row].load();
      return true;
    });
    if (erased) {
      last_answer = Clock::now();
    } else if (is_gone(processes[waiting[0].process])) {
      waiting.erase(waiting.begin());
    } else {
      const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(last_answer + patience - Clock::now());
      wait_on(awaited, at, std::clamp<std::chrono::nanoseconds>(left, 0ns, waiting.size() > 1 ? 20ms : 200ms));
    }
  }
  return answers;
}

std::optional<int> ask(const LiveProcess& process, Request request, double seconds) {
  return ask_all({process}, request, seconds)[0];
}

// Nothing that the process's user may have put there keeps this process waiting.
std::string text_of_answer(const LiveProcess& process, Request request) {
  const std::string path = process.page + ending_of_report(request);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) throw BadInput(path + ": " + std::strerror(errno));
  struct stat found {};
  std::string text;
  if (fstat(file, &found) == 0 && S_ISREG(found.st_mode)) text.resize(static_cast<std::size_t>(found.st_size));
  std::size_t read_bytes = 0;
  for (ssize_t bytes; read_bytes < text.size(); read_bytes += static_cast<std::size_t>(bytes))
    if ((bytes = read(file, text.data() + read_bytes, text.size() - read_bytes)) <= 0) break;
  close(file);
  text.resize(read_bytes);
  return text;
}

void say_not_answered(const LiveProcess& process, double seconds) {
  std::ostringstream line;
  line << process.shown();
  if (is_gone(process))
    line << " has ended";
  else if (process.answers_while_idle())
    line << " did not answer in " << seconds << " s: its memory may be held up by a long call";
  else
    line << " did not answer in " << seconds
         << " s: it answers at its next call for a GPU; with CISTERN_LIVE=thread it answers while it is idle, too";
  say(line.str());
}

}  // namespace cistern::command
