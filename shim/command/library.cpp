// See library.hpp.
#include "shim/command/library.hpp"

#include <elf.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "shim/command/input.hpp"

namespace cistern::command {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::vector<std::string> entries_of(const std::string& list) {
  std::vector<std::string> entries;
  for (std::size_t at = 0; (at = list.find_first_not_of(" :", at)) != list.npos;) {
    const std::size_t end = std::min(list.find_first_of(" :", at), list.size());
    entries.push_back(list.substr(at, end - at));
    at = end;
  }
  return entries;
}

bool holds(const std::string& file, const char* text) {
  std::ifstream in(file, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(in)), {});
  return content.find(text) != content.npos;
}

// The library to link has no such function.
bool is_library_to_preload(const std::string& file) { return is_file(file) && holds(file, "cistern_sees_program"); }

// Beside the command (a build), in lib of the same prefix (Debian's package, the tarball), or in the Python package
// whose installation brought the command.
std::optional<fs::path> installed_with(const fs::path& command) {
  constexpr char kName[] = "libcistern.so";
  const fs::path folder = command.parent_path(), prefix = folder.parent_path();
  for (const fs::path& at : {folder / kName, prefix / "lib/cistern" / kName, prefix / "libcistern" / kName})
    if (is_file(at)) return at;
  std::error_code error;
  for (fs::directory_iterator at(prefix / "lib", error), end; !error && at != end; at.increment(error)) {
    if (!at->path().filename().native().starts_with("python3")) continue;
    for (const char* packages : {"site-packages", "dist-packages"})
      if (const fs::path file = at->path() / packages / "libcistern" / kName; is_file(file)) return file;
  }
  return {};
}

// The first entry of the list whose file is the shared object to preload.
std::string preloaded_in(const std::string& list) {
  for (const std::string& entry : entries_of(list))
    if (entry.find('/') != entry.npos && is_library_to_preload(entry)) return entry;
  return {};
}

fs::path found_library() {
  const char* const list = std::getenv("LD_PRELOAD");
  if (const std::string preloaded = preloaded_in(list ? list : ""); !preloaded.empty()) return fs::absolute(preloaded);
  if (const char* const named = std::getenv("LIBCISTERN_LIBRARY"); named && *named) {
    if (!is_file(named)) throw BadInput(std::string("LIBCISTERN_LIBRARY=") + named + ": there is no such file");
    return fs::absolute(named);
  }
  std::error_code error;
  const fs::path command = fs::read_symlink("/proc/self/exe", error);
  if (const auto found = installed_with(command)) return *found;
  throw BadInput("libcistern.so is not where this command was installed (" + command.parent_path().native() +
                 "): set LIBCISTERN_LIBRARY to its path");
}

// "#!/usr/bin/env -S python3 -u": the words behind the two characters.
std::vector<std::string> words_of_script(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  if (in.get() != '#' || in.get() != '!' || !std::getline(in, line)) return {};
  std::vector<std::string> words;
  for (std::size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != line.npos;) {
    const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

// Where scripts, and `env NAME` in their first lines, lead to.
std::string program_of(std::string file) {
  constexpr int kScriptsMax = 8;  // the kernel gives up after five
  for (int i = 0; i < kScriptsMax; ++i) {
    const std::vector<std::string> words = words_of_script(file);
    if (words.empty()) break;
    file = words[0];
    if (fs::path(file).filename() != "env") continue;
    for (std::size_t k = 1; k < words.size(); ++k) {
      if (words[k].starts_with('-') || words[k].find('=') != std::string::npos) continue;
      file = file_of(words[k]);
      break;
    }
  }
  return file;
}

// The loader that an ELF file of this machine's size and order of bytes names.
std::string interpreter_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  Elf64_Ehdr head{};
  if (!in.read(reinterpret_cast<char*>(&head), sizeof head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
    return {};
  if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB) return {};
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr segment{};
    in.seekg(static_cast<std::streamoff>(head.e_phoff + i * sizeof segment));
    if (!in.read(reinterpret_cast<char*>(&segment), sizeof segment)) return {};
    if (segment.p_type != PT_INTERP) continue;
    std::string loader(std::min<std::size_t>(segment.p_filesz, PATH_MAX), '\0');
    in.seekg(static_cast<std::streamoff>(segment.p_offset));
    in.read(loader.data(), static_cast<std::streamsize>(loader.size()));
    return loader.substr(0, loader.find('\0'));
  }
  return {};
}

}  // namespace

std::string library_path() {
  std::string path = found_library();
  if (path.find_first_of(" :") != path.npos)
    throw BadInput(path + ": LD_PRELOAD cannot take a path with a space or a colon");
  if (!is_library_to_preload(path))
    throw BadInput(path + " is not a libcistern.so to preload, or is older than this command");
  return path;
}

std::string with_library(const std::string& library, const std::string& list) {
  std::string all = library;
  for (const std::string& other : entries_of(list))
    if (other != library) all += ':' + other;
  return all;
}

std::string without_library(const std::string& library, const std::string& list) {
  std::string others;
  for (const std::string& other : entries_of(list))
    if (other != library) others += (others.empty() ? "" : ":") + other;
  return others;
}

std::string file_of(const std::string& program) {
  if (program.find('/') != program.npos) return program;
  const char* const path = std::getenv("PATH");
  const std::string folders = path ? path : "/bin:/usr/bin";
  for (std::size_t at = 0; at <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', at), folders.size());
    const std::string folder = folders.substr(at, end - at);
    std::string file = (folder.empty() ? "." : folder) + '/' + program;
    if (access(file.c_str(), X_OK) == 0 && is_file(file)) return file;
    at = end + 1;
  }
  return {};
}

std::string foreign_loader(const std::string& file) {
  const std::string loader = interpreter_of(program_of(file));
  if (loader.empty() || !is_file(loader)) return {};
  return holds(loader, "GLIBC_PRIVATE") ? std::string() : loader;
}

}  // namespace cistern::command
