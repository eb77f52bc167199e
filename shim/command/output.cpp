// See output.hpp.
#include "shim/command/output.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "shim/command/input.hpp"

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
  for (char& c : plain)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  std::fprintf(stderr, "%s\n", plain.c_str());
}

void write_file(const std::string& path, const std::string& text) {
  std::error_code none;
  const fs::path target = fs::weakly_canonical(path, none);  // a link stays one
  const bool in_place = none || (fs::exists(target, none) && !fs::is_regular_file(target, none));
  const std::string beside = in_place ? path : target.string() + ".part" + std::to_string(getpid());
  int error = written(beside, text);
  if (!error && !in_place && std::rename(beside.c_str(), target.c_str())) error = errno;
  if (!error) return;
  if (!in_place) std::remove(beside.c_str());
  throw BadInput(path + ": " + std::strerror(error));
}

}  // namespace cistern::command
