// See input.hpp.
#include "shim/command/input.hpp"
#include "shim/command/output.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>

#include "stats/formats/read.hpp"
#include "stats/formats/recorded_run.hpp"
#include "stats/formats/recording.hpp"

namespace cistern::command {
namespace {

namespace fs = std::filesystem;

std::set<std::pair<dev_t, ino_t>> files_read;

void add_file(formats::RunReader& reader, const std::string& path) {
  if (is_recording(path))
    return with_recording(
        path, [&](const formats::Recording& recording) { reader.add(formats::report_of(recording, reader)); });
  try {
    reader.add(text_of(path));
  } catch (const formats::BadReport& bad) {
    throw BadInput(path + " " + bad.what());
  }
}

// A process names both of its files alike, and "4711.4711.rec" is a program that a recorded process 4711 executed.
bool has_report(const fs::path& recording, const std::set<std::string>& reports) {
  const std::string name = recording.stem();
  if (reports.contains(name)) return true;
  const std::size_t dot = name.rfind('.');
  const std::string first = name.substr(0, dot);
  return dot != name.npos && first.ends_with(name.substr(dot + 1)) && reports.contains(first);
}

std::vector<std::string> files_of_folder(const std::string& folder) {
  std::vector<std::string> files, recordings;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code other;
    if (!at->is_regular_file(other)) continue;
    if (at->path().extension() == ".json") files.push_back(at->path());
    if (at->path().extension() == ".rec") recordings.push_back(at->path());
  }
  if (error) throw BadInput(folder + ": " + error.message());
  std::set<std::string> reports;
  for (const std::string& file : files) reports.insert(fs::path(file).stem());
  for (const std::string& file : recordings)
    if (!has_report(file, reports)) files.push_back(file);
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
  if (!any) throw BadInput(paths.front() + ": neither a JSON report nor a recording is in this folder");
}

formats::Run read_reports(const std::vector<std::string>& paths) {
  formats::RunReader reader;
  for_each_report(paths, [&](const std::string& file) { add_file(reader, file); });
  return reader.take();
}

bool is_recording(const std::string& path) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return false;  // a pipe would lose what is read from it
  std::uint8_t begin[sizeof recording::kMagic];
  std::FILE* const file = std::fopen(path.c_str(), "rbe");
  if (!file) return false;
  const std::size_t bytes = std::fread(begin, 1, sizeof begin, file);
  std::fclose(file);
  return formats::Recording::is_one({begin, bytes});
}

void with_recording(const std::string& path, const std::function<void(const formats::Recording&)>& use) {
  if (struct stat status{}; stat(path.c_str(), &status) == 0) files_read.emplace(status.st_dev, status.st_ino);
  try {
    const formats::RecordingFile file(path);
    use(formats::Recording(file.bytes()));
  } catch (const formats::BadReport& bad) {
    throw BadInput(path + " " + bad.what());
  } catch (const std::system_error& error) {
    throw BadInput(path + ": " + error.code().message());
  }
}

}  // namespace cistern::command
