// Fuzzer of the options: the first byte chooses one, the rest is its value. Whatever that is: it is taken without a
// word, or refused in one line that a terminal can show; by the environment and by call alike; and a limit of device
// memory is never lost.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "shim/process/options.hpp"

namespace {

using namespace cistern;

constexpr const char* kNames[] = {
#define OPTION(type, name, variable, default_text, accepts, help) #variable,
#include "shim/options.def"
};
constexpr std::size_t kLineMax = 300;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "options_fuzz: %s\n", what);
  std::abort();
}

// What getenv answers, and what was said.
std::string the_name, the_value;
int lines_said = 0;

const char* answer(const char* name) { return the_name == name ? the_value.c_str() : nullptr; }

void complain(std::string_view line) {
  ++lines_said;
  require(line.starts_with(the_name + ": '"), "a line names its option");
  require(line.size() < kLineMax, "a line is bounded");
  for (const char c : line) require(static_cast<unsigned char>(c) >= ' ' && c != '\x7f', "a line is printable");
}

int lines_of(auto call) {
  lines_said = 0;
  call();
  return lines_said;
}

void check_limit(const DeviceLimit& limit) {
  if (limit) return require(limit.of(1 << 20) > 0, "a limit is one of every device");
  require(!the_value.empty(), "an empty limit is none");
  for (const char c : the_value) require(c < '1' || c > '9', "only 0 means that there is no limit");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  if (!bytes) return 0;
  the_name = kNames[data[0] % std::size(kNames)];
  if (the_name == "CISTERN") return 0;  // asked before there are options
  the_value.assign(reinterpret_cast<const char*>(data) + 1, bytes - 1);
  the_value.resize(the_value.find('\0') == the_value.npos ? the_value.size() : the_value.find('\0'));
  std::string entry = the_name + "=" + the_value;
  char* environment[] = {entry.data(), nullptr};

  Options options;
  const int said = lines_of([&] { options = read_options(answer, environment, complain); });
  require(said <= 1, "one line at most");
  if (the_name == "CISTERN_DEVICE_LIMIT") check_limit(options.device_limit);
  if (the_name == "CISTERN_FAIL_ON") require(said == 0 || options.has_gate(), "a wrong gate is shut");

  std::optional<Options> changed;
  const int said_by_call = lines_of([&] { changed = with_option(options, the_name, the_value.c_str(), complain); });
  require(said_by_call == (changed ? 0 : 1), "a refusal is one line");
  require(said == said_by_call || the_value.empty(), "by call as from the environment");
  return 0;
}
