// Where the system leaves the process little memory, and the driver takes a buffer's at its first command and ends the
// process when there is none: what was released is there for the next buffer, and for the program's own malloc.
// harness: arguments=space
// harness: arguments=data
// harness: arguments=group
#include "observe.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <memory>
#include <random>
#include <thread>

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kHeadroom = 512 * kMiB;
constexpr size_t kOfDriver = 64 * kMiB;  // what it takes before

// Of /proc/self/statm.
static size_t own_bytes(int field) {
  FILE* file = fopen("/proc/self/statm", "r");
  size_t pages[6] = {};
  for (size_t& count : pages)
    if (fscanf(file, "%zu", &count) != 1) say("statm cannot be read");
  fclose(file);
  return pages[field] * static_cast<size_t>(getpagesize());
}

class Limit {
 public:
  virtual ~Limit() = default;
};

class ResourceLimit : public Limit {
 public:
  ResourceLimit(int resource, int field) : resource_(resource) {
    getrlimit(static_cast<__rlimit_resource_t>(resource), &before_);
    const rlimit less{own_bytes(field) + kHeadroom, before_.rlim_max};
    if (setrlimit(static_cast<__rlimit_resource_t>(resource), &less) != 0) say("the limit is not set");
  }
  ~ResourceLimit() override { setrlimit(static_cast<__rlimit_resource_t>(resource_), &before_); }

 private:
  int resource_;
  rlimit before_{};
};

// Only where the test may make a control group; without one the same is done with no limit.
class GroupLimit : public Limit {
 public:
  GroupLimit() {
    const struct {
      std::string root, limit;
    } ways[] = {{"/sys/fs/cgroup/memory", "/memory.limit_in_bytes"}, {"/sys/fs/cgroup", "/memory.max"}};
    for (const auto& way : ways) {
      struct stat known;
      if (stat((way.root + "/cgroup.procs").c_str(), &known) != 0) continue;
      root_ = way.root;
      group_ = root_ + "/cistern-test-" + std::to_string(getpid());
      if (mkdir(group_.c_str(), 0700) == 0 && write(group_ + way.limit, std::to_string(kHeadroom + kOfDriver)) &&
          write(group_ + "/cgroup.procs", std::to_string(getpid())))
        return;
      rmdir(group_.c_str());
    }
    group_.clear();
  }
  ~GroupLimit() override {
    if (group_.empty()) return;
    write(root_ + "/cgroup.procs", std::to_string(getpid()));
    rmdir(group_.c_str());
  }

 private:
  static bool write(const std::string& path, const std::string& text) {
    const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file == -1) return false;
    const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    close(file);
    return written;
  }

  std::string root_, group_;
};

// PoCL's own threads hold a buffer a moment longer than the command that a program has waited for.
static void let_settle(const Setup& cl) {
  need(clFinish(cl.queue), "clFinish");
  usleep(50'000);
}

// Leaves that much of released buffers that have had their memory.
static void release_used(const Setup& cl, size_t bytes, size_t each, cl_mem_flags flags = CL_MEM_READ_WRITE) {
  std::vector<cl_mem> buffers;
  const char zero = 0;
  for (size_t made = 0; made < bytes; made += each) {
    buffers.push_back(cl.buffer(each, flags));
    need(clEnqueueFillBuffer(cl.queue, buffers.back(), &zero, 1, 0, each, 0, nullptr, nullptr), "fill");
  }
  let_settle(cl);
  for (cl_mem buffer : buffers) clReleaseMemObject(buffer);
  let_settle(cl);
}

// Uses it for the first time, with a command that is waited for or not.
static void use(const Setup& cl, const char* what, size_t bytes, bool blocking) {
  cl_mem buffer = cl.buffer(bytes);
  const char one = 1;
  const cl_int code = blocking ? clEnqueueWriteBuffer(cl.queue, buffer, CL_TRUE, 0, 1, &one, 0, nullptr, nullptr)
                               : clEnqueueFillBuffer(cl.queue, buffer, &one, 1, 0, bytes, 0, nullptr, nullptr);
  say("%s: %d, %d", what, code, clFinish(cl.queue));
  let_settle(cl);
  clReleaseMemObject(buffer);
  let_settle(cl);
}

static void one_large(const Setup& cl) {
  release_used(cl, 384 * kMiB, 32 * kMiB);
  use(cl, "one large after several", 240 * kMiB, true);
  use(cl, "another size", 250 * kMiB, false);
}

static void many_small(const Setup& cl) {
  release_used(cl, 384 * kMiB, 4 * kMiB, CL_MEM_READ_ONLY);
  use(cl, "one large after many", 200 * kMiB, false);
}

// The first commands of several that are all there are still to come.
static void made_before_used(const Setup& cl) {
  release_used(cl, 384 * kMiB, 24 * kMiB);
  std::vector<cl_mem> buffers;
  for (int i = 0; i < 8; ++i) buffers.push_back(cl.buffer(32 * kMiB));
  const char zero = 0;
  for (cl_mem buffer : buffers)
    need(clEnqueueFillBuffer(cl.queue, buffer, &zero, 1, 0, 32 * kMiB, 0, nullptr, nullptr), "fill");
  say("eight made, then used: %d", clFinish(cl.queue));
  let_settle(cl);
  for (cl_mem buffer : buffers) clReleaseMemObject(buffer);
  let_settle(cl);
}

// By a parent, through its sub-buffer.
static void through_sub_buffer(const Setup& cl) {
  release_used(cl, 384 * kMiB, 48 * kMiB);
  cl_mem parent = cl.buffer(250 * kMiB);
  cl_mem child = sub_buffer(parent, 0, 64 * kMiB);
  clReleaseMemObject(parent);
  put(cl.queue, child, 4096, 7);
  say("through a sub-buffer: %s", contents(cl.queue, child, 4096).c_str());
  let_settle(cl);
  clReleaseMemObject(child);
  let_settle(cl);
}

static void own_memory(const Setup& cl) {
  release_used(cl, 384 * kMiB, 32 * kMiB);
  std::unique_ptr<char[]> own(new (std::nothrow) char[200 * kMiB]);
  if (own) memset(own.get(), 1, 200 * kMiB);
  say("memory of the program's own: %s", own ? "there" : "none");
}

constexpr int kThreads = 4;

template <class Body>
static void run_threads(Body body) {
  std::vector<std::thread> all;
  for (int thread = 0; thread < kThreads; ++thread) all.emplace_back(body, thread);
  for (std::thread& thread : all) thread.join();
}

// The C library keeps their stacks and arenas for the next ones.
static void make_room_for_threads() {
  std::atomic<int> here{0};
  run_threads([&](int) {
    const std::unique_ptr<char[]> own(new char[100]);
    for (++here; here < kThreads;) std::this_thread::yield();
  });
}

// Together they never have more than half of what there is.
static void threads(const Setup& cl) {
  constexpr int kRounds = 40;
  std::atomic<int> failed{0};
  run_threads([&](int thread) {
    std::minstd_rand random(thread + 1u);
    cl_command_queue queue = cl.make_queue();
    for (int round = 0; round < kRounds; ++round) {
      cl_mem buffer = cl.buffer(32 * kMiB + 4096 * (random() % 7168));
      const char one = 1;
      if (clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 1, &one, 0, nullptr, nullptr) != CL_SUCCESS) ++failed;
      clReleaseMemObject(buffer);
    }
    clReleaseCommandQueue(queue);
  });
  say("%d threads: %d writes failed", kThreads, failed.load());
}

static void work(const Setup& cl) {
  one_large(cl);
  many_small(cl);
  made_before_used(cl);
  through_sub_buffer(cl);
  own_memory(cl);
  threads(cl);
}

// A process starts in its group; it limits itself when the driver has what it takes at its first command.
int main(int, char** arguments) {
  const std::string which = arguments[1];
  std::unique_ptr<Limit> limit;
  if (which == "group") limit = std::make_unique<GroupLimit>();
  Setup cl;
  use(cl, "first", kMiB, false);
  make_room_for_threads();
  if (which == "space") limit = std::make_unique<ResourceLimit>(RLIMIT_AS, 0);
  if (which == "data") limit = std::make_unique<ResourceLimit>(RLIMIT_DATA, 5);
  work(cl);
  limit.reset();
  cl.release();
  return finish();
}
