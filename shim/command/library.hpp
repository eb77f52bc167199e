// Where the shared object to preload is, and how it gets into a program.
#pragma once
#include <string>
#include <vector>

namespace cistern::command {

// The absolute path: of the one that LD_PRELOAD has, else of the file that LIBCISTERN_LIBRARY names, else of the one
// that was installed with this command. Throws BadInput: there is none, or LD_PRELOAD cannot take its path.
std::string library_path();

// `list`: an LD_PRELOAD. Ours comes first, and what else is preloaded stays.
std::string with_library(const std::string& library, const std::string& list);

std::string without_library(const std::string& library, const std::string& list);

// The file that execvp would start; empty: none.
std::string file_of(const std::string& program);

// The loader of the program in that file, where it is not glibc's: it cannot load the shared object. Empty: it is, or
// there is none, or that cannot be seen. Scripts count as what their first lines name.
std::string foreign_loader(const std::string& file);

}  // namespace cistern::command
