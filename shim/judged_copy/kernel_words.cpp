// See kernel_words.hpp. Read as /proc tells them, without an allocation.
#include "shim/judged_copy/kernel_words.hpp"

#include <fcntl.h>

#include <charconv>
#include <cstddef>
#include <string_view>

#include "pool/base/folder.hpp"
#include "pool/base/system_call.hpp"
#include "shim/process/memory_map.hpp"

namespace cistern {
namespace {

std::uintptr_t word(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
std::uintptr_t word(long number) { return static_cast<std::uintptr_t>(number); }

// The number behind `name`, in hexadecimal digits; 0: there is none.
std::uintptr_t number_after(std::string_view line, std::string_view name) {
  std::size_t at = line.find(name);
  if (at == line.npos) return 0;
  at = std::min(line.find_first_not_of(' ', at + name.size()), line.size());
  std::uintptr_t number = 0;
  std::from_chars(line.data() + at, line.data() + line.size(), number, 16);
  return number;
}

bool is_epoll(int folder, const char* name) {
  char target[32];
  const long bytes = system_call(SYS_readlinkat, word(folder), word(name), word(target), sizeof target);
  return bytes > 0 && std::string_view(target, static_cast<std::size_t>(bytes)) == "anon_inode:[eventpoll]";
}

template <class Visit>
void visit_lines_of(const char* folder, const char* name, Visit visit) {
  char path[64];
  std::size_t end = std::string_view(folder).copy(path, 32);
  end += std::string_view(name).copy(path + end, 16);
  path[end] = '\0';
  const long file = system_call(SYS_openat, word(AT_FDCWD), word(path), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  LineReader lines(static_cast<int>(file));
  while (const auto line = lines.next()) visit(*line);
  system_call(SYS_close, word(file));
}

}  // namespace

void visit_words_of_kernel(int timers, void (*visit)(void*, std::uintptr_t), void* context) {
  const long folder =
      system_call(SYS_openat, word(AT_FDCWD), word("/proc/self/fd"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  visit_names(folder, [&](const char* name) {
    if (is_epoll(static_cast<int>(folder), name))
      visit_lines_of("/proc/self/fdinfo/", name,
                     [&](std::string_view line) { visit(context, number_after(line, "data:")); });
    return false;
  });
  if (folder >= 0) system_call(SYS_close, word(folder));
  if (timers < 0) return;
  LineReader lines(timers);
  while (const auto line = lines.next())
    if (line->starts_with("signal:")) visit(context, number_after(*line, "/"));
}

}  // namespace cistern
