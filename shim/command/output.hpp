// Lines on stderr, and files: all that the command writes beside its answer.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace cistern::command {

// One line on stderr, behind "cistern: ". Control characters in it, such as those of a file's name, become '?'.
void say(const std::string& line);

// All of it or nothing: it is written beside and then renamed, unless there is something else than a file already.
// Throws BadInput.
void write_file(const std::string& path, const std::string& text);

// The same of a text that may be larger than memory: `produce` hands it over in parts, or throws.
using Write = std::function<void(std::string_view)>;
void write_file(const std::string& path, const std::function<void(const Write&)>& produce);

}  // namespace cistern::command
