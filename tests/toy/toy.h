/* A driver of ten functions, as small as one can be: contexts, memory, copies. The blocks of a context are host memory;
 * it has 64 MiB. Calls return 0 or an error. */
#ifndef TOY_H
#define TOY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TOY_INVALID = 1, TOY_NO_MEMORY = 2, TOY_BUSY = 3 };

typedef struct toy_context toy_context;

int toy_context_create(toy_context** context);
int toy_context_destroy(toy_context* context); /* TOY_BUSY: it has blocks */
int toy_allocate(toy_context* context, size_t bytes, void** block);
int toy_free(toy_context* context, void* block);
int toy_copy(toy_context* context, void* to, const void* from, size_t bytes);
int toy_wait(toy_context* context);
int toy_free_memory(toy_context* context, size_t* bytes);
int toy_block_bytes(toy_context* context, const void* block, size_t* bytes);
int toy_calls(toy_context* context, unsigned* allocations); /* that came to the driver */
const char* toy_error(int code);

#ifdef __cplusplus
}
#endif
#endif
