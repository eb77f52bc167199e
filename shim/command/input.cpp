// See input.hpp.
#include "shim/command/input.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "stats/formats/read.hpp"
#include "stats/formats/recording.hpp"

namespace cistern::command {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "rbe");
  if (!file) throw BadInput(path + ": " + std::strerror(errno));
  std::string text;
  char part[1 << 16];
  while (const std::size_t bytes = std::fread(part, 1, sizeof part, file)) text.append(part, bytes);
  const bool failed = std::ferror(file);
  const int error = errno;
  std::fclose(file);
  if (failed) throw BadInput(path + ": " + std::strerror(error));
  return text;
}

void add_file(formats::RunReader& reader, const std::string& path) {
  try {
    reader.add(text_of(path));
  } catch (const formats::BadReport& bad) {
    throw BadInput(path + " " + bad.what());
  }
}

void add_folder(formats::RunReader& reader, const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".json") files.push_back(at->path());
  if (error) throw BadInput(folder + ": " + error.message());
  std::ranges::sort(files);
  for (const std::string& file : files) {
    try {
      add_file(reader, file);
    } catch (const BadInput& bad) {
      std::fprintf(stderr, "cistern: left out: %s\n", bad.what());
    }
  }
}

}  // namespace

formats::Run read_reports(const std::vector<std::string>& paths) {
  formats::RunReader reader;
  for (const std::string& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      add_folder(reader, path);
    } else {
      add_file(reader, path);
    }
  }
  if (reader.run().reports.empty()) throw BadInput(paths.front() + ": no JSON report is in this folder");
  return reader.take();
}

bool is_recording(const std::string& path) {
  std::uint8_t begin[sizeof recording::kMagic];
  std::FILE* const file = std::fopen(path.c_str(), "rbe");
  if (!file) return false;
  const std::size_t bytes = std::fread(begin, 1, sizeof begin, file);
  std::fclose(file);
  return formats::Recording::is_one({begin, bytes});
}

}  // namespace cistern::command
