// See output.hpp.
#include "shim/command/output.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "shim/command/input.hpp"
#include "stats/formats/summary.hpp"

namespace cistern::command {
namespace {

namespace fs = std::filesystem;

// 0, or the error.
int written(const std::string& path, const std::function<void(const Write&)>& produce) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wbe"), std::fclose);
  if (!file) return errno;
  int error = 0;
  produce([&](std::string_view part) {
    if (!error && std::fwrite(part.data(), 1, part.size(), file.get()) != part.size()) error = errno;
  });
  return std::fflush(file.get()) && !error ? errno : error;
}

}  // namespace

void say(const std::string& line) {
  std::string plain = "cistern: " + line;
  std::ranges::replace(plain, '\n', '?');
  std::fprintf(stderr, "%s\n", formats::plain_lines(plain).c_str());
}

void write_file(const std::string& path, const std::string& text) {
  write_file(path, [&](const Write& write) { write(text); });
}

void write_file(const std::string& path, const std::function<void(const Write&)>& produce) {
  std::error_code unknown, none;  // a file that is not there yet is an error of some of these
  const fs::path target = fs::weakly_canonical(path, unknown);  // a link stays one
  const bool leads_nowhere = fs::is_symlink(path, none) && !fs::exists(path, none);
  const bool in_place = leads_nowhere || unknown || (fs::exists(target, none) && !fs::is_regular_file(target, none));
  const std::string beside = in_place ? path : target.string() + ".part" + std::to_string(getpid());
  const auto remove = [&] {
    if (!in_place) std::remove(beside.c_str());
  };
  int error = 0;
  try {
    error = written(beside, produce);
    if (was_read(path)) throw BadInput(path + ": it is a file that was read; name another");
  } catch (...) {
    remove();
    throw;
  }
  if (!error && !in_place && std::rename(beside.c_str(), target.c_str())) error = errno;
  if (!error) return;
  remove();
  throw BadInput(path + ": " + std::strerror(error));
}

}  // namespace cistern::command
