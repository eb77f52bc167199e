// Files that the command writes.
#pragma once
#include <string>

namespace cistern::command {

// All of it or nothing: it is written beside and then renamed, unless there is something else than a file already.
// Throws BadInput.
void write_file(const std::string& path, const std::string& text);

}  // namespace cistern::command
