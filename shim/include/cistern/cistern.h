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
 * Units: sizes are bytes.
 *
 * Errors: a function that can fail returns a cistern_status, and none aborts. It gives its results through its last
 * arguments, which are pointers: what they point to is null or 0 unless the function returns CISTERN_OK. An argument
 * that passes a value too stays as it was (cistern_pool_reallocate, cistern_unified_next_dirty). Exceptions are
 * cistern_allocate and cistern_reallocate, which are like malloc, and the functions whose shape a framework demands
 * (cistern/plugins.h). A function that returns something else cannot fail.
 *
 * Structs: each begins with `struct_bytes`, its size, and may grow at its end. The caller sets it to sizeof the struct,
 * whether it passes values or receives them. A struct of an older caller is shorter: fields that it lacks are 0. A
 * struct of a newer caller is longer: what the library does not know of must be 0 where it is read, and is set to 0
 * where it is written. A struct that the library hands to a function of the program has the library's size.
 * CISTERN_INVALID: a size of 0, a size that lacks what the struct must have, or a field that is not known and not 0. */
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

/* Whether a call succeeded, or why it did not. */
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

/* One English phrase for each status, as "out of memory". Static, and never null: "unknown status" for all others. */
CISTERN_API const char* cistern_status_text(cistern_status status);

/* The code behind the last call of this thread that returned another status than CISTERN_OK: CUresult, OpenCL's cl_int,
 * or an errno value where the system was asked; 0 where neither was. */
CISTERN_API int cistern_native_error(void);

/* Figures of one kind since the process started (in a forked child: since the fork). */
typedef struct cistern_statistics {
  size_t struct_bytes;             /* sizeof this struct, as the caller knows it */
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
  size_t struct_bytes; /* sizeof this struct, as the caller knows it */
  double seconds;      /* that they are about: since the start, or the fork */
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

/* `device`: of CISTERN_DEVICE an ordinal, else 0; -1: all together. It takes a snapshot of the whole kind: milliseconds
 * where a million blocks live. CISTERN_INVALID: no such kind or device. A kind that was never used has figures of 0. */
CISTERN_API cistern_status cistern_get_figures(cistern_kind kind, int device, cistern_figures* figures);

/* An option as by environment: "CISTERN_REPORT", and a text. All are settable until Cistern reads them, which is the
 * first call of another function of a program that links the library, and the program's start under the preloaded
 * shim; what is read at the end only (reports, exit codes, suppressions) until then. CISTERN_TOO_LATE: not any more.
 * CISTERN_INVALID: no such option or value, and one line. */
CISTERN_API cistern_status cistern_set_option(const char* name, const char* value);

/* A live block. `frames`: addresses of the calls that led to it, innermost first, in this process. */
typedef struct cistern_block {
  size_t struct_bytes; /* sizeof this struct, as the library knows it */
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

/* Gives back memory that was not used for a second, and host memory's free pages. The rest is the cache of what is in
 * use. Ranges and segments give back what was not needed since the call before. Blocks are not moved, because the
 * program has their addresses. `*returned_bytes`, unless null: the bytes given back. CISTERN_INVALID: no such kind. */
CISTERN_API cistern_status cistern_defragment(cistern_kind kind, size_t* returned_bytes);

/* The version, as "1.2.3". Static. */
CISTERN_API const char* cistern_version(void);

/* CISTERN_INVALID: no such kind, or CISTERN_MANAGED, which has no such figures (cistern_get_figures). */
CISTERN_API cistern_status cistern_get_statistics(cistern_kind kind, cistern_statistics* statistics);

/* Gives pooled memory of `kind` back, the oldest unused first, until `keep_bytes` are left. The rest is as
 * cistern_defragment. */
CISTERN_API cistern_status cistern_trim(cistern_kind kind, size_t keep_bytes, size_t* returned_bytes);

/* Writes a report of this moment to `path`. It speaks of live blocks, not of leaks: the program is still running.
 * CISTERN_EXISTS: an existing file is not overwritten. CISTERN_NOT_FOUND, CISTERN_DENIED: the folder.
 * CISTERN_NO_MEMORY: the file system is full. The errno value is the native error. */
CISTERN_API cistern_status cistern_report(const char* path, cistern_format format);

/* Host memory from the pool. This call and cistern_reallocate are like malloc and realloc, so that they can stand where
 * those stand: they return the block, or null with errno, and set no native error. `alignment`: a power of two, or 0
 * for that of malloc. ENOMEM; EINVAL: another alignment. */
CISTERN_API void* cistern_allocate(size_t bytes, size_t alignment);
/* As realloc, but of no bytes: a block of none. Where it fails, `block` is as it was. ENOMEM; EINVAL, and a line: no
 * live block. */
CISTERN_API void* cistern_reallocate(void* block, size_t bytes);
/* CISTERN_INVALID, and a line: no live block. Null is no block, and nothing is done. */
CISTERN_API cistern_status cistern_deallocate(void* block);

/* OpenCL buffers from the pool. The types are OpenCL's own. */
struct _cl_context;
struct _cl_mem;
struct _cl_command_queue;

/* As clCreateBuffer without a host pointer. A context becomes known at its first buffer. */
CISTERN_API cistern_status cistern_opencl_allocate(struct _cl_context* context, uint64_t flags, size_t bytes,
                                                   struct _cl_mem** buffer);

/* As clReleaseMemObject; null is CISTERN_INVALID. `last_queue`: a queue whose commands, enqueued up to now, may still
 * use the buffer, or null when none does. The buffer is not given again before they have ended; nothing waits. Under
 * the preloaded shim the queues are known, and null is always right. */
CISTERN_API cistern_status cistern_opencl_deallocate(struct _cl_mem* buffer, struct _cl_command_queue* last_queue);

/* To be called before the last clReleaseContext, in programs that link the library: releases what the pool keeps of
 * this context. Not needed under the preloaded shim. */
CISTERN_API void cistern_opencl_forget_context(struct _cl_context* context);

/* CUDA device memory from the pool, in the current context. As cuMemAlloc and cuMemFree: a deallocation waits for the
 * work of the block's context (CISTERN_DEVICE_ORDER). CISTERN_NO_DRIVER: no libcuda, or no device. */
CISTERN_API cistern_status cistern_cuda_allocate(size_t bytes, unsigned long long* pointer);
CISTERN_API cistern_status cistern_cuda_deallocate(unsigned long long pointer);

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
