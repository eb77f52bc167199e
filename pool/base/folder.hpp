// The names in an open folder, asked of the kernel: nothing is allocated, and no function of the C library is called,
// which another library may stand before.
#pragma once
#include <cstdint>
#include <cstring>
#include <string_view>

#include "pool/base/system_call.hpp"

namespace cistern {

// Calls visit(const char* name) for each but "." and "..", from where the descriptor stands, until it returns true.
template <class Visit>
void visit_names(long folder, Visit visit) {
  constexpr long kLengthAt = 16, kNameAt = 19;  // of an entry
  alignas(8) char entries[4096];
  for (long bytes; (bytes = system_call(SYS_getdents64, static_cast<std::uintptr_t>(folder),
                                        reinterpret_cast<std::uintptr_t>(entries), sizeof entries)) > 0;) {
    std::uint16_t length;
    for (long at = 0; at < bytes; at += length) {
      memcpy(&length, entries + at + kLengthAt, sizeof length);
      const char* const name = entries + at + kNameAt;
      const std::string_view text = name;
      if (text != "." && text != ".." && visit(name)) return;
    }
  }
}

}  // namespace cistern
