// See staging_chunks.hpp.
#include "backends/opencl/staging_chunks.hpp"

#include <atomic>
#include <new>

#include "pool/base/internal_memory.hpp"

namespace cistern::opencl {
namespace {

// Held by Chunk::event: a mark that has come true is let go at once, since the program can count a queue's references.
struct Mark {
  cl_event event = nullptr;
  std::uint64_t of_copy = 0;
};

constinit std::atomic<std::uint64_t> copies{0};

}  // namespace

StagingChunks::StagingChunks(const Functions& real, DriverCalls& calls, cl_context context, cl_command_queue queue)
    : real_(real), calls_(calls), context_(context), queue_(queue), number_(++copies) {}

bool StagingChunks::make(staging::Chunk& chunk) {
  cl_int error = kSuccess;
  const cl_mem buffer = real_.create_buffer(context_, kMemAllocHostPtr, staging::kChunkBytes, nullptr, &error);
  if (!buffer) return false;
  void* const memory =
      real_.map_buffer(queue_, buffer, true, kMapReadWrite, 0, staging::kChunkBytes, 0, nullptr, nullptr, &error);
  if (!memory) {
    real_.release_memory(buffer);
    return false;
  }
  chunk.memory = static_cast<char*>(memory);
  chunk.block = buffer;
  chunk.event = new (internal_allocate(sizeof(Mark))) Mark;
  return true;
}

void StagingChunks::unmake(staging::Chunk& chunk, bool) {
  drop_mark(chunk);
  internal_deallocate(chunk.event, sizeof(Mark));
  const auto buffer = static_cast<cl_mem>(chunk.block);
  real_.unmap(queue_, buffer, chunk.memory, 0, nullptr, nullptr);
  real_.release_memory(buffer);
}

staging::ChunkMaker::Passed StagingChunks::passed(const staging::Chunk& chunk) {
  const auto [event, of_copy] = *static_cast<const Mark*>(chunk.event);
  if (!event) return Passed::yes;
  cl_int status = kSuccess;
  calls_.queries.fetch_add(1, std::memory_order_relaxed);
  const cl_int error = real_.event_info(event, kEventExecutionStatus, sizeof status, &status, nullptr);
  if (error == kSuccess && status > kComplete) return Passed::no;
  drop_mark(chunk);
  if (error == kSuccess && status == kComplete) return Passed::yes;
  if (of_copy == number_) error_ = error != kSuccess ? error : status;
  return Passed::failed;
}

void StagingChunks::set_mark(staging::Chunk& chunk, cl_event event) {
  drop_mark(chunk);
  *static_cast<Mark*>(chunk.event) = {event, number_};
}

void StagingChunks::drop_mark(const staging::Chunk& chunk) {
  cl_event& event = static_cast<Mark*>(chunk.event)->event;
  if (event) real_.release_event(event);
  event = nullptr;
}

}  // namespace cistern::opencl
