// Work on queues for kinds and the library, beside cistern/queue.h.
#pragma once
#include "shim/library/answers.hpp"
#include "shim/library/kind_memory.hpp"

namespace cistern::library {

// While this lives, the context is current in which a buffer was made. Null: the current context stays.
class InContext {
 public:
  InContext(const KindQueues& of, void* context)
      : of_(of), entered_(context && of.enter_context && of.enter_context(context)) {}
  ~InContext() {
    if (entered_) of_.leave_context();
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  const KindQueues& of_;
  const bool entered_;
};

// Drivers without current contexts need none.
inline cistern_status find_current_context(const KindQueues& of, void** context) {
  *context = nullptr;
  return of.find_context ? of.find_context(context) : CISTERN_OK;
}

inline bool is_for_all_threads(const KindQueues& of, const void* queue) {
  return !of.is_for_all_threads || of.is_for_all_threads(queue);
}

// A fill by copies, for patterns that the driver cannot fill with.
struct CopyAndWait {
  decltype(KindQueues::copy) copy;
  decltype(KindQueues::wait) wait;
};
cistern_status fill_by_copies(CopyAndWait by, const BlockPart& target, const void* pattern, std::size_t pattern_bytes,
                              std::size_t bytes, int device, void* queue);
// As cistern_enqueue_copy and cistern_enqueue_fill, for parts of kinds that exist.
cistern_status copy_part(const BlockPart& target, const BlockPart& source, std::size_t bytes, int device, void* queue);
cistern_status fill_part(const BlockPart& target, const void* pattern, std::size_t pattern_bytes, std::size_t bytes,
                         int device, void* queue);

}  // namespace cistern::library
