// The shim's own lines on stderr: one clear line each, "cistern: ...". Never stdout. Formatted by spdlog into a
// sink of ours that writes to the file descriptor; not for use inside malloc or a signal handler.
#pragma once
#include <string_view>

namespace cistern {

// Prints a line immediately: something went wrong now (misuse, an unwritable report). The first ten lines that differ
// only in their numbers are printed; the others are counted. `alike` is compared instead, for lines that say more at
// one time than at another.
void warn_line(std::string_view text, std::string_view alike = {});
// Said when the process first has something to say (a report or a warning), so that silent processes stay silent.
void warn_later(std::string_view text);
void say_deferred_lines();
bool has_deferred_lines();
// How many more lines there would have been; said with the report.
void say_limited_lines();

// The lock is a leaf: taken last. A forked child counts its own lines.
void log_before_fork();
void log_after_fork_in_parent();
void log_after_fork_in_child();

}  // namespace cistern
