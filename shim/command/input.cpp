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

// Where the recordings of a process with this report would be, and those of the programs that it executed: all have its
// number.
std::vector<std::string> recordings_of(const std::string& report) {
  const std::string path = fs::path(report).replace_extension(".rec");
  const std::string name = fs::path(report).stem();
  std::size_t number = name.size();
  while (number > 0 && std::isdigit(static_cast<unsigned char>(name[number - 1]))) --number;
  int pid = 0;
  std::from_chars(name.data() + number, name.data() + name.size(), pid);
  std::vector<std::string> paths;
  for (int nth = 0; nth < (pid ? kNamesOfRecording : 1); ++nth) paths.emplace_back(name_of_recording(path, pid, nth));
  return paths;
}

struct FileOfFolder {
  std::string path;
  std::vector<std::string> recordings;  // they stand in for a report that cannot be read
};

std::vector<FileOfFolder> files_of_folder(const std::string& folder) {
  std::vector<FileOfFolder> files;
  std::set<std::string> recordings;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code other;
    if (!at->is_regular_file(other)) continue;
    if (at->path().extension() == ".json") files.push_back({at->path(), {}});
    if (at->path().extension() == ".rec") recordings.insert(at->path());
  }
  if (error) throw BadInput(folder + ": " + error.message());
  if (!recordings.empty())
    for (FileOfFolder& report : files)
      for (const std::string& recording : recordings_of(report.path))
        if (recordings.erase(recording)) report.recordings.push_back(recording);
  for (const std::string& recording : recordings) files.push_back({recording, {}});
  std::ranges::sort(files, {}, &FileOfFolder::path);
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
  std::set<std::pair<dev_t, ino_t>> used;
  const auto use_once = [&](const std::string& file) {
    struct stat status {};
    const bool is_file = stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode);
    if (is_file && !used.emplace(status.st_dev, status.st_ino).second) return;
    use(file);
    any = true;
  };
  const auto could_use = [&](const std::string& file) {
    try {
      use_once(file);
      return true;
    } catch (const BadInput& bad) {
      say("left out: " + bad.line);
      return false;
    }
  };
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      use_once(path);
      continue;
    }
    for (const FileOfFolder& file : files_of_folder(path))
      if (!could_use(file.path))
        for (const std::string& recording : file.recordings) could_use(recording);
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
