// Leaks in two functions, for the report: its sites name the functions.
// harness: leaks=device:4,pinned:1
// harness: leak-sites=load_weights,keep_staging,forget_result
// harness: nvcc
#include "../program.hpp"

[[gnu::noinline]] static void load_weights() {
  for (int layer = 0; layer < 3; ++layer) device_block(100000);
}
[[gnu::noinline]] static void keep_staging() { pinned_block(50000); }
[[gnu::noinline]] static void forget_result() {
  unsigned* result = device_block(20000);
  fill(nullptr, result, 20000, 1);
  say("the result is %s", contents(result, 20000).c_str());
}

int main() {
  for (int i = 0; i < 10; ++i) NEED(cudaFree(device_block(100000)));
  load_weights();
  keep_staging();
  forget_result();
  return finish();
}
