/* CUDA's devices: what memory they have, copies between them, and managed memory. For threads, units and errors see
 * cistern.h. A device is its ordinal, as cuDeviceGet counts them; what is done on it is done in its primary context,
 * which is made at need and kept. The current context stays current.
 * Calls that name no device mean the current context. A thread that has none gets, and keeps, the one that CUDA's
 * runtime would give it: the primary one of the device that it chose with cudaSetDevice, or of the first device.
 * The first call that needs CUDA loads libcuda and initialises it. CISTERN_NO_DRIVER: no libcuda, or no device.
 * CISTERN_INVALID: no such device. */
#ifndef CISTERN_DEVICE_H
#define CISTERN_DEVICE_H

#include <cistern/cistern.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cistern_memory_info {
  size_t struct_bytes; /* sizeof this struct, as the caller knows it */
  uint64_t total_bytes;
  uint64_t free_bytes;   /* as the driver says; what is kept for reuse is free */
  uint64_t live_bytes;   /* this process's: memory of the device that it has through calls that Cistern sees */
  uint64_t cached_bytes; /* this process's: kept for reuse */
} cistern_memory_info;

/* As CUmem_advise. */
typedef enum cistern_advice CISTERN_INT {
  CISTERN_READ_MOSTLY = 1,
  CISTERN_UNSET_READ_MOSTLY = 2,
  CISTERN_PREFERRED_LOCATION = 3,
  CISTERN_UNSET_PREFERRED_LOCATION = 4,
  CISTERN_ACCESSED_BY = 5,
  CISTERN_UNSET_ACCESSED_BY = 6
} cistern_advice;

#define CISTERN_CPU (-1) /* for a device, where memory of the host is meant */

/* CISTERN_NO_DRIVER: there is none. */
CISTERN_API cistern_status cistern_device_count(int* count);

CISTERN_API cistern_status cistern_device_memory(int device, cistern_memory_info* info);

/* Whether work on `device` may use memory of `peer`: `*can`, 0 or 1. */
CISTERN_API cistern_status cistern_device_can_access(int device, int peer, int* can);
/* Lets it, or no more. CISTERN_OK too where it is so already, as of a device and itself. */
CISTERN_API cistern_status cistern_device_let_access(int device, int peer, int enable);

/* Copies between any two of host, pinned, device and managed memory, also of two devices. `stream`: a CUstream, on
 * which it is enqueued as cuMemcpyAsync does; null: it waits until all is there. In the current context, or where
 * there is none in that of `device`. */
CISTERN_API cistern_status cistern_copy(void* target, const void* source, size_t bytes, int device, void* stream);

/* As cuMemAdvise and cuMemPrefetchAsync: managed memory, or part of it. `device` may be CISTERN_CPU. */
CISTERN_API cistern_status cistern_advise(void* block, size_t bytes, cistern_advice advice, int device);
CISTERN_API cistern_status cistern_prefetch(void* block, size_t bytes, int device, void* stream);

#ifdef __cplusplus
}
#endif
#endif
