/* Many copies as one: a transfer has copies, runs them by priority, a few at a time, tries those again that failed, and
 * says what became of each. CUDA: between host and device memory in any direction, and between devices. OpenCL: reads
 * and writes of buffers. Copies of pageable memory go through pinned chunks where that is faster, as all others do.
 *
 * For threads, units and errors see cistern.h. A transfer has threads of its own while it runs. In a forked child its
 * copies are gone, and all calls but cistern_transfer_destroy answer CISTERN_INVALID. */
#ifndef CISTERN_TRANSFER_H
#define CISTERN_TRANSFER_H

#include <cistern/cistern.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cistern_transfer cistern_transfer;
struct _cl_event;

typedef struct cistern_transfer_settings {
  size_t struct_bytes;         /* sizeof this struct, as the caller knows it */
  unsigned copies_at_once;     /* 1 to 64; 0: 2 */
  unsigned retries;            /* of a copy that failed, each after a pause; not where arguments or context are wrong */
  unsigned pause_microseconds; /* the first; the next is twice as long, a second at most; 0: 1000 */
  int device;                  /* CUDA, where no context is current: of which device */
  /* Called after each copy, in a thread of the transfer, with no lock held. It may add copies. */
  void (*done)(cistern_transfer* transfer, uint64_t copy, cistern_status status, int native_error, void* user);
  void* user;
} cistern_transfer_settings;

/* OpenCL where `buffer` is set: `host` to it or from it, at `offset`. Else CUDA: `target` and `source`. Memory must
 * stay until the copy is done. */
typedef struct cistern_copy_request {
  size_t struct_bytes; /* sizeof this struct, as the caller knows it */
  size_t bytes;
  int priority; /* larger ones begin first; of equals the one that was added first */
  void* target;
  const void* source;
  struct _cl_command_queue* queue;
  struct _cl_mem* buffer;
  void* host;
  size_t offset;
  int to_device; /* OpenCL: 1 writes the buffer, 0 reads it */
} cistern_copy_request;

typedef struct cistern_transfer_statistics {
  size_t struct_bytes;                    /* sizeof this struct, as the caller knows it */
  uint64_t copies, done, failed, retried; /* retried: attempts after the first */
  uint64_t waiting, running;              /* merged ones run as one */
  uint64_t bytes_done;
  uint64_t running_at_once; /* the most */
  double seconds;           /* in which at least one ran */
  double bytes_per_second;
  uint64_t merged; /* copies of 64 KiB at most that were made as one with those before them, which they continue */
} cistern_transfer_statistics;

/* In the context that is current now, or the primary one of settings->device. CISTERN_INVALID: more than 64 at once. No
 * driver is asked before the first copy. */
CISTERN_API cistern_status cistern_transfer_create(const cistern_transfer_settings* settings,
                                                   cistern_transfer** transfer);
/* Waits for the copies that run, drops those that wait, and ends the threads. Not in done(): CISTERN_BUSY. */
CISTERN_API cistern_status cistern_transfer_destroy(cistern_transfer* transfer);

/* Queues a copy, which may begin immediately. `copy`, unless null: its number, from 1 on. */
CISTERN_API cistern_status cistern_transfer_add(cistern_transfer* transfer, const cistern_copy_request* request,
                                                uint64_t* copy);
/* While held nothing begins: copies that are added together begin in the order of their priority. */
CISTERN_API cistern_status cistern_transfer_hold(cistern_transfer* transfer, int hold);
/* Until all copies have ended: CISTERN_OK; CISTERN_BUSY: not within `seconds` (negative: no limit); CISTERN_DRIVER:
 * they have, and one or more failed. */
CISTERN_API cistern_status cistern_transfer_wait(cistern_transfer* transfer, double seconds);
/* The next copy that failed, each once: its number, status and native code; each pointer may be null. CISTERN_EMPTY:
 * none is left. */
CISTERN_API cistern_status cistern_transfer_next_failed(cistern_transfer* transfer, uint64_t* copy,
                                                        cistern_status* status, int* native_error);
CISTERN_API cistern_status cistern_transfer_get_statistics(cistern_transfer* transfer,
                                                           cistern_transfer_statistics* statistics);

#ifdef __cplusplus
}
#endif
#endif
