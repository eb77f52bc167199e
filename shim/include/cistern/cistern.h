/* Cistern's C interface: statistics, trim, report; allocate and deallocate. Usable from programs that link the
 * library and, through weak references or dlsym, from programs that run under the preloaded shim: there the same
 * functions speak of the same pools.
 *
 * Thread-safety: every function may be called from any thread, at any time before exit, except inside a signal handler.
 * Units: sizes are bytes. Errors: as each function says; none prints, none aborts. */
#ifndef CISTERN_CISTERN_H
#define CISTERN_CISTERN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef CISTERN_API
#define CISTERN_API __attribute__((visibility("default")))
#endif

typedef enum cistern_kind {
  CISTERN_HOST = 0,   /* malloc, new: served from a pool of its own */
  CISTERN_OPENCL = 1, /* cl_mem, SVM, USM: buffers are recycled, the rest is tracked */
  CISTERN_DEVICE = 2, /* CUDA device memory of all devices, recycled */
  CISTERN_PINNED = 3, /* CUDA pinned host memory, recycled */
  CISTERN_MANAGED = 4 /* CUDA managed memory: tracked, never recycled; in pools only */
} cistern_kind;

/* What a call of the pools' part answers. */
typedef enum cistern_status {
  CISTERN_OK = 0,
  CISTERN_INVALID = 1,   /* an argument; a wrong block or pool is named in one line on stderr as well */
  CISTERN_NO_MEMORY = 2, /* nor after all that is kept went back */
  CISTERN_LIMIT = 3,     /* of the pool */
  CISTERN_BUSY = 4,      /* blocks of the pool are alive */
  CISTERN_NO_DRIVER = 5, /* no libcuda, or no OpenCL */
  CISTERN_DRIVER = 6     /* the driver refused: cistern_native_error() */
} cistern_status;

typedef enum cistern_format { CISTERN_TEXT = 0, CISTERN_JSON = 1 } cistern_format;

/* Figures of one kind since the process started (in a forked child: since the fork). */
typedef struct cistern_statistics {
  uint64_t allocations, frees;     /* calls that gave, or ended, a block */
  uint64_t pool_hits, pool_misses; /* of the allocations that a pool could serve */
  uint64_t driver_allocs, driver_frees;
  uint64_t live_blocks, live_bytes;     /* in the program's hands now */
  uint64_t peak_bytes;                  /* high-water mark of live_bytes; host: of its pages in use */
  uint64_t pooled_blocks, pooled_bytes; /* kept for reuse; never a leak */
  uint64_t largest_pooled_bytes;
  uint64_t failed; /* allocations that the program saw fail */
} cistern_statistics;

/* The version, as "1.2.3". Static. */
CISTERN_API const char* cistern_version(void);

/* 0, or -1 when `kind` does not exist or `statistics` is null. */
CISTERN_API int cistern_get_statistics(cistern_kind kind, cistern_statistics* statistics);

/* Gives pooled memory of `kind` back, the oldest unused first, until `keep_bytes` are left.
 * Returns the bytes given back. */
CISTERN_API size_t cistern_trim(cistern_kind kind, size_t keep_bytes);

/* Writes a report of this moment to `path`: 0, or an errno value. An existing file is not overwritten (EEXIST).
 * It speaks of live blocks, not of leaks: the program is still running. */
CISTERN_API int cistern_report(const char* path, cistern_format format);

/* Host memory from the pool. `alignment`: a power of two, or 0 for that of malloc. Null on failure, errno ENOMEM or
 * EINVAL. */
CISTERN_API void* cistern_allocate(size_t bytes, size_t alignment);
CISTERN_API int cistern_deallocate(void* block);

/* OpenCL buffers from the pool. The types are OpenCL's own. */
struct _cl_context;
struct _cl_mem;
struct _cl_command_queue;

/* As clCreateBuffer without a host pointer; `error` may be null. A context becomes known at its first buffer. */
CISTERN_API struct _cl_mem* cistern_opencl_allocate(struct _cl_context* context, uint64_t flags, size_t bytes,
                                                    int32_t* error);

/* As clReleaseMemObject. `last_queue`: a queue whose commands, enqueued up to now, may still use the buffer, or null
 * when none does. The buffer is not given again before they have ended; nothing waits.
 * Under the preloaded shim the queues are known, and null is always right. */
CISTERN_API int32_t cistern_opencl_deallocate(struct _cl_mem* buffer, struct _cl_command_queue* last_queue);

/* To be called before the last clReleaseContext, in programs that link the library: releases what the pool keeps of
 * this context. Not needed under the preloaded shim. */
CISTERN_API void cistern_opencl_forget_context(struct _cl_context* context);

/* CUDA device memory from the pool, in the current context: CUresult, 0 for success. As cuMemAlloc and cuMemFree: a
 * deallocation waits for the work of the block's context (CISTERN_DEVICE_ORDER). A process without libcuda: 100. */
CISTERN_API int cistern_cuda_allocate(unsigned long long* pointer, size_t bytes);
CISTERN_API int cistern_cuda_deallocate(unsigned long long pointer);

/* --- Pools: memory of one kind, with a name, a limit and figures of their own
 *
 * A pool is an account: what is kept for reuse is kept for all pools of its kind together. Any number of pools may
 * exist. A handle that is no pool's any more is told from all others. */
typedef struct cistern_pool cistern_pool;

typedef struct cistern_pool_settings {
  size_t size;      /* of this struct, as the caller knows it: sizeof(cistern_pool_settings) */
  const char* name; /* for reports; copied, 63 bytes at most; null: "pool" */
  cistern_kind kind;
  struct _cl_context* context; /* OpenCL: where buffers are made */
  uint64_t flags;              /* OpenCL: of clCreateBuffer; pinned: of cuMemHostAlloc; managed: of cuMemAllocManaged,
                                  0: attached globally */
  size_t bytes_max;            /* of blocks that are alive together; 0: no limit */
  /* Called where memory or the limit ran out, with no lock held, any number of times: give something back (of this
   * pool too) and return anything but 0, and the allocation is tried once more. Null: it fails. */
  int (*out_of_memory)(cistern_pool* pool, size_t bytes, void* user);
  /* Called after a block was given, and before it goes back, in the thread that asked. Null: nobody is told. */
  void (*allocated)(cistern_pool* pool, void* block, size_t bytes, void* user);
  void (*deallocated)(cistern_pool* pool, void* block, size_t bytes, void* user);
  void* user;
} cistern_pool_settings;

/* Figures of one pool since it was made (in a forked child, of allocations: since the fork). */
typedef struct cistern_pool_statistics {
  uint64_t allocations, frees, failed; /* calls */
  uint64_t live_blocks, live_bytes, peak_bytes;
  uint64_t allocated_bytes; /* in all */
  uint64_t bytes_max;       /* 0: no limit */
} cistern_pool_statistics;

/* CISTERN_INVALID: no such kind, no context with OpenCL, no size. `*pool` is null then. */
CISTERN_API cistern_status cistern_pool_create(const cistern_pool_settings* settings, cistern_pool** pool);
/* CISTERN_BUSY: blocks are alive; nothing has changed. */
CISTERN_API cistern_status cistern_pool_destroy(cistern_pool* pool);

/* `*block`: an address, of the device where the kind is its; with OpenCL a cl_mem; null unless CISTERN_OK. CUDA's
 * memory is that of the current context. `alignment` in bytes: a power of two, or 0 for the kind's own; 0 with
 * OpenCL. */
CISTERN_API cistern_status cistern_pool_allocate(cistern_pool* pool, size_t bytes, size_t alignment, void** block);
/* Null is no block, and nothing is done. `queue`, OpenCL: as last_queue of cistern_opencl_deallocate; else null. */
CISTERN_API cistern_status cistern_pool_deallocate(cistern_pool* pool, void* block, void* queue);

/* `bytes`: sizeof *statistics; as many are written at most. */
CISTERN_API cistern_status cistern_pool_get_statistics(cistern_pool* pool, cistern_pool_statistics* statistics,
                                                       size_t bytes);
/* visit() for each block that is alive, and stays so meanwhile; not for those that come or go meanwhile. With no lock
 * held; anything but 0 ends it. */
CISTERN_API cistern_status cistern_pool_visit(cistern_pool* pool, int (*visit)(void* block, size_t bytes, void* user),
                                              void* user);
/* The driver's own code (CUresult, or OpenCL's cl_int) of the last call of this thread that CISTERN_DRIVER or
 * CISTERN_NO_MEMORY answered; else 0. */
CISTERN_API int cistern_native_error(void);

/* Look-ups of driver functions that were answered through cuGetProcAddress; `substituted`, unless null: how many of
 * them got a function of Cistern's. */
CISTERN_API uint64_t cistern_driver_lookups(uint64_t* substituted);

#ifdef __cplusplus
}
#endif
#endif
