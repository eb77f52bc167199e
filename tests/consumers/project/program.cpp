// As program.c, from C++.
#include <cistern/cistern.h>

#include <cstdio>

int main() {
  cistern_statistics before{};
  before.struct_bytes = sizeof before;
  cistern_statistics after = before;
  if (cistern_get_statistics(CISTERN_HOST, &before)) return 2;
  void* const kept = cistern_allocate(100, 64);
  void* const given = cistern_allocate(3000, 0);
  if (!kept || cistern_deallocate(given)) return 4;
  if (cistern_get_statistics(CISTERN_HOST, &after)) return 5;
  std::printf("%d allocations, %d frees\n", static_cast<int>(after.allocations - before.allocations),
              static_cast<int>(after.frees - before.frees));
}
