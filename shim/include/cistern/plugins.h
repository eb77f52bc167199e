/* What frameworks take for an allocator: functions of their shapes, over Cistern's pools; and device memory in the
 * order of a stream, on which they rest. They are exported by name, for dlsym: by the object to preload and by
 * libcistern-shared.so alike. For Python there is a package that hands them over: shim/doc/plugins.md.
 *
 * For threads, units and errors see cistern.h. `stream`: a CUstream or cudaStream_t of the device; null is the legacy
 * default stream, whichever one the caller was compiled for ((CUstream)2 is that of the thread). Device memory is
 * that of a device's primary context, which is the runtime's. */
#ifndef CISTERN_PLUGINS_H
#define CISTERN_PLUGINS_H

#include <cistern/cistern.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cistern_pool; /* as in cistern/pool.h, which may include this before it has it */

/* --- Device memory in the order of a stream */

/* Work on `stream` may use the block immediately; other streams' may when they follow it. `pool`: one of
 * CISTERN_DEVICE. `device`: its ordinal, or CISTERN_CURRENT (device.h). A block that went back on the same stream is
 * given first: nothing waits, for what is enqueued now runs behind what used it. */
CISTERN_API cistern_status cistern_pool_allocate_on(struct cistern_pool* pool, size_t bytes, int device, void* stream,
                                                    void** block);
/* Work on `stream`, up to now, may still use the block, and work on no other stream. Nothing waits: it is given again
 * to who asks on this stream, and to others only when no more memory can be had otherwise, after that work has ended.
 * Where Cistern could not see the stream begin (in a program that links the library instead of preloading it), such a
 * block is given to nobody before that work has ended, at the price of an event. Null is no block. */
CISTERN_API cistern_status cistern_pool_deallocate_on(struct cistern_pool* pool, void* block, void* stream);
/* Work on this stream uses the block too: it is given again only after all work of its context that was there when it
 * went back, which waits where Cistern could not see this stream begin. CISTERN_INVALID: no live block of device memory
 * begins there. */
CISTERN_API cistern_status cistern_block_used_on(void* block, void* stream);

/* --- PyTorch: torch.cuda.memory.CUDAPluggableAllocator(path, "cistern_torch_alloc", "cistern_torch_free") */

/* Of a pool named "torch", whose figures a report shows. Null for no bytes. Without memory it throws a torch error
 * (c10::Error: RuntimeError in Python) where it is torch that calls, and otherwise is null: torch itself does not look.
 * Blocks that are allocated while `stream` captures are not given again. */
CISTERN_API void* cistern_torch_alloc(ssize_t size, int device, void* stream);
/* The same for a torch.cuda.MemPool: without memory it is null, for torch looks there. It gives back what it retains
 * outside of such pools, tries again, and raises torch.OutOfMemoryError. */
CISTERN_API void* cistern_torch_alloc_or_null(ssize_t size, int device, void* stream);
CISTERN_API void cistern_torch_free(void* block, ssize_t size, int device, void* stream);
/* As Tensor.record_stream: for set_record_stream_fn. */
CISTERN_API void cistern_torch_record_stream(void* block, void* stream);
/* That pool has segments (CISTERN_SEGMENTS in cistern/pool.h) unless this is called before any other call of this
 * section: then its blocks are whole allocations. CISTERN_TOO_LATE: it has segments. CISTERN_NO_MEMORY: there are too
 * many pools. */
CISTERN_API cistern_status cistern_torch_use_whole_blocks(void);
/* That pool; made at the first call. CISTERN_NO_MEMORY: there are too many pools. */
CISTERN_API cistern_status cistern_torch_pool(struct cistern_pool** pool);

/* --- NumPy: the functions of a PyDataMem_Handler */

/* Pinned memory of a pool of CISTERN_PINNED, `pool` being the handler's ctx; null: one named "numpy". A block that goes
 * back is given again only after all work that was there. Null on failure, as malloc. Blocks of no bytes are blocks. */
CISTERN_API void* cistern_numpy_malloc(void* pool, size_t bytes);
CISTERN_API void* cistern_numpy_calloc(void* pool, size_t count, size_t bytes);
CISTERN_API void* cistern_numpy_realloc(void* pool, void* block, size_t bytes);
CISTERN_API void cistern_numpy_free(void* pool, void* block, size_t bytes);

/* --- Where memory came from */

/* One call of the stack that led to an allocation. */
typedef struct cistern_frame {
  size_t struct_bytes;  /* sizeof this struct, as the library knows it */
  const char* function; /* null: unknown, as `file` and 0 for `line` */
  const char* file;     /* the place in Python code, as the interpreter has it */
  unsigned line;
  const char* module; /* the shared object or program; null of Python code */
  int is_python;
} cistern_frame;

/* visit() for each call, innermost first, of the site that a cistern_block names, as a report shows it. What it is
 * given is its own until it returns; anything but 0 ends the walk. Milliseconds where debug information is read for the
 * first time. Site 0 has none. */
CISTERN_API cistern_status cistern_visit_frames(uint32_t site, int (*visit)(const cistern_frame* frame, void* user),
                                                void* user);

#ifdef __cplusplus
}
#endif
#endif
