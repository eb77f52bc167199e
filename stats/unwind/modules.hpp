// Modules: the files that code addresses belong to. Noted when a stack shows them first and kept for good, because a
// plugin may be gone, and its addresses taken by another, when the report is made.
#pragma once
#include <atomic>
#include <cstdint>
#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern {

// This code is a part of somebody's program or plugin, whose frames are in the same module.
inline constinit std::atomic<bool> linked_into_another{false};

// False once a filter of system calls may end the process for a look at a file: what is noted of a module then comes
// from memory alone.
inline constinit std::atomic<bool> modules_look_at_files{true};

// What tells a file from one that came to its path later.
struct FileIdentity {
  std::uint64_t device, inode, bytes;
  std::int64_t changed_s, changed_ns;
  bool operator==(const FileIdentity&) const = default;
};

struct Module {
  std::uintptr_t start, end;  // where it was mapped
  std::uintptr_t bias;        // address in the process minus address in the file
  String name;                // as the dynamic linker has it; empty for the main executable
  String path;                // absolute, where the name has a folder
  String build_id;            // hex, may be empty
  const char* id_at;          // where the build id's first word lies, `id_word`; null: not in the first page
  std::uint64_t id_word;
  FileIdentity file;    // of one that may be unloaded and has no build id
  bool is_program;      // the main executable
  bool is_own;          // nothing lies in it but this code
  bool is_permanent;    // cannot be unloaded while this code runs
  bool forwards_calls;  // makes calls for other modules: OpenCL's loader, CUDA's runtime, another Cistern, libffi
  bool may_forward;     // the same, as far as its functions tell: a layer of OpenCL, what interposes calls for memory
};

// Whether a module so named allocates for whoever calls it: the C and C++ libraries, and GLib.
bool allocates_for_callers(std::string_view name);

// The module at a code address, null where there is none (generated code). Takes a lock of its own and no lock of the
// dynamic linker; the code must be unable to be unloaded meanwhile, as it is while it has a frame on this stack.
// False: a thread forks, which is not waited for.
bool module_at(std::uintptr_t address, const Module*& module);

// Whether `address` still lies in `module`. Lock-free, under the same condition.
bool lies_in(const Module& module, std::uintptr_t address);

// Whether `module` is loaded now, where it was. Takes the dynamic linker's lock: for reports only, with no lock held.
bool is_loaded(const Module& module);

// Whether the file at the path of `module` is the one that was loaded: by its build id, else by its FileIdentity.
// Takes no lock.
bool has_file_still(const Module& module);

void modules_before_fork();
void modules_after_fork();

}  // namespace cistern
