// The rules that all calls of the C interface keep: structs of older and newer callers (struct_bytes), results that are
// null or 0 after a failure, and a phrase for each status.
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <set>
#include <string>

#include "kinds.hpp"

namespace {

// A struct as the callers of a later version have it.
template <class Struct>
struct Newer {
  Struct known;
  unsigned char added[24];
};

// `pass(const Struct*)` calls a function that reads the struct, and undoes what it did. `least`: the bytes that every
// caller has to pass. `needed`: those that this call needs, if more.
template <class Struct, class Pass>
void expect_sizes_are_read(const Struct& valid, std::size_t least, Pass pass, std::size_t needed = 0) {
  if (!needed) needed = least;
  const auto with_size = [&](std::size_t bytes) {
    Struct given = valid;
    given.struct_bytes = bytes;
    return pass(&given);
  };
  EXPECT_EQ(with_size(sizeof valid), CISTERN_OK);
  EXPECT_EQ(with_size(0), CISTERN_INVALID);
  EXPECT_EQ(with_size(least - 1), CISTERN_INVALID);
  EXPECT_EQ(with_size(SIZE_MAX), CISTERN_INVALID) << "nobody set it";
  EXPECT_EQ(pass(static_cast<const Struct*>(nullptr)), CISTERN_INVALID);

  Struct older = valid;
  older.struct_bytes = needed;
  memset(reinterpret_cast<char*>(&older) + needed, 0xff, sizeof older - needed);
  EXPECT_EQ(pass(&older), CISTERN_OK) << "what is behind an older struct is not its";

  Newer<Struct> newer{valid, {}};
  newer.known.struct_bytes = sizeof newer;
  EXPECT_EQ(pass(&newer.known), CISTERN_OK);
  newer.added[sizeof newer.added - 1] = 1;
  EXPECT_EQ(pass(&newer.known), CISTERN_INVALID) << "a field that this version would ignore";
}

// `fill(Struct*)` calls a function that writes the struct.
template <class Struct, class Fill>
void expect_sizes_are_written(Fill fill) {
  constexpr std::size_t kSizeOnly = sizeof(std::size_t), kShorter = sizeof(Struct) - sizeof(std::size_t);
  Newer<Struct> of;
  const auto with_size = [&](std::size_t bytes) {
    memset(&of, 0xaa, sizeof of);
    of.known.struct_bytes = bytes;
    const cistern_status status = fill(&of.known);
    EXPECT_EQ(of.known.struct_bytes, bytes) << "it is the caller's";
    return status;
  };
  const auto bytes_that_are = [&](unsigned char value, std::size_t begin, std::size_t end) {
    std::size_t count = 0;
    for (std::size_t i = begin; i < end; ++i) count += reinterpret_cast<const unsigned char*>(&of)[i] == value;
    return count;
  };
  for (const std::size_t wrong : {std::size_t{0}, kSizeOnly, SIZE_MAX}) {
    EXPECT_EQ(with_size(wrong), CISTERN_INVALID);
    EXPECT_EQ(bytes_that_are(0xaa, kSizeOnly, sizeof of), sizeof of - kSizeOnly) << "nothing is written";
  }
  EXPECT_EQ(fill(static_cast<Struct*>(nullptr)), CISTERN_INVALID);
  EXPECT_EQ(with_size(kShorter), CISTERN_OK);
  EXPECT_EQ(bytes_that_are(0xaa, kShorter, sizeof of), sizeof of - kShorter) << "memory behind an older struct";
  EXPECT_EQ(with_size(sizeof of), CISTERN_OK);
  EXPECT_EQ(bytes_that_are(0, sizeof(Struct), sizeof of), sizeof of - sizeof(Struct)) << "fields of a newer version";
  EXPECT_EQ(with_size(sizeof(Struct)), CISTERN_OK);
}

template <class Struct>
bool is_zero(const Struct& of) {
  const Struct none = cistern::sized<Struct>();
  return !memcmp(&of, &none, sizeof of);
}

cl_command_queue make_queue() {
  cl_device_id device = nullptr;
  clGetContextInfo(opencl_context(), CL_CONTEXT_DEVICES, sizeof device, &device, nullptr);
  return clCreateCommandQueueWithProperties(opencl_context(), device, nullptr, nullptr);
}

class Interface : public testing::Test {
 protected:
  static cistern_pool_settings pool_settings() {
    auto of = cistern::sized<cistern_pool_settings>();
    of.name = "interface";
    return of;
  }
  static cistern_unified_settings unified_settings(cl_command_queue queue) {
    auto of = cistern::sized<cistern_unified_settings>();
    of.bytes = 100;
    of.kind = CISTERN_OPENCL;
    of.context = opencl_context();
    of.queue = queue;
    return of;
  }
  static cistern_shared_settings shared_settings(const std::string& name) {
    auto of = cistern::sized<cistern_shared_settings>();
    of.name = name.c_str();
    of.bytes = 100;
    return of;
  }
};

TEST_F(Interface, ReadsThePoolsStructsOfAnyVersion) {
  expect_sizes_are_read(pool_settings(), offsetof(cistern_pool_settings, bytes_max), [](const auto* of) {
    cistern_pool* pool = nullptr;
    const cistern_status status = cistern_pool_create(of, &pool);
    if (pool) cistern_pool_destroy(pool);
    EXPECT_EQ(pool != nullptr, status == CISTERN_OK);
    return status;
  });
  auto request = cistern::sized<cistern_request>();
  request.bytes = 2000;
  cistern_pool* const own = cistern::default_pool(CISTERN_HOST);
  expect_sizes_are_read(request, offsetof(cistern_request, alignment), [own](const auto* of) {
    void* block = nullptr;
    const cistern_status status = cistern_pool_allocate_as(own, of, &block);
    EXPECT_EQ(block != nullptr, status == CISTERN_OK);
    return block ? cistern_pool_deallocate(own, block, nullptr) : status;
  });
}

TEST_F(Interface, ReadsTheTransfersStructsOfAnyVersion) {
  expect_sizes_are_read(cistern::sized<cistern_transfer_settings>(), offsetof(cistern_transfer_settings, retries),
                        [](const auto* of) {
                          cistern_transfer* transfer = nullptr;
                          const cistern_status status = cistern_transfer_create(of, &transfer);
                          return transfer ? cistern_transfer_destroy(transfer) : status;
                        });
  char from[8] = {}, to[8] = {};
  auto copy = cistern::sized<cistern_copy_request>();
  copy.bytes = sizeof from;
  copy.target = to;
  copy.source = from;
  expect_sizes_are_read(copy, offsetof(cistern_copy_request, queue), [](const auto* of) {
    const auto settings = cistern::sized<cistern_transfer_settings>();
    cistern_transfer* transfer = nullptr;
    EXPECT_EQ(cistern_transfer_create(&settings, &transfer), CISTERN_OK);
    std::uint64_t number = 7;
    const cistern_status status = cistern_transfer_add(transfer, of, &number);
    EXPECT_EQ(number, status == CISTERN_OK ? 1u : 0u);
    EXPECT_EQ(cistern_transfer_destroy(transfer), CISTERN_OK);
    return status;
  });
}

TEST_F(Interface, ReadsTheStructsOfBuffersAndFilesOfAnyVersion) {
  cl_command_queue const queue = make_queue();
  // The first version has no context, so a whole one of OpenCL is longer.
  cistern_unified_settings unified = unified_settings(queue);
  const auto create_and_destroy = [](const auto* of) {
    cistern_unified* buffer = nullptr;
    const cistern_status status = cistern_unified_create(of, &buffer);
    return buffer ? cistern_unified_destroy(buffer) : status;
  };
  expect_sizes_are_read(unified, offsetof(cistern_unified_settings, context), create_and_destroy,
                        offsetof(cistern_unified_settings, pin));
  const std::string path = "interface-" + std::to_string(getpid());
  auto mapped = cistern::sized<cistern_mapped_settings>();
  mapped.path = path.c_str();
  mapped.kind = CISTERN_OPENCL;
  mapped.context = opencl_context();
  mapped.queue = queue;
  mapped.writable = 1;
  mapped.bytes = 100;
  const auto open_and_close = [](const auto* of) {
    cistern_mapped* file = nullptr;
    const cistern_status status = cistern_mapped_open(of, &file);
    return file ? cistern_mapped_close(file) : status;
  };
  EXPECT_EQ(open_and_close(&mapped), CISTERN_OK) << "makes the file";
  mapped.writable = 0, mapped.bytes = 0;
  expect_sizes_are_read(mapped, offsetof(cistern_mapped_settings, context), open_and_close,
                        offsetof(cistern_mapped_settings, writable));
  unlink(path.c_str());
  clReleaseCommandQueue(queue);
}

TEST_F(Interface, ReadsTheStructsOfSharedMemoryAndOfQueuesOfAnyVersion) {
  const std::string name = "interface-" + std::to_string(getpid());
  expect_sizes_are_read(shared_settings(name), offsetof(cistern_shared_settings, mode), [](const auto* of) {
    cistern_shared* shared = nullptr;
    const cistern_status status = cistern_shared_create(of, &shared);
    return shared ? cistern_shared_detach(shared) : status;
  });
  char from[] = "from", to[] = "to..";
  cistern_part part{sizeof part, CISTERN_HOST, from, 0};
  expect_sizes_are_read(part, offsetof(cistern_part, offset), [&](const auto* of) {
    const cistern_part target{sizeof target, CISTERN_HOST, to, 0};
    memset(to, 0, sizeof to);
    const cistern_status status = cistern_enqueue_copy(&target, of, sizeof to, 0, nullptr);
    EXPECT_STREQ(to, status == CISTERN_OK ? "from" : "");
    return status;
  });
  expect_sizes_are_read(part, offsetof(cistern_part, offset),
                        [](const auto* of) { return cistern_enqueue_fill(of, "x", 1, 4, 0, nullptr); });
}

TEST_F(Interface, WritesFiguresForAnyVersion) {
  expect_sizes_are_written<cistern_statistics>([](auto* of) { return cistern_get_statistics(CISTERN_HOST, of); });
  expect_sizes_are_written<cistern_figures>([](auto* of) { return cistern_get_figures(CISTERN_HOST, -1, of); });
  const cistern_pool_settings settings = pool_settings();
  cistern_pool* pool = nullptr;
  ASSERT_EQ(cistern_pool_create(&settings, &pool), CISTERN_OK);
  expect_sizes_are_written<cistern_pool_statistics>([&](auto* of) { return cistern_pool_get_statistics(pool, of); });
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
  const auto how = cistern::sized<cistern_transfer_settings>();
  cistern_transfer* transfer = nullptr;
  ASSERT_EQ(cistern_transfer_create(&how, &transfer), CISTERN_OK);
  expect_sizes_are_written<cistern_transfer_statistics>(
      [&](auto* of) { return cistern_transfer_get_statistics(transfer, of); });
  EXPECT_EQ(cistern_transfer_destroy(transfer), CISTERN_OK);
}

TEST_F(Interface, WritesWhatIsKnownOfADeviceForAnyVersion) {
  if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  expect_sizes_are_written<cistern_memory_info>([](auto* of) { return cistern_device_memory(0, of); });
}

TEST_F(Interface, WritesWhatIsKnownOfBuffersAndFilesForAnyVersion) {
  cl_command_queue const queue = make_queue();
  const cistern_unified_settings unified = unified_settings(queue);
  cistern_unified* buffer = nullptr;
  ASSERT_EQ(cistern_unified_create(&unified, &buffer), CISTERN_OK);
  expect_sizes_are_written<cistern_unified_metrics>([&](auto* of) { return cistern_unified_get_metrics(buffer, of); });
  EXPECT_EQ(cistern_unified_destroy(buffer), CISTERN_OK);

  auto mapped = cistern::sized<cistern_mapped_settings>();
  mapped.path = "/proc/self/exe";
  mapped.kind = CISTERN_OPENCL;
  mapped.context = opencl_context();
  mapped.queue = queue;
  cistern_mapped* file = nullptr;
  ASSERT_EQ(cistern_mapped_open(&mapped, &file), CISTERN_OK);
  expect_sizes_are_written<cistern_mapped_info>([&](auto* of) { return cistern_mapped_get_info(file, of); });
  EXPECT_EQ(cistern_mapped_close(file), CISTERN_OK);
  clReleaseCommandQueue(queue);

  const std::string name = "interface-" + std::to_string(getpid());
  const cistern_shared_settings settings = shared_settings(name);
  cistern_shared* shared = nullptr;
  ASSERT_EQ(cistern_shared_create(&settings, &shared), CISTERN_OK);
  expect_sizes_are_written<cistern_shared_view>([&](auto* of) { return cistern_shared_get(shared, of); });
  EXPECT_EQ(cistern_shared_detach(shared), CISTERN_OK);
}

TEST_F(Interface, LeavesNoResultBehindAFailure) {
  auto* const none = reinterpret_cast<cistern_pool*>(0x1000);
  auto figures = cistern::sized<cistern_pool_statistics>();
  figures.live_blocks = 7;
  EXPECT_EQ(cistern_pool_get_statistics(none, &figures), CISTERN_INVALID);
  EXPECT_TRUE(is_zero(figures));
  auto of_kind = cistern::sized<cistern_figures>();
  of_kind.seconds = 7;
  EXPECT_EQ(cistern_get_figures(CISTERN_HOST, 3, &of_kind), CISTERN_INVALID);
  EXPECT_TRUE(is_zero(of_kind));
  cistern_pool* pool = none;
  EXPECT_EQ(cistern_pool_default(static_cast<cistern_kind>(17), &pool), CISTERN_INVALID);
  EXPECT_EQ(pool, nullptr);
  std::size_t bytes = 7;
  EXPECT_EQ(cistern_trim(static_cast<cistern_kind>(17), 0, &bytes), CISTERN_INVALID);
  EXPECT_EQ(bytes, 0u);
  bytes = 7;
  EXPECT_EQ(cistern_defragment(static_cast<cistern_kind>(17), &bytes), CISTERN_INVALID);
  EXPECT_EQ(bytes, 0u);
  std::uint64_t copy = 7;
  cistern_status status = CISTERN_DRIVER;
  int code = 7;
  EXPECT_EQ(cistern_transfer_next_failed(nullptr, &copy, &status, &code), CISTERN_INVALID);
  EXPECT_TRUE(!copy && status == CISTERN_OK && !code);
  _cl_mem* buffer = reinterpret_cast<_cl_mem*>(none);
  EXPECT_EQ(cistern_opencl_allocate(opencl_context(), CL_MEM_READ_WRITE, 0, &buffer), CISTERN_INVALID);
  EXPECT_EQ(buffer, nullptr);
  EXPECT_EQ(cistern_native_error(), CL_INVALID_BUFFER_SIZE);
}

// Each of these failed before with a code of the driver's or the system's.
TEST_F(Interface, ForgetsTheNativeErrorOfTheLastCall) {
  const auto fail_in_the_system = [] {
    EXPECT_EQ(cistern_report("/nowhere/report", CISTERN_TEXT), CISTERN_NOT_FOUND);
    EXPECT_EQ(cistern_native_error(), ENOENT);
  };
  const auto refused_by_itself = [&](cistern_status status) {
    EXPECT_EQ(status, CISTERN_INVALID);
    EXPECT_EQ(cistern_native_error(), 0);
  };
  fail_in_the_system();
  refused_by_itself(cistern_set_option(nullptr, "x"));
  fail_in_the_system();
  refused_by_itself(cistern_visit(CISTERN_HOST, nullptr, nullptr));
  fail_in_the_system();
  refused_by_itself(cistern_visit_frames(1, nullptr, nullptr));
  fail_in_the_system();
  refused_by_itself(cistern_transfer_create(nullptr, nullptr));
  fail_in_the_system();
  refused_by_itself(cistern_report(nullptr, CISTERN_TEXT));
  fail_in_the_system();
  refused_by_itself(cistern_get_statistics(CISTERN_HOST, nullptr));
  if (!kHostPoolServes) return;  // else the sanitizer's allocator judges it
  fail_in_the_system();
  int local = 0;
  refused_by_itself(cistern_deallocate(&local));
}

TEST_F(Interface, HasAPhraseForEachStatus) {
  std::set<std::string> phrases;
  for (int status = CISTERN_OK; status <= CISTERN_TRUNCATED; ++status)
    phrases.insert(cistern_status_text(static_cast<cistern_status>(status)));
  EXPECT_EQ(phrases.size(), CISTERN_TRUNCATED + 1u);
  EXPECT_EQ(phrases.count("unknown status"), 0u);
  for (const int unknown : {-1, CISTERN_TRUNCATED + 1, 1 << 30})
    EXPECT_STREQ(cistern_status_text(static_cast<cistern_status>(unknown)), "unknown status");
  EXPECT_STREQ(cistern_status_text(CISTERN_NO_MEMORY), "out of memory");
}

}  // namespace
