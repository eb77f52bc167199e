/* See toy.h. */
#include "toy.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY (64u << 20)

struct block {
  struct block* next;
  size_t bytes;
  char memory[];
};

struct toy_context {
  pthread_mutex_t lock;
  struct block* blocks;
  size_t used;
  unsigned allocations;
};

/* The place that points to the block; null: there is none. */
static struct block** find(toy_context* context, const void* memory) {
  for (struct block** at = &context->blocks; *at; at = &(*at)->next)
    if ((*at)->memory == memory) return at;
  return NULL;
}

int toy_context_create(toy_context** context) {
  if (!context) return TOY_INVALID;
  *context = calloc(1, sizeof **context);
  if (!*context) return TOY_NO_MEMORY;
  return pthread_mutex_init(&(*context)->lock, NULL);
}

int toy_context_destroy(toy_context* context) {
  if (!context) return TOY_INVALID;
  if (context->blocks) return TOY_BUSY;
  free(context);
  return 0;
}

int toy_allocate(toy_context* context, size_t bytes, void** block) {
  if (!context || !block || !bytes) return TOY_INVALID;
  pthread_mutex_lock(&context->lock);
  struct block* made = bytes > CAPACITY - context->used ? NULL : malloc(sizeof *made + bytes);
  if (made) {
    made->next = context->blocks;
    made->bytes = bytes;
    context->blocks = made;
    context->used += bytes;
    ++context->allocations;
    *block = made->memory;
  }
  pthread_mutex_unlock(&context->lock);
  return made ? 0 : TOY_NO_MEMORY;
}

int toy_free(toy_context* context, void* memory) {
  if (!context) return TOY_INVALID;
  pthread_mutex_lock(&context->lock);
  struct block** const place = find(context, memory);
  struct block* const gone = place ? *place : NULL;
  if (gone) {
    *place = gone->next;
    context->used -= gone->bytes;
  }
  pthread_mutex_unlock(&context->lock);
  free(gone);
  return gone ? 0 : TOY_INVALID;
}

int toy_copy(toy_context* context, void* to, const void* from, size_t bytes) {
  if (!context || !to || !from) return TOY_INVALID;
  memcpy(to, from, bytes);
  return 0;
}

int toy_wait(toy_context* context) { return context ? 0 : TOY_INVALID; }

int toy_free_memory(toy_context* context, size_t* bytes) {
  if (!context || !bytes) return TOY_INVALID;
  pthread_mutex_lock(&context->lock);
  *bytes = CAPACITY - context->used;
  pthread_mutex_unlock(&context->lock);
  return 0;
}

int toy_block_bytes(toy_context* context, const void* block, size_t* bytes) {
  if (!context || !bytes) return TOY_INVALID;
  pthread_mutex_lock(&context->lock);
  struct block** const place = find(context, block);
  if (place) *bytes = (*place)->bytes;
  pthread_mutex_unlock(&context->lock);
  return place ? 0 : TOY_INVALID;
}

int toy_calls(toy_context* context, unsigned* allocations) {
  if (!context || !allocations) return TOY_INVALID;
  *allocations = context->allocations;
  return 0;
}

const char* toy_error(int code) {
  static const char* const names[] = {"no error", "invalid", "no memory", "busy"};
  return code >= 0 && code <= TOY_BUSY ? names[code] : "unknown";
}
