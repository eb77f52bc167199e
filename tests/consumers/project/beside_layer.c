/* beside_layer OBJECT: loads the object as an OpenCL loader loads a layer, and only then calls the library. Prints how
   many of two allocations either counted. */
#include <cistern/cistern.h>
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char** paths) {
  void* layer = count == 2 ? dlopen(paths[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!layer) return 2;
  int (*figures_of_layer)(int, cistern_statistics*) =
      (int (*)(int, cistern_statistics*))dlsym(layer, "cistern_get_statistics");
  cistern_statistics before = {.struct_bytes = sizeof before}, after = before, mine = before;
  figures_of_layer(CISTERN_HOST, &before);
  if (cistern_deallocate(cistern_allocate(100, 0)) || cistern_deallocate(cistern_allocate(100, 0))) return 3;
  figures_of_layer(CISTERN_HOST, &after);
  cistern_get_statistics(CISTERN_HOST, &mine);
  printf("its own: %d, the layer's: %d\n", (int)(mine.allocations - after.allocations),
         (int)(after.allocations - before.allocations));
  return 0;
}
