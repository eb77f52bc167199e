// See input.hpp.
#include "shim/command/input.hpp"
#include "shim/command/output.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>

#include "stats/formats/read.hpp"
#include "stats/formats/recording.hpp"

namespace cistern::command {
namespace {

namespace fs = std::filesystem;

std::set<std::pair<dev_t, ino_t>> files_read;

void add_file(formats::RunReader& reader, const std::string& path) {
  try {
    reader.add(text_of(path));
  } catch (const formats::BadReport& bad) {
    throw BadInput(path + " " + bad.what());
  }
}

std::vector<std::string> files_of_folder(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (std::error_code other; at->path().extension() == ".json" && at->is_regular_file(other))
      files.push_back(at->path());
  if (error) throw BadInput(folder + ": " + error.message());
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::string text_of(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "rbe");
  if (!file) throw BadInput(path + ": " + std::strerror(errno));
  struct stat status {};
  fstat(fileno(file), &status);
  if (S_ISCHR(status.st_mode) || S_ISDIR(status.st_mode)) {
    std::fclose(file);
    throw BadInput(path + ": it is neither a file nor a pipe");
  }
  files_read.emplace(status.st_dev, status.st_ino);
  std::string text;
  char part[1 << 16];
  while (const std::size_t bytes = std::fread(part, 1, sizeof part, file)) text.append(part, bytes);
  const bool failed = std::ferror(file);
  const int error = errno;
  std::fclose(file);
  if (failed) throw BadInput(path + ": " + std::strerror(error));
  return text;
}

bool was_read(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && files_read.contains({status.st_dev, status.st_ino});
}

void for_each_report(const std::vector<std::string>& paths, const std::function<void(const std::string&)>& use) {
  bool any = false;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      use(path);
      any = true;
      continue;
    }
    for (const std::string& file : files_of_folder(path)) {
      try {
        use(file);
        any = true;
      } catch (const BadInput& bad) {
        say("left out: " + bad.line);
      }
    }
  }
  if (!any) throw BadInput(paths.front() + ": no JSON report is in this folder");
}

formats::Run read_reports(const std::vector<std::string>& paths) {
  formats::RunReader reader;
  for_each_report(paths, [&](const std::string& file) { add_file(reader, file); });
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
