// The table of kinds.def, or of another that the build names (tests/toy).
#include "shim/process/kind.hpp"

#ifndef CISTERN_KINDS
#define CISTERN_KINDS "shim/kinds.def"
#endif

namespace cistern {

#define KIND(name)        \
  namespace name {        \
  extern const Kind kind; \
  }
#include CISTERN_KINDS
#undef KIND

namespace {
constexpr const Kind* kKinds[] = {
#define KIND(name) &name::kind,
#include CISTERN_KINDS
};
}  // namespace

std::span<const Kind* const> kinds() { return kKinds; }

}  // namespace cistern
