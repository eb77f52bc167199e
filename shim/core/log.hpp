// The shim's own lines on stderr: one clear line each, "cistern: ...". Never stdout. Formatted by spdlog into a
// sink of ours that writes to the file descriptor; not for use inside malloc or a signal handler.
#pragma once
#include <string_view>

namespace cistern {

// Said at once: something went wrong now (misuse, an unwritable report).
void warn_line(std::string_view text);
// Said when the process first has something to say (a report or a warning), so that silent processes stay silent.
void warn_later(std::string_view text);
void say_deferred_lines();

}  // namespace cistern
