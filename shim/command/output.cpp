// See output.hpp.
#include "shim/command/output.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "shim/command/input.hpp"
#include "stats/formats/summary.hpp"

namespace cistern::command {
namespace {

namespace fs = std::filesystem;

// 0, or the error.
int written(const std::string& path, const std::string& text) {
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  if (!file) return errno;
  const bool complete = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int error = complete ? 0 : errno;
  return std::fclose(file) && complete ? errno : error;
}

}  // namespace

void say(const std::string& line) {
  std::string plain = "cistern: " + line;
  std::ranges::replace(plain, '\n', '?');
  std::fprintf(stderr, "%s\n", formats::plain_lines(plain).c_str());
}

void write_file(const std::string& path, const std::string& text) {
  if (was_read(path)) throw BadInput(path + ": it is a file that was read; name another");
  std::error_code none;
  const fs::path target = fs::weakly_canonical(path, none);  // a link stays one
  const bool leads_nowhere = fs::is_symlink(path, none) && !fs::exists(path, none);
  const bool in_place = leads_nowhere || none || (fs::exists(target, none) && !fs::is_regular_file(target, none));
  const std::string beside = in_place ? path : target.string() + ".part" + std::to_string(getpid());
  int error = written(beside, text);
  if (!error && !in_place && std::rename(beside.c_str(), target.c_str())) error = errno;
  if (!error) return;
  if (!in_place) std::remove(beside.c_str());
  throw BadInput(path + ": " + std::strerror(error));
}

}  // namespace cistern::command
