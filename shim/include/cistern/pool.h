/* Pools of one's own: memory of one kind, with a name, a limit and figures, which the report shows.
 *
 * A pool is an account: what is kept for reuse is kept for all pools of its kind together, unless the pool has segments
 * of its own. Any number of pools may exist. A handle that is no pool's any more is told from all others. For threads,
 * units and errors see cistern.h. */
#ifndef CISTERN_POOL_H
#define CISTERN_POOL_H

#include <cistern/cistern.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What of a request, or of a pool's settings, counts: any of these together. */
typedef enum cistern_where CISTERN_INT {
  CISTERN_ANYWHERE = 0,
  CISTERN_ON_DEVICE = 1, /* CUDA: of `device`, in its primary context; else: of the current context */
  CISTERN_ON_NODE = 2,   /* host: preferably of NUMA node `node` */
  CISTERN_HUGE_PAGES = 4 /* host: in transparent huge pages, where the system has them */
} cistern_where;

/* Where a pool's blocks come from. */
typedef enum cistern_pool_memory CISTERN_INT {
  /* Each block is a whole allocation, which all pools of the kind reuse for requests of about its size. */
  CISTERN_WHOLE_BLOCKS = 0,
  /* Device and pinned memory: the pool has large allocations of its own, cuts blocks out of them and joins what is
   * freed. That takes fewer calls of the driver where sizes vary. The driver knows the segments and not the blocks:
   * cuMemGetAddressRange answers with the segment, and a handle of cuIpcGetMemHandle opens the segment, in which the
   * block lies at the offset that its address has. Under the preloaded object, cuMemFree refuses a block with a line.
   * Segments without blocks go back when memory is trimmed or runs out, or when the pool is destroyed.
   * Blocks that options exclude from reuse are whole allocations. So are blocks for a stream that captures, and all
   * blocks if the driver lacks functions. */
  CISTERN_SEGMENTS = 1
} cistern_pool_memory;

typedef struct cistern_pool cistern_pool;

typedef struct cistern_pool_settings {
  size_t struct_bytes; /* sizeof this struct, as the caller knows it */
  const char* name;    /* for reports; copied, 63 bytes at most; null: "pool" */
  cistern_kind kind;
  struct _cl_context* context; /* OpenCL: where buffers are made */
  uint64_t flags;              /* OpenCL: of clCreateBuffer; pinned: of cuMemHostAlloc; managed: of cuMemAllocManaged,
                                  0: attached globally */
  size_t bytes_max;            /* most bytes of blocks that are alive together; 0: no limit */
  /* Called where memory or the limit ran out, with no lock held, any number of times: give something back (of this
   * pool too) and return anything but 0, and the allocation is tried once more. Null: it fails. */
  int (*out_of_memory)(cistern_pool* pool, size_t bytes, void* user);
  /* Called after a block was given, and before it goes back, in the thread that asked. Null: no function is called. */
  void (*allocated)(cistern_pool* pool, void* block, size_t bytes, void* user);
  void (*deallocated)(cistern_pool* pool, void* block, size_t bytes, void* user);
  void* user;
  unsigned where; /* cistern_where, of all blocks */
  int device, node;
  cistern_pool_memory memory;
} cistern_pool_settings;

/* One block. All 0 but `struct_bytes` and `bytes`: as the pool's settings have it. */
typedef struct cistern_request {
  size_t struct_bytes; /* sizeof this struct, as the caller knows it */
  size_t bytes;
  size_t alignment; /* a power of two, or 0 for the kind's own; 0 with OpenCL */
  uint64_t flags;   /* 0: those of the pool */
  unsigned where;   /* 0: as the pool's */
  int device, node;
  struct _cl_context* context; /* OpenCL, of the process's own pool: where */
} cistern_request;

/* Figures of one pool since it was made (in a forked child, of allocations: since the fork). */
typedef struct cistern_pool_statistics {
  size_t struct_bytes;                 /* sizeof this struct, as the caller knows it */
  uint64_t allocations, frees, failed; /* calls */
  uint64_t live_blocks, live_bytes, peak_bytes;
  uint64_t allocated_bytes;                        /* in all */
  uint64_t bytes_max;                              /* 0: no limit */
  uint64_t pool_hits;                              /* of the allocations: with memory that was kept; host: 0, unknown */
  double seconds;                                  /* since it was made, or the fork */
  double allocations_per_second, bytes_per_second; /* over all that time */
  uint64_t segments, segment_bytes;                /* now; 0: the pool has none of its own */
  uint64_t segments_made;                          /* in all: each is an allocation of the driver's */
} cistern_pool_statistics;

/* CISTERN_INVALID: no such kind, no context with OpenCL; `where` is not for the kind; or its memory cannot be cut into
 * blocks, which a line says. */
CISTERN_API cistern_status cistern_pool_create(const cistern_pool_settings* settings, cistern_pool** pool);
/* CISTERN_BUSY: blocks are alive; nothing has changed. CISTERN_INVALID too: the process's own. */
CISTERN_API cistern_status cistern_pool_destroy(cistern_pool* pool);
/* The process's own pool of a kind, which malloc, cistern_allocate and the like take from: its figures are the kind's,
 * and its blocks those of all such calls, each of which any of them may free. Its blocks have no node or huge pages,
 * and no larger alignment than the kind's own (device: 256, pinned: 64). It is there until the process ends.
 * CISTERN_INVALID: no such kind. */
CISTERN_API cistern_status cistern_pool_default(cistern_kind kind, cistern_pool** pool);

/* `*block`: an address, of the device where the kind is its; with OpenCL a cl_mem. CUDA's
 * memory is that of the current context. `alignment` in bytes: a power of two, or 0 for the kind's own; 0 with
 * OpenCL. */
CISTERN_API cistern_status cistern_pool_allocate(cistern_pool* pool, size_t bytes, size_t alignment, void** block);
/* CISTERN_INVALID: no bytes; alignment or `where` that the kind does not have; a node or device that is not there. */
CISTERN_API cistern_status cistern_pool_allocate_as(cistern_pool* pool, const cistern_request* request, void** block);
/* `*block`, which may be null, with `bytes` now: what both sizes have of its contents stays; it may lie elsewhere. On
 * failure it is as it was; no bytes: CISTERN_INVALID. Device memory, managed memory and buffers are copied where they
 * move, and waited for; OpenCL: by `queue`, which must be one of the pool's context. Alignment and `where`: as the
 * pool's settings have it.
 */
CISTERN_API cistern_status cistern_pool_reallocate(cistern_pool* pool, void** block, size_t bytes, void* queue);
/* Keeps memory for `count` blocks of `bytes` more, which the kind has made or made resident now, until it is trimmed or
 * memory runs out: so many allocations of that size find it there. It is the kind's, for all its pools, or in segments
 * of the pool; no pool's limit is asked, and nothing is counted but the calls of the driver. On failure what could be
 * made is kept. CISTERN_INVALID: managed memory, and host memory that another allocator serves; CISTERN_DRIVER: the
 * kind's own pool is off. */
CISTERN_API cistern_status cistern_pool_reserve(cistern_pool* pool, size_t bytes, size_t count);
/* Null is no block, and nothing is done. `queue`, OpenCL: as last_queue of cistern_opencl_deallocate.
 * CUDA's device and pinned memory: a CUstream of the block's context whose work, up to now, may still use the block;
 * then nothing waits, and the block is not given again before all work of its context has ended that was there: on
 * `queue`, and on all streams that Cistern saw begin (the default ones; under the preloaded shim every one). Null: as
 * the driver's own free, which waits. In a pool with segments, cistern_pool_allocate_on may give it immediately to
 * a later request on the same stream. */
CISTERN_API cistern_status cistern_pool_deallocate(cistern_pool* pool, void* block, void* queue);

CISTERN_API cistern_status cistern_pool_get_statistics(cistern_pool* pool, cistern_pool_statistics* statistics);
/* visit() for each block that is alive, and stays so meanwhile; not for those that come or go meanwhile. With no lock
 * held; anything but 0 ends it. */
CISTERN_API cistern_status cistern_pool_visit(cistern_pool* pool, int (*visit)(void* block, size_t bytes, void* user),
                                              void* user);
/* visit() for each segment of a pool with segments, and for none of another pool. `device`: the
 * ordinal of the device whose context made it. As cistern_pool_visit; a segment may go back meanwhile. */
CISTERN_API cistern_status cistern_pool_visit_segments(
    cistern_pool* pool, int (*visit)(void* segment, size_t bytes, int device, void* user), void* user);
#ifdef __cplusplus
}
#endif
#endif
