// See input.hpp.
#include "shim/command/input.hpp"
#include "shim/command/output.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>

#include "shim/process/file_names.hpp"
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

// The names of the recordings of a process with this report, and of the programs that it executed before or after: all
// have its number.
void add_recordings_of(const std::string& report, std::set<std::string>& names) {
  const std::string name = fs::path(report).stem();
  std::size_t number = name.size();
  while (number > 0 && std::isdigit(static_cast<unsigned char>(name[number - 1]))) --number;
  int pid = 0;
  std::from_chars(name.data() + number, name.data() + name.size(), pid);
  for (int nth = 0; nth < (pid ? kNamesOfRecording : 1); ++nth)
    names.emplace(name_of_recording(name + ".rec", pid, nth));
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
  std::set<std::string> reported;
  if (!recordings.empty())
    for (const std::string& report : files) add_recordings_of(report, reported);
  for (const std::string& file : recordings)
    if (!reported.contains(fs::path(file).filename())) files.push_back(file);
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
