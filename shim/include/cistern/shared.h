/* Shared buffers: memory by name, which processes of one machine have in common. CISTERN_HOST: a file of /dev/shm,
 * "cistern-<user>-<name>", mapped by each. CISTERN_DEVICE: CUDA memory of the process that made it, which the others
 * open through the driver.
 *
 * Who has created or attached one is attached to it until detach, exit or death, however it dies: the kernel knows
 * (locks on the file), and nothing depends on a process ending well. As long as one process is attached nothing is
 * lost; the last one that detaches, or ends by exit, removes the file. Where all were killed the file is a leftover,
 * which the next call with that name removes, and so does the first call for shared buffers of any process of that
 * user, and cistern_shared_clean.
 *
 * Memory of a device lives no longer than the process that made it, the owner: nobody can attach after that, and who is
 * attached has no data any more (owner_lives). The owner can't detach before all others have: CISTERN_BUSY.
 *
 * Names are each user's own. What another user owns under such a name is never followed, changed or removed, nor are
 * symbolic links and files with a second link (CISTERN_DENIED), nor files of one's own that Cistern did not make
 * (CISTERN_EXISTS, CISTERN_MISMATCH). Whom `mode` lets in may write what the program reads, cut the file short (SIGBUS
 * for who touches it), keep the name taken; and a last one of another user leaves a leftover.
 *
 * Nothing is synchronised: what lies in the memory is, by those who write it. The memory holds no addresses, which
 * differ from process to process. For threads, units and errors see cistern.h. A child of fork keeps the memory and is
 * not attached: in it, cistern_shared_detach unmaps and does no more, and it attaches by name to be counted. Of device
 * memory it has nothing, as of all CUDA. File descriptors of the library's are closed on exec. */
#ifndef CISTERN_SHARED_H
#define CISTERN_SHARED_H

#include <cistern/cistern.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cistern_shared cistern_shared;

/* Any of these together. */
typedef enum cistern_shared_flags CISTERN_INT {
  CISTERN_READ_ONLY = 1,    /* attach: not to be written here; then a mode of 0644 lets others in. Host only */
  CISTERN_OF_OTHER_USER = 2 /* attach: one of `user`'s, not of one's own */
} cistern_shared_flags;

typedef struct cistern_shared_settings {
  size_t struct_bytes;  /* sizeof this struct, as the caller knows it */
  const char* name;     /* 1 to 200 bytes of letters, digits, '.', '_', '-'; the first no '.' */
  cistern_kind kind;    /* CISTERN_HOST or CISTERN_DEVICE */
  size_t bytes;         /* create: how large, not 0; attach: as large as it must be, 0: any */
  size_t element_bytes; /* of which `bytes` is a multiple; attach: what it must be, 0: any */
  uint64_t type;        /* the program's number for what lies in it; attach: what it must be, 0: any */
  unsigned mode;        /* create: permissions as of open(2), whatever the umask; 0600, which is 0 too, and more */
  unsigned flags;       /* attach: cistern_shared_flags */
  unsigned user;        /* attach, with CISTERN_OF_OTHER_USER: whose */
  int device;           /* CISTERN_DEVICE: in its primary context, where none is current */
} cistern_shared_settings;

/* The buffer that a handle stands for. */
typedef struct cistern_shared_view {
  size_t struct_bytes; /* sizeof this struct, as the caller knows it */
  void* address;       /* in this process, or of the device */
  size_t bytes;
  size_t element_bytes;
  uint64_t type;
  cistern_kind kind;
  int writable;    /* 0 or 1, as the next two */
  int owner;       /* CISTERN_DEVICE: this handle's create made it */
  int owner_lives; /* CISTERN_DEVICE: there is data */
} cistern_shared_view;

/* The memory is 0, and host memory begins on a page and is reserved whole: no SIGBUS later for want of memory.
 * cistern_native_error() is an errno value or a CUresult.
 *   CISTERN_INVALID     an argument; a kind that is not shared
 *   CISTERN_EXISTS      somebody is attached to one of this name; or it is a file that Cistern did not make
 *   CISTERN_DENIED      something of another user, or no plain file, has the name
 *   CISTERN_NO_MEMORY   /dev/shm is full; the address space, or a limit of the process is
 *   CISTERN_BUSY        another process is about to remove one, and has been stopped
 *   CISTERN_NO_DRIVER, CISTERN_DRIVER  CUDA; the system refused a file (EMFILE, no /dev/shm, no /proc) */
CISTERN_API cistern_status cistern_shared_create(const cistern_shared_settings* settings, cistern_shared** shared);
/* As above, and
 *   CISTERN_NOT_FOUND   nobody is attached to one of this name; or the owner of the device memory is gone
 *   CISTERN_DENIED      not permitted; or what has the name is not `user`'s
 *   CISTERN_MISMATCH    it has another kind, size, size of elements or type; or it is none of Cistern's
 * Any number of times, also in the process that created it; each is detached apart. */
CISTERN_API cistern_status cistern_shared_attach(const cistern_shared_settings* settings, cistern_shared** shared);
/* The memory is not there any more. CISTERN_BUSY: device memory of its owner, to which others are attached; nothing has
 * changed. CISTERN_DRIVER: it is detached, but the driver would not free it. */
CISTERN_API cistern_status cistern_shared_detach(cistern_shared* shared);
CISTERN_API cistern_status cistern_shared_get(cistern_shared* shared, cistern_shared_view* view);

/* Removes the leftovers of this user. `*removed`, unless null: how many. CISTERN_NOT_FOUND, CISTERN_DENIED: /dev/shm.
 */
CISTERN_API cistern_status cistern_shared_clean(size_t* removed);

#ifdef __cplusplus
}
#endif
#endif
