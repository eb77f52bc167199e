// Chunks of a context's staging ring: buffers that the driver allocates in pinned memory, mapped for as long as they
// live. A chunk's mark is the event of the command that used it last. Any thread.
#pragma once
#include "backends/opencl/api.hpp"
#include "pool/acquire.hpp"
#include "pool/staging/ring.hpp"

namespace cistern::opencl {

class StagingChunks final : public staging::ChunkMaker {
 public:
  // `queue`: for mapping and unmapping.
  StagingChunks(const Functions& real, DriverCalls& calls, cl_context context, cl_command_queue queue);

  bool make(staging::Chunk& chunk) override;
  void unmake(staging::Chunk& chunk, bool passed) override;
  Passed passed(const staging::Chunk& chunk) override;
  // What the chunk is used for now ends with `event`, which is the chunk's from here on.
  void set_mark(staging::Chunk& chunk, cl_event event);
  // Of a command that the device could not do, of those that this object has set marks for: one for each copy.
  cl_int error() const { return error_; }

 private:
  void drop_mark(const staging::Chunk& chunk);

  const Functions& real_;
  DriverCalls& calls_;
  const cl_context context_;
  const cl_command_queue queue_;
  const std::uint64_t number_;
  cl_int error_ = kSuccess;
};

}  // namespace cistern::opencl
