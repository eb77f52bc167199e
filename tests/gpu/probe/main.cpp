// The probe's command line: `--list` names every case with its rules, `CASE [argument...]` runs one of them.
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

#include "probe.hpp"

namespace probe {
namespace {

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

std::vector<std::string>& mutable_arguments() {
  static std::vector<std::string> all;
  return all;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (unsigned char character : text) {
    if (character == '"' || character == '\\') {
      result += '\\';
      result += static_cast<char>(character);
    } else {
      result += character < 32 || character > 126 ? '?' : static_cast<char>(character);
    }
  }
  return result + "\"";
}

void print_line(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void list() {
  for (const Case& one : cases()) {
    std::string rules;
    for (const Rule& rule : one.rules) {
      rules += (rules.empty() ? "" : ", ");
      rules += "{\"rule\": " + quoted(rule.name) + ", \"assumed\": " + quoted(rule.assumed) + "}";
    }
    print_line("{\"case\": " + quoted(one.name) + ", \"what\": " + quoted(one.what) +
               ", \"seconds\": " + std::to_string(one.seconds) + ", \"rules\": [" + rules + "]}");
  }
}

}  // namespace

Registration::Registration(Case registered) { cases().push_back(std::move(registered)); }

void answer(const std::string& rule, const std::string& measured) {
  print_line("{\"rule\": " + quoted(rule) + ", \"measured\": " + quoted(measured) + "}");
}

void answer_of_child(const std::string& rule, std::string (*measure)()) {
  const pid_t child = fork();
  if (child == 0) {
    answer(rule, measure());
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) answer(rule, "crashes");
}

void detail(const std::string& topic, const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string line = "{\"detail\": " + quoted(topic);
  for (const auto& [name, value] : fields) line += ", " + quoted(name) + ": " + quoted(value);
  print_line(line + "}");
}

void cost(const std::string& call, size_t bytes, std::vector<uint64_t> nanoseconds) {
  if (nanoseconds.empty()) return;
  std::sort(nanoseconds.begin(), nanoseconds.end());
  print_line("{\"cost\": " + quoted(call) + ", \"bytes\": " + std::to_string(bytes) + ", \"samples\": " +
             std::to_string(nanoseconds.size()) + ", \"min_ns\": " + std::to_string(nanoseconds.front()) +
             ", \"median_ns\": " + std::to_string(nanoseconds[nanoseconds.size() / 2]) + "}");
}

std::string code_name(int code) {
  static const std::map<int, const char*> names = {
      {0, "ok"},
      {1, "invalid_value"},
      {2, "out_of_memory"},
      {3, "not_initialized"},
      {4, "deinitialized"},
      {100, "no_device"},
      {101, "invalid_device"},
      {200, "invalid_image"},
      {201, "invalid_context"},
      {208, "already_mapped"},
      {400, "invalid_handle"},
      {401, "illegal_state"},
      {500, "not_found"},
      {600, "not_ready"},
      {700, "illegal_address"},
      {704, "peer_already_enabled"},
      {708, "primary_context_active"},
      {709, "context_is_destroyed"},
      {712, "already_registered"},
      {713, "not_registered"},
      {719, "launch_failed"},
      {800, "not_permitted"},
      {801, "not_supported"},
      {900, "capture_unsupported"},
      {901, "capture_invalidated"},
      {902, "capture_merge"},
      {903, "capture_unmatched"},
      {904, "capture_unjoined"},
      {905, "capture_isolation"},
      {906, "capture_implicit"},
      {907, "captured_event"},
      {908, "capture_wrong_thread"},
      {999, "unknown_error"},
  };
  const auto found = names.find(code);
  return found == names.end() ? std::to_string(code) : found->second;
}

uint64_t now_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void sleep_milliseconds(int milliseconds) {
  timespec left{milliseconds / 1000, (milliseconds % 1000) * 1'000'000L};
  while (nanosleep(&left, &left) != 0) {
  }
}

std::string own_folder() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  const std::string whole(path, length > 0 ? static_cast<size_t>(length) : 0);
  return whole.substr(0, whole.rfind('/'));
}

const std::vector<std::string>& arguments() { return mutable_arguments(); }

}  // namespace probe

int main(int count, char** values) {
  if (count >= 2 && std::strcmp(values[1], "--list") == 0) {
    probe::list();
    return 0;
  }
  for (const probe::Case& one : probe::cases()) {
    if (count >= 2 && std::strcmp(values[1], one.name) == 0) {
      probe::mutable_arguments().assign(values + 2, values + count);
      one.run();
      return 0;
    }
  }
  std::fprintf(stderr, "usage: %s --list | CASE [argument...]\n", values[0]);
  return 2;
}
