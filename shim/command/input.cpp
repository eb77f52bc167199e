// See input.hpp.
#include "shim/command/input.hpp"
#include "shim/command/output.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "stats/formats/read.hpp"

namespace cistern::command {
namespace {

namespace fs = std::filesystem;

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
    if (at->path().extension() == ".json") files.push_back(at->path());
  if (error) throw BadInput(folder + ": " + error.message());
  std::ranges::sort(files);
  return files;
}

}  // namespace

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

}  // namespace cistern::command
