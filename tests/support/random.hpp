// Random tests print their seed when they fail and take it from CISTERN_TEST_SEED; thread-local state starts afresh in
// a new thread.
#pragma once
#include <cstdlib>
#include <random>
#include <thread>

namespace cistern::test {

inline unsigned new_seed() {
  if (const char* wanted = std::getenv("CISTERN_TEST_SEED"))
    return static_cast<unsigned>(std::strtoul(wanted, nullptr, 10));
  return std::random_device{}();
}

template <class Body>
void in_new_thread(Body body) {
  std::thread(body).join();
}

}  // namespace cistern::test
