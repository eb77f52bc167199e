/* Cistern's C interface: memory from the process's pools, figures, options, reports. With it come cistern/pool.h
 * (pools of one's own), cistern/device.h (devices, copies, managed memory), cistern/transfer.h (many copies),
 * cistern/queue.h (work in order), cistern/unified.h (buffers that know where their data is), cistern/mapped.h (files
 * on a device), cistern/shared.h (memory by name, across processes) and cistern/plugins.h (allocators of frameworks).
 * For C++ there is more: cistern/cistern.hpp.
 *
 * Usable from programs that link the library and, through weak references or dlsym, from programs that run under the
 * preloaded shim: there the same functions speak of the same pools.
 *
 * Thread-safety: every function may be called from any thread, at any time before exit, except inside a signal handler.
 * Units: sizes are bytes. Errors: as each function says; none aborts. Structs that begin with their size may grow:
 * what a caller does not know of is as if it were 0. */
#ifndef CISTERN_CISTERN_H
#define CISTERN_CISTERN_H

#include <stddef.h>
#include <stdint.h>

/* What a program gives may be any number. */
#ifdef __cplusplus
#define CISTERN_INT : int
#else
#define CISTERN_INT
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifndef CISTERN_API
#define CISTERN_API __attribute__((visibility("default")))
#endif

typedef enum cistern_kind CISTERN_INT {
  CISTERN_HOST = 0,   /* malloc, new: served from a pool of its own */
  CISTERN_OPENCL = 1, /* cl_mem, SVM, USM: buffers are recycled, the rest is tracked */
  CISTERN_DEVICE = 2, /* CUDA device memory of all devices, recycled */
  CISTERN_PINNED = 3, /* CUDA pinned host memory, recycled */
  CISTERN_MANAGED = 4 /* CUDA managed memory: tracked, never recycled; in pools only */
} cistern_kind;

/* The answer of most calls. */
typedef enum cistern_status CISTERN_INT {
  CISTERN_OK = 0,
  CISTERN_INVALID = 1,   /* an argument; a wrong block or pool is named in one line on stderr as well */
  CISTERN_NO_MEMORY = 2, /* nor after all that is kept went back */
  CISTERN_LIMIT = 3,     /* of the pool */
  CISTERN_BUSY = 4,      /* blocks of the pool are alive; another call uses it */
  CISTERN_NO_DRIVER = 5, /* no libcuda, or no OpenCL */
  CISTERN_DRIVER = 6,    /* the driver or the system refused: cistern_native_error() */
  CISTERN_TOO_LATE = 7,  /* an option that is in use already */
  CISTERN_EMPTY = 8,     /* nothing was written there yet */
  CISTERN_CONFLICT = 9,  /* data would be lost: the other side is newer, or has the only data */
  CISTERN_BOUNDS = 10,   /* beyond its end */
  CISTERN_MISMATCH = 11, /* sizes, types or kinds that are not the same */
  CISTERN_EXISTS = 12,   /* something of that name */
  CISTERN_NOT_FOUND = 13,
  CISTERN_DENIED = 14,   /* another user's, or not permitted */
  CISTERN_TRUNCATED = 15 /* the file is shorter than it was */
} cistern_status;

#define CISTERN_CURRENT (-1) /* for a device: the context that is current */

/* The use that memory is going to have. */
typedef enum cistern_access CISTERN_INT {
  CISTERN_READ = 0,
  CISTERN_WRITE = 1,    /* and read */
  CISTERN_OVERWRITE = 2 /* all of the part: what it had is of no interest */
} cistern_access;

typedef enum cistern_format CISTERN_INT { CISTERN_TEXT = 0, CISTERN_JSON = 1 } cistern_format;

/* Figures of one kind since the process started (in a forked child: since the fork). */
typedef struct cistern_statistics {
  uint64_t allocations, frees;     /* calls that gave, or ended, a block */
  uint64_t pool_hits, pool_misses; /* among the allocations that a pool could serve */
  uint64_t driver_allocs, driver_frees;
  uint64_t live_blocks, live_bytes;     /* in the program's hands now */
  uint64_t peak_bytes;                  /* high-water mark of live_bytes; host: of its pages in use */
  uint64_t pooled_blocks, pooled_bytes; /* kept for reuse; never a leak */
  uint64_t largest_pooled_bytes;
  uint64_t failed; /* allocations that the program saw fail */
} cistern_statistics;

/* More of the same, of one kind or of one of its devices. */
typedef struct cistern_figures {
  double seconds; /* that they are about: since the start, or the fork */
  uint64_t allocations, frees, failed;
  uint64_t pool_hits, pool_misses;
  uint64_t allocated_bytes;                        /* in all */
  double allocations_per_second, bytes_per_second; /* over all that time */
  double hit_rate;                                 /* share of all allocations, 0 to 1 */
  uint64_t live_blocks, live_bytes, peak_bytes;    /* as in cistern_statistics */
  uint64_t reserved_bytes, reserved_peak_bytes;    /* the pool's memory from the system or driver, with blocks */
  uint64_t free_bytes, largest_free_bytes;         /* the part of it that is kept for reuse */
  double internal_fragmentation;                   /* the part of live blocks that was not asked for, 0 to 1 */
  double external_fragmentation;                   /* 1 - largest free / free; 0 where whole blocks are kept */
  double reserved_per_live_at_peak;                /* reserved_peak_bytes / peak_bytes; 0: nothing was live */
  /* when most of what was reserved was not live; host: 0, unknown */
  uint64_t worst_reserved_bytes, worst_live_bytes;
  double worst_at_seconds;
} cistern_figures;

/* `device`: of CISTERN_DEVICE an ordinal, else 0; -1: all together. Writes `bytes` (sizeof *figures) at most. It takes
 * a snapshot of the whole kind: milliseconds where a million blocks live. CISTERN_INVALID: no such kind or device. A
 * kind that was never used has figures of 0. */
CISTERN_API cistern_status cistern_get_figures(cistern_kind kind, int device, cistern_figures* figures, size_t bytes);

/* An option as by environment: "CISTERN_REPORT", and a text. All are settable until Cistern reads them, which is the
 * first call of another function of a program that links the library, and the program's start under the preloaded
 * shim; what is read at the end only (reports, exit codes, suppressions) until then. CISTERN_TOO_LATE: not any more.
 * CISTERN_INVALID: no such option or value, and one line. */
CISTERN_API cistern_status cistern_set_option(const char* name, const char* value);

/* A live block. `frames`: addresses of the calls that led to it, innermost first, in this process. */
typedef struct cistern_block {
  size_t size; /* size of this struct, as the library knows it */
  cistern_kind kind;
  int device;    /* -1: of none */
  void* address; /* or a cl_mem */
  uint64_t bytes;
  const char* call;    /* the call that allocated it, as "cuMemAlloc_v2" */
  double born_seconds; /* after the start */
  const void* const* frames;
  size_t frame_count; /* 0: no site is known */
  uint32_t site;      /* its number, for cistern_visit_frames; 0: none is known */
} cistern_block;

/* visit() for each block of the kind that is alive: blocks that come or go meanwhile may be missing, or gone. Host
 * blocks: those whose site is kept (CISTERN_SITES: samples, or all). With no lock held; what it is given is its own
 * until it returns; anything but 0 ends the walk. */
CISTERN_API cistern_status cistern_visit(cistern_kind kind, int (*visit)(const cistern_block* block, void* user),
                                         void* user);

/* Gives back what nobody has used for a second, and host memory's free pages: what stays is the cache of what is in
 * use. Blocks are not moved: the program has their addresses. Returns the bytes given back. */
CISTERN_API size_t cistern_defragment(cistern_kind kind);

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
/* As realloc, but of no bytes: a block of none. Null on failure, and `block` is as it was: ENOMEM; EINVAL, and a line:
 * no live block. */
CISTERN_API void* cistern_reallocate(void* block, size_t bytes);

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

/* The code behind this thread's last call that answered a cistern_status but CISTERN_OK: CUresult, OpenCL's cl_int, or
 * an errno value where the system was asked; 0 where neither was. */
CISTERN_API int cistern_native_error(void);

/* Look-ups of driver functions that were answered through cuGetProcAddress; `substituted`, unless null: how many of
 * them got a function of Cistern's. */
CISTERN_API uint64_t cistern_driver_lookups(uint64_t* substituted);

#ifdef __cplusplus
}
#endif

#include <cistern/device.h>
#include <cistern/mapped.h>
#include <cistern/plugins.h>
#include <cistern/pool.h>
#include <cistern/queue.h>
#include <cistern/shared.h>
#include <cistern/transfer.h>
#include <cistern/unified.h>
#endif
