// The reports and recordings that a command line names: files, and folders with files.
#pragma once
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "stats/formats/model.hpp"

namespace cistern::formats {
class Recording;
}

namespace cistern::command {

// A fault of the command line or of a file: one line on stderr, exit code 2.
struct BadInput : std::exception {
  explicit BadInput(std::string line) : line(std::move(line)) {}
  const char* what() const noexcept override { return line.c_str(); }
  std::string line;
};

// A folder stands for all its `*.json`, and each `*.rec` of a process that has none, in the order of their names. A
// file that is named twice, or by a link, counts once. If `use` throws BadInput for a file of a folder, the file is
// left out with a line on stderr, and the process's recordings are used where there are any. Throws BadInput for a file
// that was named, and where no file is left.
void for_each_report(const std::vector<std::string>& paths, const std::function<void(const std::string&)>& use);

// Throws BadInput.
std::string text_of(const std::string& path);
// Whether that is a file which this process has read: an answer must not overwrite its question.
bool was_read(const std::string& path);
formats::Run read_reports(const std::vector<std::string>& paths);

// --- Recordings
// Whether the file begins as a recording does.
bool is_recording(const std::string& path);
// Throws BadInput.
void with_recording(const std::string& path, const std::function<void(const formats::Recording&)>& use);

}  // namespace cistern::command
