// Where the shim's lines and reports may go: the program's standard error, only while it is one.
//
// Descriptor 2 may be closed and taken by a data file (daemons), or closed by an exit handler (coreutils). So the file
// behind it is noted when the process starts, and held under a private descriptor when exit begins. Later files on 2
// are written to only when they are a terminal or another character device, or are open for appending (logs).
#pragma once
#include <string_view>

namespace cistern {

// Both idempotent and safe in a signal handler.
void note_standard_error();
void hold_standard_error();

// The descriptor to write to, or -1: nowhere.
int standard_error();

// The whole text, whatever signals and partial writes come in between, without the SIGPIPE and SIGXFSZ that the plain
// program would not get. 0, or the errno of the write that failed. Keeps errno.
int write_whole(int descriptor, std::string_view text);

}  // namespace cistern
