/* Work in order, the same with CUDA and with OpenCL: copies and fills of parts of blocks, on a stream or queue; one
 * that follows another; waiting for one. For threads, units and errors see cistern.h.
 *
 * `queue` is a CUstream, or a cl_command_queue that runs its commands in order. It belongs to the context that is
 * meant: of CUDA the primary one of `device`, or with CISTERN_CURRENT the one that is current. Null is CUDA's default
 * stream, and then the call returns when the work is done; with OpenCL CISTERN_INVALID. */
#ifndef CISTERN_QUEUE_H
#define CISTERN_QUEUE_H

#include <cistern/cistern.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where something begins: `offset` bytes into a block, which is an address or, with CISTERN_OPENCL, a cl_mem.
 * CISTERN_HOST is any memory of the host. */
typedef struct cistern_part {
  size_t struct_bytes; /* sizeof this struct, as the caller knows it */
  cistern_kind kind;
  void* block;
  size_t offset;
} cistern_part;

/* Between host memory, CUDA's kinds and devices, or between host memory and OpenCL buffers: no other mixture, which is
 * CISTERN_MISMATCH. Parts do not overlap. With a queue, memory of the host may be in use until that work is done.
 * Between two parts of the host it is done when the call returns. */
CISTERN_API cistern_status cistern_enqueue_copy(const cistern_part* target, const cistern_part* source, size_t bytes,
                                                int device, void* queue);
/* `pattern`, any number of bytes, again and again; of the last one as much as there is room for. It is read before this
 * returns. */
CISTERN_API cistern_status cistern_enqueue_fill(const cistern_part* target, const void* pattern, size_t pattern_bytes,
                                                size_t bytes, int device, void* queue);
/* What is enqueued on `queue` from now on begins after what was enqueued on `other`. `kind`: CISTERN_DEVICE, for all of
 * CUDA, or CISTERN_OPENCL. */
CISTERN_API cistern_status cistern_queue_follow(cistern_kind kind, int device, void* queue, void* other);
/* Until all that was enqueued there is done. */
CISTERN_API cistern_status cistern_queue_wait(cistern_kind kind, int device, void* queue);

#ifdef __cplusplus
}
#endif
#endif
