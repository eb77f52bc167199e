// See loading.hpp.
#include "shim/doctor/loading.hpp"

#include <errno.h>
#include <sys/wait.h>

#include "pool/base/path.hpp"
#include "shim/doctor/elf_file.hpp"
#include "shim/doctor/system.hpp"

namespace cistern::doctor {
namespace {

bool is_library(std::string_view path, std::string_view name) { return basename_of(path).starts_with(name); }
bool is_c_librarys(std::string_view path) { return is_library(path, "libc.so.") || is_library(path, "ld-linux"); }

// One line of a list: "NAME => PATH (ADDRESS)", "NAME => not found", "PATH (ADDRESS)".
void read_line(std::string_view line, Loaded& loaded) {
  if (!line.starts_with('\t')) {
    loaded.complaints.emplace_back(line);
    return;
  }
  line.remove_prefix(1);
  line = line.substr(0, line.rfind(" (0x"));
  const std::size_t arrow = line.find(" => ");
  if (arrow == line.npos) {
    const bool is_path = line.find('/') != line.npos;
    loaded.libraries.push_back({String(line), String(is_path ? line : std::string_view())});
    return;
  }
  const std::string_view path = line.substr(arrow + 4);
  loaded.libraries.push_back({String(line.substr(0, arrow)), path == "not found" ? String() : String(path)});
}

// Says what happens to host memory if a library, or the program, has a malloc of its own.
enum class Place : std::uint8_t { before, behind };

bool is_address_sanitizers(const ElfFile& file) { return file.defines("__asan_init"); }

void examine_address_sanitizer(const String& path, const Environment& environment, Findings& findings) {
  const bool allowed = environment.get("ASAN_OPTIONS").find("verify_asan_link_order=0") != std::string_view::npos;
  if (allowed)
    findings.note("host memory: neither pooled nor counted, because " + path + " inspects it; GPU memory is seen");
  else
    findings.problem(path +
                     " (AddressSanitizer) aborts a process if another library is preloaded before it: set "
                     "ASAN_OPTIONS=verify_asan_link_order=0");
}

// Whether it serves malloc, and what is to be said of that.
bool examine_allocator(const String& path, Place place, const Environment& environment, Findings& findings) {
  const MappedFile contents(path);
  const ElfFile file(contents.bytes());
  if (!file.defines("malloc")) return false;
  const bool inspects = file.defines("__sanitizer_print_stack_trace") || file.defines("mtrace");
  if (place == Place::behind && is_address_sanitizers(file)) {
    examine_address_sanitizer(path, environment, findings);
  } else if (place == Place::before || inspects) {
    findings.note("host memory: neither pooled nor counted, because the malloc of " + path +
                  (inspects ? " inspects it" : " comes before Cistern's") + "; GPU memory is seen");
  } else {
    findings.note("host memory: counted, not pooled, because " + path + " has a malloc of its own; GPU memory is seen");
  }
  return true;
}

// A library that binds its calls to itself, and defines what Cistern has to see.
void examine_symbolic(const String& path, Findings& findings) {
  const MappedFile contents(path);
  const ElfFile file(contents.bytes());
  if (!file.is_symbolic() || is_c_librarys(path)) return;
  constexpr char kSeen[][16] = {"malloc", "cuMemAlloc_v2", "cudaMalloc", "clCreateBuffer"};
  for (const char* name : kSeen)
    if (file.defines(name))
      findings.note(path + " is linked with -Bsymbolic and defines " + name + ": its own calls of it are not seen");
}

void examine_versions(const String& cistern, const Loaded& loaded, Findings& findings) {
  const MappedFile ours(cistern), theirs(loaded.path_of("libc.so.6"));
  const String needed = ElfFile(ours.bytes()).newest_needed(), defined = ElfFile(theirs.bytes()).newest_defined();
  if (needed.empty() || defined.empty() || !is_older(defined, needed)) return;
  findings.problem(cistern + " needs glibc " + needed + ", but the program gets " + loaded.path_of("libc.so.6") +
                   " of glibc " + defined + ": use a libcistern.so that was built for it");
}

}  // namespace

Cistern what_is(const String& file) {
  const MappedFile contents(file);
  const ElfFile elf(contents.bytes());
  if (!elf.defines("cistern_version")) return Cistern::no;
  return elf.defines("malloc") ? Cistern::to_preload : Cistern::to_link;
}

String Loaded::path_of(std::string_view name) const {
  for (const Library& library : libraries)
    if (library.name == name || basename_of(library.path) == name) return library.path;
  return {};
}

Loaded ask_loader(const String& file, const Environment& environment, const String& preloads) {
  Loaded loaded;
  const MappedFile contents(file);
  const String loader(ElfFile(contents.bytes()).loader());
  if (loader.empty()) return loaded;
  Environment asked = environment;
  if (!preloads.empty()) asked.set("LD_PRELOAD=" + preloads);
  asked.unset("LD_DEBUG");
  const Ended ended = output_of({loader, {loader, "--list", file}, asked.entries()});
  loaded.status = ended.status;
  for_each_part(ended.output, "\n", [&](std::string_view line) { read_line(line, loaded); });
  return loaded;
}

String examine_preload_list(const Environment& environment, Findings& findings) {
  String found, to_link;
  int problems = findings.problems();
  for_each_part(environment.get("LD_PRELOAD"), ": ", [&](std::string_view part) {
    const String entry(part);
    if (entry.find('/') == entry.npos || entry.find('$') != entry.npos) return;  // the loader searches for it
    const bool is_ours_by_name = entry.find("cistern") != entry.npos;
    const MappedFile contents(entry);
    if (contents.error() != 0) {
      const String text = "LD_PRELOAD: " + entry + " cannot be read: " + error_text(contents.error());
      is_ours_by_name ? findings.problem(text) : findings.note(text);
      return;
    }
    const ElfFile elf(contents.bytes());
    if (is_ours_by_name && !elf.is_for_this_machine()) {
      findings.problem("LD_PRELOAD: " + entry +
                       (elf.is_elf() ? " is for " + machine_name(elf.machine()) : " is not a library"));
      return;
    }
    const Cistern kind = what_is(entry);
    if (kind == Cistern::to_link) to_link = entry;
    if (kind != Cistern::to_preload) return;
    found = entry;
    if (!entry.starts_with('/'))
      findings.note("LD_PRELOAD: " + entry +
                    " is a relative path: child processes in another directory do not find it; use " + absolute(entry));
    if (is_mounted(entry, Mounted::without_execution))
      findings.problem("LD_PRELOAD: " + entry + " is on a file system that is mounted noexec: copy it elsewhere");
  });
  if (!found.empty() || findings.problems() != problems) return found;
  if (!to_link.empty())
    findings.problem("LD_PRELOAD: " + to_link +
                     " is the library for linking, which intercepts nothing: "
                     "the object to preload is libcistern.so");
  return found;
}

void examine_loading(const String& file, const String& cistern, const Environment& environment, Findings& findings) {
  const Loaded loaded = ask_loader(file, environment);
  if (WIFSIGNALED(loaded.status)) {
    findings.problem(file + " cannot be run: its loader was ended by signal " + number(WTERMSIG(loaded.status)));
    return;
  }
  if (loaded.libraries.empty()) {
    if (loaded.complaints.empty()) findings.problem(file + " cannot be run: its loader lists no libraries for it");
    for (const String& complaint : loaded.complaints) findings.problem("the loader says: " + complaint);
    return;
  }
  const int before = findings.problems();
  String ours = cistern;
  for (const Loaded::Library& library : loaded.libraries)
    if (ours.empty() && what_is(library.path) == Cistern::to_preload) ours = library.path;
  bool is_loaded = false;
  for (const Loaded::Library& library : loaded.libraries) is_loaded |= !ours.empty() && library.path == ours;
  if (ours.empty()) {
    findings.problem("LD_PRELOAD names no libcistern.so: " + String(environment.get("LD_PRELOAD")));
    return;
  }
  examine_versions(ours, loaded, findings);
  if (findings.problems() != before) return;
  for (const String& complaint : loaded.complaints) {
    const bool ours_named = complaint.find(ours) != complaint.npos;
    ours_named ? findings.problem("the loader says: " + complaint) : findings.note("the loader says: " + complaint);
  }
  for (const Loaded::Library& library : loaded.libraries)
    if (library.path.empty() && !is_library(library.name, "linux-vdso"))
      findings.problem(file + " cannot be run: " + library.name + " is not found");
  if (findings.problems() != before) return;
  if (!is_loaded) {
    findings.problem("the loader does not preload " + ours);
    return;
  }
  findings.ok("the loader preloads " + ours);

  bool others = examine_allocator(file, Place::before, environment, findings);
  Place place = Place::before;
  for (const Loaded::Library& library : loaded.libraries) {
    if (library.path == ours)
      place = Place::behind;
    else if (!others && !library.path.empty() && !is_c_librarys(library.path))
      others = examine_allocator(library.path, place, environment, findings);
    if (library.path != ours) examine_symbolic(library.path, findings);
  }
}

}  // namespace cistern::doctor
