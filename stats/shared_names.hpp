// Names and lines that this process or a relative of it has looked up since the first of them forked. They lie in
// memory that all of them share: reading the debug information of a C library takes tens of milliseconds, and every
// child of a server would do it.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern {

// One frame of an address: where calls were inlined there are several, the innermost first.
struct NamedFrame {
  String function, file;  // may be empty
  unsigned line;
  bool is_ours, is_rust;
};

// An address in a module: modules of two processes may lie at the same place.
struct NameKey {
  std::uint64_t address;
  std::uint64_t module;  // a hash of place, path and build id
};
std::uint64_t hash_of_module(std::uint64_t base, std::string_view path, std::string_view build_id);

// Before a fork, by a process that reports. Without memory, nothing is shared.
void prepare_shared_names();

// An empty list of frames is an answer too: the address has no name.
std::optional<Vector<NamedFrame>> shared_names(const NameKey& key);
void share_names(const NameKey& key, const Vector<NamedFrame>& frames);

// For who looks for pointers: there are none. No bytes: nothing was prepared.
struct SharedNamesPlace {
  std::uintptr_t first;
  std::size_t bytes;
};
SharedNamesPlace shared_names_place();

}  // namespace cistern
