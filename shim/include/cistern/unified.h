/* Buffers that know where their data is: one in host memory and one on a device, and which of them is newer. Data moves
 * when a side is asked for that lacks it, and only what it lacks. For threads, units and errors see cistern.h; calls
 * for one buffer wait for each other. For C++: cistern/unified_buffer.hpp.
 *
 *   state          | host read          | host write         | device read        | device write
 *   uninitialised  | CISTERN_EMPTY      | host only          | CISTERN_EMPTY      | device dirty (all of it)
 *   host only      | -                  | -                  | synchronised  up   | device dirty  up
 *   device only    | synchronised  down | host dirty    down | -                  | -
 *   synchronised   | -                  | host dirty         | -                  | device dirty
 *   host dirty     | -                  | (more of it)       | synchronised  up   | device dirty  up
 *   device dirty   | synchronised  down | host dirty    down | -                  | (more of it)
 *
 * "up" and "down" say that what is newer is copied first. A read of a part copies that part alone: the rest stays
 * dirty, as it does of an "only". Memory that is overwritten (CISTERN_OVERWRITE) is not copied. All else is an error,
 * and nothing changes: CISTERN_CONFLICT where data would be lost.
 *
 * A copy that fails leaves the state as it was, less what was copied before it.
 *
 * Queues are CUstreams (but CU_STREAM_PER_THREAD, which is another one in each thread: CISTERN_INVALID), or in-order
 * cl_command_queues of the context. What a call copies is enqueued on the queue that it names, after what was enqueued
 * before on other queues of this buffer where that matters. A queue stays alive as long as the buffer knows it: until
 * cistern_unified_wait or the buffer's end.
 *
 * A child of fork has what was on the host, unless that was page-locked; all that needs the driver is CISTERN_NO_DRIVER
 * there. A buffer that another thread was using at that moment is of no use in the child: CISTERN_INVALID. */
#ifndef CISTERN_UNIFIED_H
#define CISTERN_UNIFIED_H

#include <cistern/cistern.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cistern_unified cistern_unified;

typedef enum cistern_state CISTERN_INT {
  CISTERN_UNINITIALISED = 0,
  CISTERN_HOST_ONLY = 1,
  CISTERN_DEVICE_ONLY = 2,
  CISTERN_SYNCHRONISED = 3,
  CISTERN_HOST_DIRTY = 4, /* newer on the host, in parts or as a whole */
  CISTERN_DEVICE_DIRTY = 5
} cistern_state;

typedef enum cistern_side CISTERN_INT { CISTERN_HOST_SIDE = 0, CISTERN_DEVICE_SIDE = 1 } cistern_side;

/* Page-locked host memory, with CUDA: copies are faster, and with a queue do not keep the caller waiting. */
typedef enum cistern_pin CISTERN_INT {
  CISTERN_PIN_WHEN_HOT = 0, /* where it lies, after more than ten transfers; from 64 KiB on */
  CISTERN_PIN_AT_ONCE = 1,
  CISTERN_PIN_NEVER = 2
} cistern_pin;

typedef struct cistern_unified_settings {
  size_t struct_bytes; /* sizeof this struct, as the caller knows it */
  size_t bytes;
  cistern_kind kind;           /* the device's side: CISTERN_DEVICE or CISTERN_OPENCL */
  int device;                  /* CUDA: in its primary context, or CISTERN_CURRENT */
  struct _cl_context* context; /* for kinds whose blocks are of a context: OpenCL */
  uint64_t flags;              /* OpenCL: of clCreateBuffer */
  void* queue;                 /* where no other is known. OpenCL: needed; CUDA: null is the default stream */
  cistern_pin pin;             /* OpenCL: nothing is pinned */
  int checked;                 /* while a thread writes on the host (until cistern_unified_end_write) all other calls
                                  that write, move or need the data answer CISTERN_BUSY */
  void* host;                  /* memory of the program's own for the host's side: it holds the data, and outlives the
                                  buffer; null: made at need */
} cistern_unified_settings;

#define CISTERN_TO_THE_END SIZE_MAX /* for `bytes` */

typedef struct cistern_unified_metrics {
  size_t struct_bytes;     /* sizeof this struct, as the caller knows it */
  uint64_t accesses, hits; /* hits: accesses for which nothing had to be copied */
  double hit_rate;         /* 0 to 1 */
  uint64_t copies_to_device, copies_to_host, bytes_to_device, bytes_to_host;
  uint64_t failed_copies;
  double seconds;             /* in copies to the host of 8 MiB and more */
  double bytes_per_second;    /* of those */
  double last_access_seconds; /* after the process's start; 0: none yet */
  int is_pinned;
} cistern_unified_metrics;

/* CISTERN_INVALID: no bytes, no such kind, no context or queue with OpenCL. No memory is taken yet. */
CISTERN_API cistern_status cistern_unified_create(const cistern_unified_settings* settings, cistern_unified** buffer);
/* Waits for what is known to use it. On failure the buffer is still there, and so is what could not be given back: it
 * may be destroyed again. */
CISTERN_API cistern_status cistern_unified_destroy(cistern_unified* buffer);

/* `*address`: of the part, valid until the buffer's end or cistern_unified_drop. The caller may touch the part at once.
 * CISTERN_BOUNDS; CISTERN_INVALID: no bytes. */
CISTERN_API cistern_status cistern_unified_host(cistern_unified* buffer, size_t offset, size_t bytes,
                                                cistern_access access, void** address);
/* Whoever writes on the host has done: for checked buffers. */
CISTERN_API cistern_status cistern_unified_end_write(cistern_unified* buffer);
/* `*address`: of the part on the device; with OpenCL the cl_mem of the whole buffer. For work that is enqueued on
 * `queue` from now on. */
CISTERN_API cistern_status cistern_unified_device(cistern_unified* buffer, size_t offset, size_t bytes,
                                                  cistern_access access, void* queue, void** address);

/* The part is newer on that side: it was written through an address from before, by work that has ended.
 * CISTERN_CONFLICT while the other side is newer anywhere, or has the only data; CISTERN_EMPTY. */
CISTERN_API cistern_status cistern_unified_mark(cistern_unified* buffer, cistern_side side, size_t offset,
                                                size_t bytes);
/* Both sides have the part alike, and what was copied is there. */
CISTERN_API cistern_status cistern_unified_synchronize(cistern_unified* buffer, size_t offset, size_t bytes,
                                                       void* queue);
/* All of it on the device, and device only: as cistern_enqueue_fill. CISTERN_CONFLICT: the host is dirty. Where the
 * driver fails, parts may be filled: it is host only then if the host had all, else device only. */
CISTERN_API cistern_status cistern_unified_fill(cistern_unified* buffer, const void* pattern, size_t pattern_bytes,
                                                void* queue);
/* That side's memory goes back: the other side has all data (CISTERN_CONFLICT: it has not), and is "only". */
CISTERN_API cistern_status cistern_unified_drop(cistern_unified* buffer, cistern_side side);
/* Until all queues that it knows have done their work; they are known no more. */
CISTERN_API cistern_status cistern_unified_wait(cistern_unified* buffer);

CISTERN_API cistern_status cistern_unified_get_state(cistern_unified* buffer, cistern_state* state);
/* The first dirty part at or after `*offset`: `*offset`, which stays as it was without one, and `*bytes`.
 * CISTERN_EMPTY: there is none. */
CISTERN_API cistern_status cistern_unified_next_dirty(cistern_unified* buffer, size_t* offset, size_t* bytes);
CISTERN_API cistern_status cistern_unified_get_metrics(cistern_unified* buffer, cistern_unified_metrics* metrics);

#ifdef __cplusplus
}
#endif
#endif
