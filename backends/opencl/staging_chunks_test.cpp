// Chunks of mapped pinned buffers over a fake driver: nothing is lost where a call fails, marks are let go when they
// have come true, and a command that the device could not do is told.
#include "backends/opencl/staging_chunks.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace cistern::opencl {
namespace {

struct FakeDriver {
  std::set<cl_mem> buffers, mapped;
  std::map<cl_event, cl_int> events;  // alive, with their status
  std::uintptr_t last = 0;
  bool create_fails = false, map_fails = false, info_fails = false;
  char memory[16];
};
FakeDriver* driver = nullptr;

const Functions kFunctions{
    .create_buffer = [](cl_context, cl_bitfield flags, std::size_t bytes, void*, cl_int* error) -> cl_mem {
      EXPECT_EQ(flags, kMemAllocHostPtr);
      EXPECT_EQ(bytes, staging::kChunkBytes);
      *error = driver->create_fails ? kOutOfHostMemory : kSuccess;
      if (driver->create_fails) return nullptr;
      return *driver->buffers.insert(reinterpret_cast<cl_mem>(++driver->last * 16)).first;
    },
    .release_memory =
        [](cl_mem buffer) {
          EXPECT_FALSE(driver->mapped.count(buffer));
          EXPECT_EQ(driver->buffers.erase(buffer), 1u);
          return kSuccess;
        },
    .event_info =
        [](cl_event event, cl_uint name, std::size_t, void* value, std::size_t*) {
          EXPECT_EQ(name, kEventExecutionStatus);
          *static_cast<cl_int*>(value) = driver->events.at(event);
          return driver->info_fails ? kOutOfResources : kSuccess;
        },
    .release_event =
        [](cl_event event) {
          EXPECT_EQ(driver->events.erase(event), 1u);
          return kSuccess;
        },
    .map_buffer = [](cl_command_queue, cl_mem buffer, cl_uint blocking, cl_bitfield, std::size_t, std::size_t, cl_uint,
                     const cl_event*, cl_event*, cl_int* error) -> void* {
      EXPECT_TRUE(blocking);
      *error = driver->map_fails ? kOutOfResources : kSuccess;
      if (driver->map_fails) return nullptr;
      driver->mapped.insert(buffer);
      return driver->memory;
    },
    .unmap =
        [](cl_command_queue, cl_mem buffer, void* memory, cl_uint, const cl_event*, cl_event*) {
          EXPECT_EQ(memory, driver->memory);
          EXPECT_EQ(driver->mapped.erase(buffer), 1u);
          return kSuccess;
        },
};

class OpenclStagingChunks : public testing::Test {
 protected:
  OpenclStagingChunks() { driver = &fake; }
  ~OpenclStagingChunks() override {
    EXPECT_TRUE(fake.buffers.empty());
    EXPECT_TRUE(fake.events.empty());
  }
  cl_event event(cl_int status) {
    const auto made = reinterpret_cast<cl_event>(++fake.last * 16);
    fake.events[made] = status;
    return made;
  }

  FakeDriver fake;
  DriverCalls calls;
  StagingChunks chunks{kFunctions, calls, nullptr, nullptr};
  using Passed = staging::ChunkMaker::Passed;
};

TEST_F(OpenclStagingChunks, FailedCallsLeaveNothingBehind) {
  staging::Chunk chunk;
  fake.create_fails = true;
  EXPECT_FALSE(chunks.make(chunk));
  fake.create_fails = false;
  fake.map_fails = true;
  EXPECT_FALSE(chunks.make(chunk));
  EXPECT_TRUE(fake.buffers.empty());
  EXPECT_EQ(chunks.error(), kSuccess) << "the program's copy has not failed";
}

TEST_F(OpenclStagingChunks, MarksAreLetGoAsSoonAsTheyCameTrue) {
  staging::Chunk chunk;
  ASSERT_TRUE(chunks.make(chunk));
  EXPECT_EQ(chunks.passed(chunk), Passed::yes);
  const cl_event mark = event(3);
  chunks.set_mark(chunk, mark);
  EXPECT_EQ(chunks.passed(chunk), Passed::no);
  fake.events[mark] = kComplete;
  EXPECT_EQ(chunks.passed(chunk), Passed::yes);
  EXPECT_TRUE(fake.events.empty());
  EXPECT_EQ(chunks.passed(chunk), Passed::yes);
  chunks.set_mark(chunk, event(3));
  chunks.set_mark(chunk, event(3));
  EXPECT_EQ(fake.events.size(), 1u);
  chunks.unmake(chunk, true);
}

TEST_F(OpenclStagingChunks, WhatTheDeviceCouldNotDoIsTold) {
  staging::Chunk chunk;
  ASSERT_TRUE(chunks.make(chunk));
  chunks.set_mark(chunk, event(-14));
  EXPECT_EQ(chunks.passed(chunk), Passed::failed);
  EXPECT_EQ(chunks.error(), -14);
  // Not to a copy that only finds the chunk.
  chunks.set_mark(chunk, event(-5));
  StagingChunks later(kFunctions, calls, nullptr, nullptr);
  EXPECT_EQ(later.passed(chunk), Passed::failed);
  EXPECT_EQ(later.error(), kSuccess);
  fake.info_fails = true;
  chunks.set_mark(chunk, event(3));
  EXPECT_EQ(chunks.passed(chunk), Passed::failed);
  EXPECT_EQ(chunks.error(), kOutOfResources);
  chunks.unmake(chunk, false);
}

}  // namespace
}  // namespace cistern::opencl
