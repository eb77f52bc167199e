// The folder that `cistern run` makes for the reports of a program's processes.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <string>

namespace cistern::command {

struct RunFolder {
  std::filesystem::path path;  // empty: none could be made, as a line on stderr says
  bool is_new = false;         // it was made for this run
};

// `wanted`: empty, or what the user named. Else the folder lies here, or where temporary files go. Ranks share theirs.
RunFolder make_run_folder(const std::string& wanted, const std::string& program, pid_t pid);

// A name for a file, of any text: letters, digits and a few signs, at most 100 of them.
std::string printable_name(std::string name);

// No report came: a folder that was made for it goes.
void remove_unused(const RunFolder& folder);

// The values of CISTERN_REPORT and CISTERN_RECORD for files in that folder.
std::string report_path_in(const RunFolder& folder);
std::string recording_path_in(const RunFolder& folder);

}  // namespace cistern::command
