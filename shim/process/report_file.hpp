// Reports in files. A report appears whole, under the path that was asked for or with the process id in it, and no file
// is destroyed. The path belongs to the first of a run's processes that used GPU memory. If none did, it belongs to the
// first one that the user, or a launcher of the user, started (run.hpp).
//
// A process changes the file at the path only while it holds the file's lock (flock), where there are locks, and has
// looked again since.
#pragma once
#include <sys/types.h>

#include "pool/base/internal_memory.hpp"

namespace cistern {

struct ReportFile {
  int failure;  // errno where there is no report in a file
  String path;
  dev_t device = 0;
  ino_t inode = 0;
};
struct Reporter {
  int pid;
  bool used_gpu_memory;
};
ReportFile write_report_file(const String& path, Reporter reporter, std::string_view text);
// The same in the place of one that this process has written before. Another process may have renamed that one since.
ReportFile replace_report_file(const ReportFile& before, Reporter reporter, std::string_view text);

// At the start: a report of an earlier run is not taken for one of this run, however this run ends. It is renamed to
// the process id of who wrote it, and a line says so. It stays where an argument of this program names it, which then
// is there to read it.
void set_earlier_report_aside(const String& path);

}  // namespace cistern
