// The toy driver's memory for the C interface: its pools, queues, transfers and buffers go through these tables. A
// context of the driver runs its calls in order: it is its own queue.
#include "shim/library/answers.hpp"
#include "shim/library/kind_memory.hpp"
#include "tests/toy/kind/state.hpp"

namespace cistern::toy {
namespace {

using library::BlockRequest;
using library::Taken;

toy_context* context_of(const BlockRequest& request) { return static_cast<toy_context*>(request.context); }
toy_context* context_of(void* queue) { return static_cast<toy_context*>(queue); }
char* address(const library::BlockPart& part) { return static_cast<char*>(part.block) + part.offset; }

// Null: no block begins there, or not any more.
toy_context* context_of_block(const void* memory) {
  toy_context* context = nullptr;
  State* const s = state_if_used();
  if (!s) return nullptr;
  s->blocks.with(memory, [&](Block* found) {
    if (found && !found->pooled) context = found->context;
  });
  return context;
}

// --- Blocks
cistern_status take(const BlockRequest& request, Taken* taken) {
  void* memory = nullptr;
  const int error = hook::toy_allocate(context_of(request), request.bytes, &memory);
  taken->base = reinterpret_cast<std::uintptr_t>(memory);
  return status_of(error);
}

cistern_status give(const Taken& taken, void*, library::InOrder) {
  auto* const memory = reinterpret_cast<void*>(taken.base);
  toy_context* const context = context_of_block(memory);
  return status_of(context ? hook::toy_free(context, memory) : TOY_INVALID);
}

// --- Work
cistern_status copy(const library::BlockPart& target, const library::BlockPart& source, std::size_t bytes, int,
                    void* queue) {
  return status_of(hook::toy_copy(context_of(queue), address(target), address(source), bytes));
}

cistern_status wait(int, void* queue) { return status_of(hook::toy_wait(context_of(queue))); }

cistern_status read_and_wait(const library::BlockPart& target, const library::BlockPart& source, std::size_t bytes,
                             int device, void* queue) {
  const cistern_status status = copy(target, source, bytes, device, queue);
  return status == CISTERN_OK ? wait(device, queue) : status;
}

cistern_status copy_contents(void* target, const void* source, std::size_t bytes, int device, void* queue) {
  const auto part = [](const void* block) { return library::BlockPart{CISTERN_HOST, const_cast<void*>(block), 0}; };
  return read_and_wait(part(target), part(source), bytes, device, queue);
}

cistern_status follow(int device, void*, void* other) { return wait(device, other); }

cistern_status make_queue(const library::QueueRequest& request, void** queue) {
  *queue = request.like;
  return CISTERN_OK;
}

cistern_status end_queue(int, void*) { return CISTERN_OK; }

// --- Transfers
toy_context* context_of(const cistern_copy_request& what) {
  toy_context* const context = context_of_block(what.target);
  return context ? context : context_of_block(what.source);
}

cistern_status make_copy(library::CopyThread&, const cistern_copy_request& what) {
  toy_context* const context = context_of(what);
  const int error = hook::toy_copy(context, what.target, what.source, what.bytes);
  return status_of(error ? error : hook::toy_wait(context));
}

constexpr library::KindQueues queues = {
    .needs_queue = true,
    .copy = copy,
    .read_and_wait = read_and_wait,
    .follow = follow,
    .wait = wait,
    .make = make_queue,
    .end = end_queue,
    .is_theirs = [](const cistern_copy_request& what) { return context_of(what) != nullptr; },
    .make_copy = make_copy,
    .is_final = [](int code) { return code == TOY_INVALID; },
};

}  // namespace

cistern_status status_of(int code) {
  if (code == 0) return CISTERN_OK;
  if (code == kNoDriver) return CISTERN_NO_DRIVER;
  return library::refused(code, code == TOY_NO_MEMORY ? CISTERN_NO_MEMORY : CISTERN_DRIVER);
}

extern constexpr library::KindMemory memory = {
    .kind = kKind,
    .name = "toy",
    .alignment = 16,
    .of_context = true,
    .is_device = true,
    .queues = &queues,
    .segments = &segments,
    .take = take,
    .give = give,
    .is_no_block = [](int code) { return code == TOY_INVALID; },
    .copy_contents = copy_contents,
};
static_assert(is_whole(queues) && is_whole(memory));

}  // namespace cistern::toy
