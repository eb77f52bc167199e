/* Files that are larger than a device's memory, seen there in chunks: read through page-locked memory into one chunk
 * while work on another one runs, and written back where they were written. For threads, units and errors see
 * cistern.h; calls for one file wait for each other. For C++: cistern/mapped_file.hpp.
 *
 *   acquire(i) -> work is enqueued on the queue -> release(i) -> acquire(i + 1) reads while that work runs -> ...
 *
 * The file is read and written by calls, not mapped: so its errors are answers (CISTERN_DRIVER and an errno value; a
 * file that somebody made shorter: CISTERN_TRUNCATED) and no signal. Queues: CUstreams but CU_STREAM_PER_THREAD, or
 * in-order cl_command_queues. In a child of fork a file can be closed, which does nothing to the parent's; all else
 * answers CISTERN_NO_DRIVER. One that another thread was using at that moment is of no use in the child. */
#ifndef CISTERN_MAPPED_H
#define CISTERN_MAPPED_H

#include <cistern/cistern.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cistern_mapped cistern_mapped;

typedef struct cistern_mapped_settings {
  size_t struct_bytes;         /* sizeof this struct, as the caller knows it */
  const char* path;            /* of a regular file */
  size_t chunk_bytes;          /* 0: 256 MiB */
  unsigned chunks_on_device;   /* at once, 2 to 64; 0: 2 */
  cistern_kind kind;           /* CISTERN_DEVICE or CISTERN_OPENCL */
  int device;                  /* CUDA: in its primary context, or CISTERN_CURRENT */
  struct _cl_context* context; /* OpenCL */
  uint64_t flags;              /* OpenCL: of clCreateBuffer */
  void* queue;                 /* OpenCL: of the device that is meant, alive as long as the file; not used otherwise */
  int writable;
  uint64_t bytes; /* writable: what the file must have at least, made if need be; 0: as it is */
} cistern_mapped_settings;

typedef struct cistern_mapped_info {
  size_t struct_bytes;                 /* sizeof this struct, as the caller knows it */
  uint64_t bytes, chunk_bytes, chunks; /* the last chunk may be shorter */
  uint64_t reads, bytes_read;          /* chunks read from the file */
  uint64_t writes, bytes_written;      /* chunks written back */
  uint64_t accesses, hits;             /* hits: of chunks that were on the device already */
  uint64_t dirty_chunks;               /* on the device: not written back yet */
} cistern_mapped_info;

/* CISTERN_NOT_FOUND, CISTERN_DENIED; CISTERN_INVALID: no regular file. */
CISTERN_API cistern_status cistern_mapped_open(const cistern_mapped_settings* settings, cistern_mapped** file);
/* Waits for work on chunks and writes back. Where that fails the file stays open, and nothing is lost: call again, or
 * cistern_mapped_forget. CISTERN_BUSY: chunks are acquired. */
CISTERN_API cistern_status cistern_mapped_close(cistern_mapped* file);

/* Chunk `index` on the device, for work that is enqueued on `queue` from now on: `*address` (OpenCL: a cl_mem) and
 * `*bytes`. CISTERN_WRITE and CISTERN_OVERWRITE: it will be written back. CISTERN_BUSY: it is acquired already, or all
 * the room is; CISTERN_BOUNDS; CISTERN_DENIED: not opened for writing. It waits for released work on the chunk whose
 * room it takes, and writes that one back. Where the write fails, that chunk stays on the device and the room of
 * another one is taken; cistern_mapped_flush and cistern_mapped_close answer the error. This call answers it only where
 * all room is acquired or cannot be written back. */
CISTERN_API cistern_status cistern_mapped_acquire(cistern_mapped* file, uint64_t index, cistern_access access,
                                                  void* queue, void** address, size_t* bytes);
/* The work is enqueued on `queue` (as acquire's, by rule). Nothing is waited for. */
CISTERN_API cistern_status cistern_mapped_release(cistern_mapped* file, uint64_t index, void* queue);

/* Writes back what was written and released, and has the system write it to the disk. The answer is the first error;
 * the other chunks are written all the same. */
CISTERN_API cistern_status cistern_mapped_flush(cistern_mapped* file);
/* What was written to chunks that are released is lost. */
CISTERN_API cistern_status cistern_mapped_forget(cistern_mapped* file);
CISTERN_API cistern_status cistern_mapped_get_info(cistern_mapped* file, cistern_mapped_info* info);

#ifdef __cplusplus
}
#endif
#endif
