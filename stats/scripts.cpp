// See scripts.hpp.
#include "stats/scripts.hpp"

#include <algorithm>
#include <cstddef>

namespace cistern {
namespace {

// Behind the folder that packages or Python's own modules are installed to; 0: it is in none.
std::size_t folder_end(std::string_view file) {
  for (const std::string_view folder : {"/site-packages/", "/dist-packages/"})
    if (const std::size_t at = file.rfind(folder); at != file.npos) return at + folder.size();
  constexpr std::string_view kVersioned = "/lib/python";  // "/lib/python3.11/"
  const std::size_t at = file.rfind(kVersioned);
  if (at == file.npos) return 0;
  std::size_t end = at + kVersioned.size();
  while (end < file.size() && ((file[end] >= '0' && file[end] <= '9') || file[end] == '.')) ++end;
  return end < file.size() && end > at + kVersioned.size() && file[end] == '/' ? end + 1 : 0;
}

}  // namespace

bool is_installed(std::string_view file) { return file.starts_with("<frozen ") || folder_end(file); }

std::string_view short_file(std::string_view file) { return file.substr(folder_end(file)); }

}  // namespace cistern
