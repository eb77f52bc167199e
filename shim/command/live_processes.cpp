// See live_processes.hpp. Files of other processes may go or change at any time: each step fails alone.
#include "shim/command/live_processes.hpp"

#include <fcntl.h>
#include <linux/futex.h>
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
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "shim/command/input.hpp"
#include "shim/command/output.hpp"

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

// By name, in the folders "cistern-UID" of a /dev/shm.
using Pages = std::map<std::string, std::string>;
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
  const Pages none_;
};

// Null: it is no page that this command understands.
std::shared_ptr<LivePage> map_page(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return nullptr;
  struct stat found {};
  const bool is_whole =
      fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_size >= static_cast<off_t>(LivePage::kBytes);
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

// "train", or the script that an interpreter was started with: "train.py".
std::string program_of(const std::string& proc) {
  std::string name = contents(proc + "/comm");
  if (name.ends_with('\n')) name.pop_back();
  const std::string command = contents(proc + "/cmdline");
  const std::size_t first = command.find('\0') + 1;
  if (!name.starts_with("python") || !first || first == command.size() || command[first] == '-') return name;
  return fs::path(command.c_str() + first).filename();
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == text.npos;
}

void wait_on(std::atomic<std::uint32_t>& word, std::uint32_t value, std::chrono::nanoseconds time) {
  const timespec limit{static_cast<time_t>(time.count() / 1'000'000'000),
                       static_cast<long>(time.count() % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
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
    const std::string shared_memory = proc + "/root/dev/shm", name = page_name(proc);
    const Pages& there = pages.of(shared_memory);
    const auto page = there.find(name);
    // A program that this one executed has the same number, and perhaps no page.
    if (page == there.end() || contents(proc + "/maps").find("/" + name + "\n") == std::string::npos) continue;
    // The folder may have been listed through another process, which may be gone by now.
    const std::string path =
        shared_memory + "/" + fs::path(page->second).parent_path().filename().native() + "/" + name;
    if (auto memory = map_page(path))
      processes.push_back({static_cast<pid_t>(std::stol(number)), program_of(proc), path, std::move(memory)});
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
  for (const LiveProcess& process : found) pids += " " + std::to_string(process.pid);
  throw BadInput(pid_or_name + " is the name of several processes:" + pids);
}

std::uint32_t begin_to_ask(const LiveProcess& process, Request request) {
  LivePage& page = *process.memory;
  const std::uint32_t ticket = page.asked[static_cast<int>(request)].fetch_add(1) + 1;
  page.bell.fetch_add(1);
  syscall(SYS_futex, &page.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  return ticket;
}

std::optional<int> wait_for_answer(const LiveProcess& process, Request request, std::uint32_t ticket, double seconds) {
  using Clock = std::chrono::steady_clock;
  using namespace std::chrono_literals;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  LivePage& page = *process.memory;
  std::atomic<std::uint32_t>& answered = page.answered[static_cast<int>(request)];
  for (;;) {
    const std::uint32_t at = answered.load();
    if (static_cast<std::int32_t>(at - ticket) >= 0) return page.failures[static_cast<int>(request)].load();
    const auto left = end - Clock::now();
    if (left <= 0ns || is_gone(process)) return std::nullopt;
    wait_on(answered, at, std::min<std::chrono::nanoseconds>(left, 200ms));
  }
}

std::optional<int> ask(const LiveProcess& process, Request request, double seconds) {
  return wait_for_answer(process, request, begin_to_ask(process, request), seconds);
}

std::string text_of_answer(const LiveProcess& process, Request request) {
  return text_of(process.page + (request == Request::snapshot ? ".judged.json" : ".json"));
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
