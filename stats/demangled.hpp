// Mangled names in words, by demanglers that hand them over in pieces: no more than is worth reading. References inside
// of a symbol let a few bytes stand for any length, and for a time that has no end.
#pragma once
#include <cstddef>

#include "pool/base/internal_memory.hpp"

namespace cistern {

using TakeText = void (*)(const char* text, std::size_t bytes, void* data);
// Whether `symbol` is one of its language. It holds no memory and no lock while it calls `take`, which may not return.
using Demangler = bool (*)(const char* symbol, TakeText take, void* data);

// At most the first `bytes_max` bytes of the name; empty where the symbol is none of the demangler's.
String demangled(const char* symbol, Demangler demangler, std::size_t bytes_max);

}  // namespace cistern
