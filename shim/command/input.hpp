// The reports that a command line names: files, and folders with files.
#pragma once
#include <string>
#include <vector>

#include "stats/formats/model.hpp"

namespace cistern::command {

// A fault of the command line or of a file: one line on stderr, exit code 2.
struct BadInput : std::exception {
  explicit BadInput(std::string line) : line(std::move(line)) {}
  const char* what() const noexcept override { return line.c_str(); }
  std::string line;
};

// A folder stands for all its `*.json`, in the order of their names. A file of a folder that is no report is left out
// with a line on stderr. Throws BadInput where a named file is none, and where no report is left.
formats::Run read_reports(const std::vector<std::string>& paths);

// Whether the file begins as a recording does.
bool is_recording(const std::string& path);

}  // namespace cistern::command
