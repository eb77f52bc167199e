// Whose malloc the program calls. Whoever owns malloc owns the family: of two allocators each block belongs to one, and
// what the other says of it is nonsense.
#pragma once

struct link_map;

namespace cistern::host {

enum class Owner : int {
  us,         // nothing else is there but the C library's; or we interpose nothing, as a library or a layer
  behind_us,  // a whole allocator: its calls pass through us, and the sizes of its blocks may be asked for
  other,      // one that stands before us, a sanitizer, a debugging library: nothing of ours may come in between
};

struct Ownership {
  Owner owner;
  const link_map* next;  // whose malloc stands behind us
  bool next_is_c_library;
};
// Looked up anew: ask once. Works inside the first malloc of the process; allocates only where valgrind is found.
Ownership find_ownership();
// The object that brings the malloc that serves; null where that is the program itself, or a valgrind tool.
const link_map* owning_module();

// Any of these, each of which ends with a null character, and the last with two.
bool defined_before_us(const char* names);

}  // namespace cistern::host
