// Python files, by their paths: a program's own scripts, and modules that were installed for any.
#pragma once
#include <string_view>

namespace cistern {

// Whether the file belongs to a package or to Python itself, or one of them made it ("<frozen importlib._bootstrap>").
bool is_installed(std::string_view file);
// Without the folder that it was installed to: "torch/nn/modules/linear.py".
std::string_view short_file(std::string_view file);

}  // namespace cistern
