// See demangled.hpp.
#include "stats/demangled.hpp"

#include <algorithm>
#include <utility>

namespace cistern {
namespace {

struct Name {
  String text;
  std::size_t bytes_max;
  bool is_one;
  void* full[5];  // the way out of the demangler: the compiler's own, since a program may have replaced longjmp
};

[[gnu::noinline]] void take(const char* text, std::size_t bytes, void* data) {
  auto& name = *static_cast<Name*>(data);
  name.text.append(text, std::min(bytes, name.bytes_max - name.text.size()));
  if (name.text.size() == name.bytes_max) __builtin_longjmp(name.full, 1);
}

// A function of its own: nothing of the caller's is in registers that the way out would leave changed. The store behind
// the call keeps its frame, to which the way out leads: without it, Clang would jump to the demangler.
[[gnu::noinline]] void fill(Name& name, const char* symbol, Demangler demangler) {
  name.is_one = true;
  if (__builtin_setjmp(name.full)) return;
  name.is_one = demangler(symbol, take, &name);
}

}  // namespace

String demangled(const char* symbol, Demangler demangler, std::size_t bytes_max) {
  Name name{{}, bytes_max, false, {}};
  fill(name, symbol, demangler);
  if (!name.is_one) name.text.clear();
  return std::move(name.text);
}

}  // namespace cistern
