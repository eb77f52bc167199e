// See demangled.hpp.
#include "stats/demangled.hpp"

#include <algorithm>

namespace cistern {
namespace {

struct Name {
  String text;
  std::size_t bytes_max;
  void* full[5];  // the way out of the demangler: the compiler's own, since a program may have replaced longjmp
};

[[gnu::noinline]] void take(const char* text, std::size_t bytes, void* data) {
  auto& name = *static_cast<Name*>(data);
  name.text.append(text, std::min(bytes, name.bytes_max - name.text.size()));
  if (name.text.size() == name.bytes_max) __builtin_longjmp(name.full, 1);
}

// A function of its own: nothing of the caller's is in registers that the way out would leave changed.
[[gnu::noinline]] bool fill(Name& name, const char* symbol, Demangler demangler) {
  if (__builtin_setjmp(name.full)) return true;
  return demangler(symbol, take, &name);
}

}  // namespace

String demangled(const char* symbol, Demangler demangler, std::size_t bytes_max) {
  Name name{{}, bytes_max, {}};
  if (!fill(name, symbol, demangler)) name.text.clear();
  return std::move(name.text);
}

}  // namespace cistern
