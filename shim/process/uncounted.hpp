// Our own blocks: while an Uncounted lives on this thread (dlopen, spdlog), blocks get no call site, and
// those of the C library are not counted. Blocks of the pool are live blocks like others: they are few.
#pragma once
#include <errno.h>

namespace cistern {

[[gnu::tls_model("initial-exec")]] inline constinit thread_local int uncounted_depth = 0;

inline bool uncounted_here() { return uncounted_depth > 0; }

class Uncounted {
 public:
  Uncounted() : errno_(errno) { uncounted_depth = uncounted_depth + 1; }
  ~Uncounted() {
    uncounted_depth = uncounted_depth - 1;
    errno = errno_;
  }
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;

 private:
  const int errno_;  // the program does not see what our work sets meanwhile
};

}  // namespace cistern
