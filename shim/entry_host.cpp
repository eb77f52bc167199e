// The exported malloc family and operators new and delete: one line each, from the HOST_CALL rows of symbols/host.def.
#include "shim/host/hooks/hooks.hpp"

extern "C" {
#define HOST_CALL(action, result, name, parameters, arguments) \
  [[gnu::visibility("default")]] result name parameters { return cistern::host::hook_##name arguments; }
#include "shim/symbols/host.def"
}
