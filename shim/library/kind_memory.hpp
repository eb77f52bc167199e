// The library's demands on memory. A kind fills one table for each cistern_kind it stands for, and one for the work on
// that memory. Its `Kind` names them (process/kind.hpp), and its folder has them (shim/cuda/library, tests/toy/kind).
// The library knows a kind by these tables only: a pool, a transfer, a queue, a file and a buffer on both sides go
// through them.
//
// Functions answer the library's statuses and note the driver's own code (answers.hpp). A function may be null where
// its comment says what that means. The members that are not functions are attributes: .github/CONTRIBUTING.md says how
// to add one. Devices are ordinals, or CISTERN_CURRENT.
#pragma once
#include "pool/ranges/extents.hpp"
#include "pool/source.hpp"
#include "shim/library/library.hpp"

namespace cistern::library {

struct KindMemory;
struct SegmentsAt;    // segments.hpp
struct SharedHeader;  // shared_files.hpp

// --- Blocks
// Device memory in the order of a stream (cistern/plugins.h), null being the default one.
struct InOrder {
  bool of_stream = false;
  void* stream = nullptr;
};

// A block as it was asked for: what a request leaves open has been filled in.
struct BlockRequest {
  const KindMemory* memory;
  std::size_t bytes, alignment = 0;
  std::uint64_t flags = 0;
  unsigned where = 0;
  int device = 0, node = 0;
  void* context = nullptr;
  InOrder order = {};
};

// The kind's answer to a request. `placed_bytes`: whole pages of it that lie where they were wanted.
struct Taken {
  std::uintptr_t base = 0, address = 0;
  std::uint64_t placed_bytes = 0;
  int device = CISTERN_CURRENT;
  bool was_kept = false;           // it had been used before; not known of host memory
  SegmentsAt* segments = nullptr;  // it was cut out of one of these
};

// --- Segments: whole allocations that the library cuts into blocks (segments.hpp)
// One life of a context, and one sort of its memory. Blocks of a place may use each other's memory.
struct Place {
  std::uintptr_t context = 0;  // the kind's own
  std::uint64_t life = 0, traits = 0;
  bool operator==(const Place&) const = default;
};

// Work that may still use memory: all of these contexts, each up to a number.
struct WorkUpTo {
  std::uintptr_t context;
  std::uint64_t number;
};
using WorkFence = Vector<WorkUpTo>;

struct CutBlock {
  std::uintptr_t address;
  std::uint64_t bytes, wanted_bytes;  // as it was cut, as it was asked for
  bool was_there;                     // no segment was made for it
};
// Facts about a block that ended: they say who may use its memory next.
struct CutEnd {
  std::uint64_t waiting_bytes = 0;  // known before: freed at this place, and work may still use them
  bool work_waits = false;          // work of its own context may still use it
  ranges::Order order = 0;          // of that work
  WorkFence others;                 // other contexts' work that may
  bool is_retired = false;          // the driver gave its address to others: it is not used again
};

struct KindSegments {
  // False: by option, without functions of the driver or while the stream captures, such memory is not cut. The block
  // is a whole allocation then. Null: it is always cut.
  bool (*may_cut)(const BlockRequest& request) = nullptr;
  // Where a request's memory would lie. The order in it counts for a thread without a context.
  cistern_status (*find)(const BlockRequest& request, Place* place);
  // The context still lives. Takes no lock.
  bool (*is_there)(const Place& place);
  // The ordinal of its device, or CISTERN_CURRENT. Null: it is of no device.
  int (*device_of)(const Place& place) = nullptr;
  // The driver's allocation, which counts as retained memory. `*first`: a multiple of ranges::kGranule. With
  // Shortage::refuses no other memory goes back for it, and nothing is waited for.
  cistern_status (*acquire)(const Place& place, std::size_t bytes, Shortage shortage, std::uintptr_t* first);
  // When it returns no work uses the memory. No block lives in it.
  void (*release)(const Place& place, std::uintptr_t first);

  // A block of the program's begins, with the calling site. It has not begun if the context has ended.
  cistern_status (*begin)(const Place& place, const CutBlock& block);
  // `queue` and `order` as for `give`, which waits where both are null.
  cistern_status (*end)(const Place& place, std::uintptr_t address, void* queue, InOrder order, CutEnd* end);

  // No memory could be had for a block of so many bytes. Null: it is not reported.
  void (*failed)(const Place& place, std::size_t bytes) = nullptr;

  // The order of a queue's work: unique, and above ranges::kContextOrder; kAnyOrder: it has none now. Null: no request
  // has one.
  ranges::Order (*order_of)(const Place& place, void* stream) = nullptr;
  // The number of the work that is there now. It grows. Takes no lock.
  std::uint64_t (*now)(const Place& place);
  // Entries that have settled may be taken out.
  Settled (*settled)(const Place& place, WorkFence& fence);
};

// --- Memory that another process may open
struct SharedMemory {
  std::uintptr_t address = 0;
  std::uintptr_t opened = 0;  // the driver's address for another process's handle; 0: of this process
  void* context = nullptr;    // in which it was made or opened
};

struct KindSharing {
  // Makes memory of this process. Its handle, and the offset in it, go into the header.
  cistern_status (*make)(int device, SharedHeader& header, SharedMemory* memory);
  cistern_status (*free)(const SharedMemory& memory);
  // Another process's.
  cistern_status (*open)(int device, const SharedHeader& header, SharedMemory* memory);
  cistern_status (*close)(const SharedMemory& memory);
};

// --- Work
// A cistern_part that has been read: one that the library makes has no size.
struct BlockPart {
  cistern_kind kind;
  void* block;
  std::size_t offset;
};

// A queue of the library's own, for the memory that these name.
struct QueueRequest {
  int device;
  void* context;
  void* like;  // another queue, of the device that is meant
};

struct KindQueues;

// The state that a thread of a transfer keeps for its copies with these queues, from the first one on.
struct CopyThread {
  const KindQueues* queues;
  void* context;  // that was current when the transfer was made; null: none, then `device` counts
  int device;
  void* state = nullptr;  // the kind's own
};

// The work on the queues (streams) of a driver. A queue belongs to the context that is current, or to `device`.
struct KindQueues {
  bool needs_queue = false;  // null is none, and no function is called with it
  // The queue behind which memory goes back without a wait when all work that is known to use it has ended. Null: null
  // is that queue.
  void* (*queue_of_idle)() = nullptr;
  // Whether the same queue is meant in every thread. Null: always.
  bool (*is_for_all_threads)(const void* queue) = nullptr;

  // The context that is current; null: none is. The function is null where no context ever is current.
  void* (*current_context)() = nullptr;
  // The one that a request means which names no device: the current one, or one that is made current now.
  cistern_status (*find_context)(void** context) = nullptr;
  // Makes it current; false: `leave_context` has nothing to undo.
  bool (*enter_context)(void* context) = nullptr;
  void (*leave_context)() = nullptr;

  // As cistern_enqueue_copy, where one part is of these queues and the other one too or of the host.
  cistern_status (*copy)(const BlockPart& target, const BlockPart& source, std::size_t bytes, int device, void* queue);
  // From a device to memory of the host, which is there when this returns, as all is that was enqueued before on this
  // queue.
  cistern_status (*read_and_wait)(const BlockPart& target, const BlockPart& source, std::size_t bytes, int device,
                                  void* queue);
  // As cistern_enqueue_fill. Null: by copies (queues.hpp).
  cistern_status (*fill)(const BlockPart& target, const void* pattern, std::size_t pattern_bytes, std::size_t bytes,
                         int device, void* queue) = nullptr;
  // `queue` and `other` are not the same.
  cistern_status (*follow)(int device, void* queue, void* other);
  cistern_status (*wait)(int device, void* queue);
  // Whether the driver's code says that the queue is not valid, or not any more. Its work then ends with the work of
  // its context, and `wait_for_context` waits for that. Null: every code may come from a valid queue.
  bool (*is_no_queue)(int code) = nullptr;
  cistern_status (*wait_for_context)(int device) = nullptr;

  // A queue of the library's own.
  cistern_status (*make)(const QueueRequest& request, void** queue);
  cistern_status (*end)(int device, void* queue);

  // Page-locked memory of the host, from or to which copies are faster. Null: there is none.
  const KindMemory* pinned = nullptr;
  std::uint64_t pinned_for_all = 0;  // its flags, to be page-locked for all contexts
  // The program's memory, page-locked where it lies.
  bool (*pin)(void* memory, std::size_t bytes, int device) = nullptr;
  cistern_status (*unpin)(void* memory, int device) = nullptr;

  // --- Transfers. The queues of the kind with the last row of kinds.def are asked first.
  // Whether the copy is theirs.
  bool (*is_theirs)(const cistern_copy_request& request);
  // Makes it, and waits for it.
  cistern_status (*make_copy)(CopyThread& thread, const cistern_copy_request& request);
  // Null: `state` is not used.
  void (*end_thread)(CopyThread& thread) = nullptr;
  // With this code another attempt would fail too.
  bool (*is_final)(int code);
};

// --- Memory
struct KindMemory {
  cistern_kind kind;
  const char* name;  // in reports
  // The alignment that all its blocks have; SIZE_MAX: any alignment that is wanted.
  std::size_t alignment;
  unsigned where = 0;                      // The flags of cistern_where that count.
  bool of_context = false;                 // Blocks are of the context that a pool's settings or a request name.
  bool is_handle = false;                  // A block is not an address: blocks have no alignment, parts no address.
  bool is_device = false;                  // May be a side of a unified buffer, and hold chunks of a file.
  bool in_order = false;                   // The order in BlockRequest counts.
  const KindQueues* queues = nullptr;      // Null: memory of the host; all work is done when a call returns.
  const KindSharing* sharing = nullptr;    // Null: no other process can open it.
  const KindSegments* segments = nullptr;  // Null: it cannot be cut into blocks.

  cistern_status (*take)(const BlockRequest& request, Taken* taken);
  // `queue`: whose work, up to now, may still use it; null: none does.
  cistern_status (*give)(const Taken& taken, void* queue, InOrder order);
  // By the driver's code: what was to be given is no block. Null: `give` says so itself.
  bool (*is_no_block)(int code) = nullptr;
  // Has so many blocks made and kept, beyond what is kept: none of the program's. Null: it can't be.
  cistern_status (*reserve)(const BlockRequest& request, std::size_t count) = nullptr;
  bool (*may_reserve)() = nullptr;  // whether it can now; null: always

  // A block of the process's own pool, as realloc. Null: by a new block, unless blocks are of a context.
  cistern_status (*resize)(const char* api, void** block, std::size_t bytes) = nullptr;
  // The size of a block without a record of a pool; 0: not known. Not asked where `resize` is there, or blocks are of a
  // context.
  std::size_t (*bytes_of)(const void* block) = nullptr;
  // In which device's context one without a record goes back. Null: in none.
  int (*device_of)(const void* block) = nullptr;
  // So much of a block's contents to another one, before this returns or `give` of the first one does. Null: the host
  // reads and writes it, and its blocks take the machine's own pages.
  cistern_status (*copy_contents)(void* target, const void* source, std::size_t bytes, int device,
                                  void* queue) = nullptr;
  // Its figures are one row for each device. Null: one for all.
  int (*device_count)() = nullptr;
};

// With UBSan, GCC does not take the address of an object or a function for a constant (its bug 71962).
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kTablesAreConstants = false;
#else
constexpr bool kTablesAreConstants = true;
#endif

// A table is whole if it has every function that the library calls without a check. Each table asserts that where it is
// made.
constexpr bool is_whole(const KindQueues& of) {
  if (!kTablesAreConstants) return true;
  const bool contexts = !of.current_context == !of.enter_context && !of.enter_context == !of.leave_context &&
                        !of.current_context == !of.find_context;
  const bool works = of.copy && of.read_and_wait && of.follow && of.wait && of.make && of.end;
  const bool transfers = of.is_theirs && of.make_copy && of.is_final;
  return contexts && works && transfers && !of.is_no_queue == !of.wait_for_context && !of.pin == !of.unpin;
}
constexpr bool is_whole(const KindSegments& of) {
  if (!kTablesAreConstants) return true;
  return of.find && of.is_there && of.acquire && of.release && of.begin && of.end && of.now && of.settled;
}
constexpr bool is_whole(const KindMemory& of) {
  if (!kTablesAreConstants) return true;
  return of.name && of.take && of.give && (of.queues || !of.is_device) && (of.resize || of.of_context || of.bytes_of);
}

// Null: there is no such kind.
const KindMemory* memory_of(cistern_kind kind);

// CISTERN_INVALID: not for the kind; CISTERN_NO_MEMORY: no machine has so much.
cistern_status check(const BlockRequest& request);
// As it comes, or with room for alignment and whole pages (`taken.base` is what goes back then).
cistern_status take(const BlockRequest& request, Taken* taken);
cistern_status reserve(const BlockRequest& request, std::size_t count);
cistern_status copy_contents(const KindMemory& memory, void* target, const void* source, std::size_t bytes, int device,
                             void* queue);

// A block for what has settings of its own: what of them counts for this memory.
template <class Settings>
BlockRequest request_for(const Settings& of, const KindMemory& memory, std::size_t bytes) {
  BlockRequest request{.memory = &memory, .bytes = bytes};
  if (memory.of_context) {
    request.context = of.context;
    request.flags = of.flags;
  } else if ((memory.where & CISTERN_ON_DEVICE) && of.device != CISTERN_CURRENT) {
    request.where = CISTERN_ON_DEVICE;
    request.device = of.device;
  }
  return request;
}

}  // namespace cistern::library
