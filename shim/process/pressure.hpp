// Whether memory is scarce for this process, as the system says: by the limits of its control groups (version 2), and
// by how long tasks wait for memory (PSI). Where the system has none of these files, or hides them, it is not.
//
// The slow paths of malloc ask. So nothing is allocated, little of the stack is used, and files are opened by the
// system's own calls, for one look each. A thread that asks while another one looks is told that memory is not scarce.
#pragma once
#include <atomic>
#include <cstdint>
#include <string_view>

#include "shim/process/small_file.hpp"

namespace cistern {

class MemoryPressure {
 public:
  // The system's files lie under `root`, if there is one. (This process's is all zero: it costs no memory before a
  // look.)
  constexpr explicit MemoryPressure(const char* root = nullptr) : root_(root) {}

  // The group, or one above it, uses nine tenths of its memory.high or memory.max, not counting cached files that the
  // kernel drops first. Without a limit it looks again after a minute.
  bool is_near_limit(std::uint64_t now_ns);
  // In the last ten seconds a task of the group, or of the machine, waited for memory for a second or more.
  bool is_stalled();

 private:
  class Look;
  enum class Mount { unknown, none, found };

  std::string_view read(std::string_view folder, std::string_view name);
  std::uint64_t number_in(std::string_view folder, std::string_view file, std::string_view name = {});
  bool note_mount(std::string_view line);
  bool find_mount();
  FilePath group();
  bool is_full(std::string_view group, bool& has_limit);

  const char* const root_;
  std::atomic<int> looking_{0};  // the process whose thread looks; a child may be forked meanwhile
  Mount mount_ = Mount::unknown;
  std::uint64_t rests_until_ns_ = 0;
  FilePath mount_point_{""}, mount_root_{""};
  char text_[4096] = {};
};

// This process's.
extern constinit MemoryPressure memory_pressure;

}  // namespace cistern
