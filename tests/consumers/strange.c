/* In the place of libcistern.so: its table has another number (NUMBER), or fewer bytes than this copy knows (BYTES). */
#include <stdint.h>
#include <stdlib.h>

static void never(void) { abort(); }

static const struct {
  uint32_t number, bytes;
  const char* version;
  void (*functions[64])(void);
} table = {NUMBER, BYTES, "9.9.9", {never, never, never, never}};

const void* cistern_interface(void) { return &table; }
