// See surroundings.hpp.
#include "shim/doctor/surroundings.hpp"

#include <sys/resource.h>

#include <charconv>

#include "pool/base/path.hpp"
#include "pool/base/system_call.hpp"
#include "shim/doctor/elf_file.hpp"
#include "shim/doctor/loading.hpp"
#include "shim/doctor/system.hpp"
#include "shim/process/options.hpp"
#include "stats/format.hpp"

namespace cistern::doctor {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kSmallAddressSpace = 1024 * kMiB, kPoolNeeds = 32 * kMiB;

// The environment that read_options reads; it takes functions and no context.
constinit const Environment* asked = nullptr;
constinit Findings* told = nullptr;

const char* ask(const char* name) { return asked->get(name).data(); }  // null: not set

std::string_view first_line(const String& text) {
  std::string_view line = std::string_view(text).substr(0, text.find('\n'));
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r' || line.back() == '\t')) line.remove_suffix(1);
  return line;
}

// The libraries that the loader of OpenCL will try: those that files *.icd name, as OCL_ICD_VENDORS or the system has
// them.
Vector<String> opencl_drivers(const Environment& environment) {
  Vector<String> drivers;
  const std::string_view chosen =
      environment.has("OCL_ICD_VENDORS") ? environment.get("OCL_ICD_VENDORS") : environment.get("OPENCL_VENDOR_PATH");
  const String folder(chosen.empty() ? "/etc/OpenCL/vendors" : chosen);
  if (folder.ends_with(".icd")) {
    drivers.emplace_back(first_line(text_of(folder, 4096)));
    return drivers;
  }
  for (const String& name : names_in(folder)) {
    String path = folder;
    path.append("/").append(name);
    if (name.ends_with(".icd")) drivers.emplace_back(first_line(text_of(path, 4096)));
  }
  std::erase_if(drivers, [](const String& driver) { return driver.empty(); });
  return drivers;
}

// The loader's answer for the name of a library: its path, or the loader's own words why it cannot be loaded.
struct Found {
  String path, why_not;
};
Found found_by(const String& file, const Environment& environment, const String& library) {
  constexpr std::string_view kReason = "cannot be preloaded (";
  const Loaded loaded = ask_loader(file, environment, library);
  Found found{loaded.path_of(basename_of(library)), "not found"};
  for (const String& complaint : loaded.complaints) {
    const std::size_t reason = complaint.find(kReason), end = complaint.rfind(')');
    if (complaint.find(library) == String::npos || reason == String::npos || end == String::npos) continue;
    found.why_not = complaint.substr(reason + kReason.size(), end - reason - kReason.size());
  }
  return found;
}

void examine_opencl(const String& file, const Environment& environment, Findings& findings) {
  const Found loader = found_by(file, environment, "libOpenCL.so.1");
  if (loader.path.empty()) {
    findings.note("OpenCL: libOpenCL.so.1: " + loader.why_not);
    return;
  }
  String there;
  for (const String& driver : opencl_drivers(environment)) {
    const Found found = found_by(file, environment, driver);
    if (found.path.empty())
      findings.note("OpenCL: a registered driver cannot be loaded: " + driver + ": " + found.why_not);
    else
      there += (there.empty() ? "" : ", ") + driver;
  }
  if (there.empty())
    findings.note("OpenCL: " + loader.path + ", but no driver for it (/etc/OpenCL/vendors)");
  else
    findings.ok("OpenCL: " + loader.path + ", drivers: " + there);
}

bool knows_layers(const String& opencl_loader) {
  const MappedFile contents(opencl_loader);
  return ElfFile(contents.bytes()).mentions("OPENCL_LAYERS");
}

}  // namespace

bool examine_options(const Environment& environment, Findings& findings) {
  Vector<char*> entries;
  for (const String& entry : environment.entries()) entries.push_back(const_cast<char*>(entry.c_str()));
  entries.push_back(nullptr);
  asked = &environment;
  told = &findings;
  const Options options = read_options(ask, entries.data(), [](std::string_view line) { told->note(String(line)); });
  // Asked before there are options (switched_off), so it is none of those that were read.
  const std::string_view on = environment.get("CISTERN");
  const bool is_off = parse_on_off(on) == false;
  if (!on.empty() && !parse_on_off(on)) findings.note("CISTERN: '" + String(on) + "' is not on or off; using on");
  if (is_off) findings.problem("CISTERN=off switches Cistern off: unset it");
  if (!options.gate_fault.empty()) findings.problem("the rule of CISTERN_FAIL_ON cannot be read: see above");
  if (!options.host) findings.note("CISTERN_HOST=off: host memory is not counted");
  if (!options.host_pool) findings.note("CISTERN_HOST_POOL=off: host memory is counted, not pooled");
  if (options.report == "none") findings.note("CISTERN_REPORT=none: no report and no warning is written");
  return !is_off;
}

void examine_drivers(const String& file, const Environment& environment, Findings& findings) {
  const Found cuda = found_by(file, environment, "libcuda.so.1");
  if (cuda.path.empty())
    findings.note("CUDA: no driver: libcuda.so.1: " + cuda.why_not);
  else
    findings.ok("CUDA: " + cuda.path);
  examine_opencl(file, environment, findings);
}

Layer examine_layers(const String& file, const Environment& environment, bool alone, Findings& findings) {
  String ours, missing;
  for_each_part(environment.get("OPENCL_LAYERS"), ":", [&](std::string_view part) {
    const String layer(part);
    if (layer.find("cistern") == layer.npos && what_is(layer) == Cistern::no) return;
    ours = layer;
    if (layer.find('/') != layer.npos && !exists(layer)) missing = layer;
  });
  if (ours.empty()) return Layer::not_asked;
  const auto ignored = [&](const String& why) {
    const String text = "OPENCL_LAYERS is ignored: " + why;
    alone ? findings.problem(text) : findings.note(text);
    return Layer::ignored;
  };
  if (!missing.empty()) return ignored(missing + " does not exist");
  const Found found = found_by(file, environment, "libOpenCL.so.1");
  const String& loader = found.path;
  if (loader.empty()) return ignored("libOpenCL.so.1: " + found.why_not);
  if (!knows_layers(loader))
    return ignored(loader + " does not support layers (ocl-icd does since 2.3): use LD_PRELOAD instead");
  if (what_is(ours) != Cistern::to_preload) return ignored(ours + " is not libcistern.so");
  if (!ours.starts_with('/'))
    findings.note("OPENCL_LAYERS: " + ours +
                  " is a relative path: child processes in another directory do not find it; use " + absolute(ours));
  findings.ok("OPENCL_LAYERS: " + loader + " loads " + ours);
  return Layer::loaded;
}

void examine_limits(const Environment& environment, Findings& findings) {
  rlimit limit{};
  system_call(SYS_prlimit64, 0, RLIMIT_AS, 0, reinterpret_cast<std::uintptr_t>(&limit));
  if (limit.rlim_cur < kPoolNeeds)
    findings.note("ulimit -v " + number(static_cast<std::int64_t>(limit.rlim_cur / 1024)) +
                  ": too little for the host pool, which needs 32 MiB of address space");
  else if (limit.rlim_cur < kSmallAddressSpace)
    findings.note("ulimit -v " + number(static_cast<std::int64_t>(limit.rlim_cur / 1024)) +
                  ": memory that pools retain counts towards it; CISTERN_OPENCL_POOL_MAX limits the largest part");
  if (text_of("/proc/sys/vm/overcommit_memory", 16).starts_with('2'))
    findings.note(
        "vm.overcommit_memory is 2: when memory is short, leaks are not judged, because that needs a copy of the "
        "process");
  const String status = text_of("/proc/self/status");
  if (status.empty()) findings.note("/proc is missing: leaks are not judged, and reports have no command line");
  if (status.find("\nSeccomp:\t2") != status.npos && environment.get("CISTERN_SYSTEM_CALLS") != "few")
    findings.note(
        "a filter of system calls (seccomp) is inherited: if SIGSYS ends the program, set "
        "CISTERN_SYSTEM_CALLS=few");
}

}  // namespace cistern::doctor
