// The phrases for the statuses of the C interface (cistern_status_text): one for each, for C++ and Python too.
#include "shim/library/library.hpp"

namespace cistern::library {

const char* status_text(cistern_status status) {
  switch (status) {
    case CISTERN_OK:
      return "success";
    case CISTERN_INVALID:
      return "invalid argument";
    case CISTERN_NO_MEMORY:
      return "out of memory";
    case CISTERN_LIMIT:
      return "over the limit of the pool";
    case CISTERN_BUSY:
      return "still in use";
    case CISTERN_NO_DRIVER:
      return "no driver";
    case CISTERN_DRIVER:
      return "refused by the driver or the system";
    case CISTERN_TOO_LATE:
      return "the option is in use already";
    case CISTERN_EMPTY:
      return "nothing is there yet";
    case CISTERN_CONFLICT:
      return "data would be lost";
    case CISTERN_BOUNDS:
      return "out of bounds";
    case CISTERN_MISMATCH:
      return "sizes, types or kinds differ";
    case CISTERN_EXISTS:
      return "exists already";
    case CISTERN_NOT_FOUND:
      return "not found";
    case CISTERN_DENIED:
      return "permission denied";
    case CISTERN_TRUNCATED:
      return "the file is shorter than it was";
  }
  return "unknown status";
}

}  // namespace cistern::library
