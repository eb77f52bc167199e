// Memory for libbacktrace, from the tables' own. Its own allocator maps one page at a time, thousands for the debug
// information of one library: beside busy threads, which map and touch pages too, each of those calls waits for them.
//
// These are all functions of its mmap.c, which is therefore not linked. The declarations are those of its internal.h.
#include <backtrace.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "pool/base/internal_memory.hpp"

namespace {

// In front of each block. The size that libbacktrace passes when it frees is not relied on.
struct alignas(16) Header {
  std::size_t bytes;  // with the header
};

}  // namespace

extern "C" {

// A part of the block at `base`, `size` bytes, is in use; `alc` bytes behind it are not.
struct backtrace_vector {
  void* base;
  std::size_t size, alc;
};

void* backtrace_alloc(backtrace_state*, std::size_t size, backtrace_error_callback on_error, void* data) {
  const std::size_t bytes = sizeof(Header) + size;
  void* const block = bytes < size ? nullptr : cistern::internal_try_allocate(bytes);
  if (!block) {
    if (on_error) on_error(data, "mmap", ENOMEM);
    return nullptr;
  }
  return new (block) Header{bytes} + 1;
}

void backtrace_free(backtrace_state*, void* block, std::size_t, backtrace_error_callback, void*) {
  if (!block) return;
  Header* const header = static_cast<Header*>(block) - 1;
  cistern::internal_deallocate(header, header->bytes);
}

void* backtrace_vector_grow(backtrace_state* state, std::size_t size, backtrace_error_callback on_error, void* data,
                            backtrace_vector* vector) {
  if (size > vector->alc) {
    constexpr std::size_t kFirstItems = 16;
    const std::size_t bytes = vector->size ? 2 * (vector->size + size) : kFirstItems * size;
    void* const base = backtrace_alloc(state, bytes, on_error, data);
    if (!base) return nullptr;
    if (vector->size) std::memcpy(base, vector->base, vector->size);
    backtrace_free(state, vector->base, 0, nullptr, nullptr);
    vector->base = base;
    vector->alc = bytes - vector->size;
  }
  void* const grown = static_cast<char*>(vector->base) + vector->size;
  vector->size += size;
  vector->alc -= size;
  return grown;
}

// The caller keeps the block; the vector may begin another one.
void* backtrace_vector_finish(backtrace_state*, backtrace_vector* vector, backtrace_error_callback, void*) {
  void* const base = vector->base;
  *vector = {};
  return base;
}

// Gives up the unused memory: all of it, or, as blocks are freed whole, nothing.
int backtrace_vector_release(backtrace_state* state, backtrace_vector* vector, backtrace_error_callback, void*) {
  if (!vector->size) {
    backtrace_free(state, vector->base, 0, nullptr, nullptr);
    vector->base = nullptr;
  }
  vector->alc = 0;
  return 1;
}

}  // extern "C"
