// The soak: threads x queues of random create, write, fill, copy, kernel, map, retain, release and user events. Every
// buffer has an expected value for each word; commands are chained by events, so any word that differs is a buffer
// that was given to two users, or too early. Buffers also change hands between threads. A watchdog ends a deadlock.
// Options: --seconds N (5), --threads N (8), --queues N (4, each thread's own; 0: one for all), --seed N (random).
#include <chrono>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "programs/observe.hpp"

using Clock = std::chrono::steady_clock;

struct Options {
  int seconds = 5, threads = 8, queues = 4;
  uint32_t seed = std::random_device{}();
};

static std::atomic<uint64_t> steps{0}, checks{0}, handed_over{0};
static std::atomic<bool> stop{false}, finished{false};
static std::atomic<uint32_t> run_seed{0};

[[noreturn, gnu::format(printf, 1, 2)]] static void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "soak: seed %u, step %llu: ", run_seed.load(), static_cast<unsigned long long>(steps));
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  abort();
}
static void check(cl_int code, const char* what) {
  if (code != CL_SUCCESS) fail("%s: %d", what, code);
}

struct Buffer {
  cl_mem handle = nullptr;
  cl_event last = nullptr;  // the newest command that uses it; every later one waits for it
  unsigned references = 1;
  std::vector<uint32_t> words;
};

// Finished buffers that wait for a thread to adopt them.
static std::mutex handover_lock;
static std::deque<Buffer> handover;

class Worker {
 public:
  Worker(const Setup& cl, const Options& options, uint32_t seed);
  ~Worker();
  void run();

 private:
  struct Pending {  // a non-blocking read and what it must find
    cl_event event;
    std::vector<uint32_t> got, expected;
  };
  uint32_t pick(uint32_t n) { return random_() % n; }
  cl_command_queue queue() { return queues_[pick(queues_.size())]; }
  Buffer& any() { return buffers_[pick(buffers_.size())]; }
  std::vector<cl_event> waits(std::initializer_list<const Buffer*> buffers);
  void used(std::initializer_list<Buffer*> buffers, cl_event event);
  void create();
  void drop(size_t index);
  void write();
  void fill();
  void copy();
  void kernel();
  void map();
  void read();
  void part();
  void retain();
  void give_away();
  void adopt();
  void open_gates();
  void settle_reads();
  static void compare(const std::vector<uint32_t>& got, const std::vector<uint32_t>& expected, const char* what);

  const Setup& cl_;
  std::mt19937 random_;
  std::vector<cl_command_queue> queues_;
  bool one_queue_ = false;  // of all threads: gates and maps, which hold all up, are rare
  cl_program program_;
  cl_kernel add_;
  std::vector<Buffer> buffers_;
  std::vector<cl_event> gates_;
  std::deque<Pending> reads_;
  std::deque<std::pair<cl_event, std::vector<uint32_t>>> staging_;  // sources of non-blocking writes
};

Worker::Worker(const Setup& cl, const Options& options, uint32_t seed)
    : cl_(cl), random_(seed), program_(cl.program()), add_(kernel_of(program_, "add")) {
  for (int i = 0; i < options.queues; ++i) {
    queues_.push_back(cl.make_queue(i % 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0));
  }
  if (queues_.empty()) {
    need(clRetainCommandQueue(cl.queue), "clRetainCommandQueue");
    queues_.push_back(cl.queue);
    one_queue_ = true;
  }
}

Worker::~Worker() {
  open_gates();
  for (cl_command_queue queue : queues_) check(clFinish(queue), "clFinish");
  settle_reads();
  while (!buffers_.empty()) drop(buffers_.size() - 1);
  for (auto& [event, words] : staging_) clReleaseEvent(event);
  clReleaseKernel(add_);
  clReleaseProgram(program_);
  for (cl_command_queue queue : queues_) clReleaseCommandQueue(queue);
}

void Worker::compare(const std::vector<uint32_t>& got, const std::vector<uint32_t>& expected, const char* what) {
  ++checks;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (got[i] != expected[i]) {
      fail("%s: word %zu of %zu is %u, expected %u", what, i, expected.size(), got[i], expected[i]);
    }
  }
}

// The events that a command on these buffers waits for; now and then a gate that opens later.
std::vector<cl_event> Worker::waits(std::initializer_list<const Buffer*> buffers) {
  std::vector<cl_event> events;
  for (const Buffer* buffer : buffers) {
    if (buffer->last) events.push_back(buffer->last);
  }
  if (pick(one_queue_ ? 5000 : 12) == 0) {
    gates_.push_back(cl_.gate());
    events.push_back(gates_.back());
  }
  return events;
}

void Worker::used(std::initializer_list<Buffer*> buffers, cl_event event) {
  for (Buffer* buffer : buffers) {
    if (buffer->last) clReleaseEvent(buffer->last);
    buffer->last = event;
    check(clRetainEvent(event), "clRetainEvent");
  }
  check(clReleaseEvent(event), "clReleaseEvent");
}

// Commands wait on each other across queues of this thread only, so opening its gates lets everything finish.
void Worker::open_gates() {
  for (cl_event gate : gates_) {
    check(clSetUserEventStatus(gate, CL_COMPLETE), "clSetUserEventStatus");
    check(clReleaseEvent(gate), "clReleaseEvent");
  }
  gates_.clear();
  for (cl_command_queue queue : queues_) check(clFlush(queue), "clFlush");
}

void Worker::settle_reads() {
  for (Pending& read : reads_) {
    check(clWaitForEvents(1, &read.event), "clWaitForEvents");
    check(clReleaseEvent(read.event), "clReleaseEvent");
    compare(read.got, read.expected, "read");
  }
  reads_.clear();
}

void Worker::create() {
  const size_t sizes[] = {256, 4096, 4096, 65536, 65536, 1 << 20};
  const cl_mem_flags flags[] = {CL_MEM_READ_WRITE, CL_MEM_READ_WRITE, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR};
  Buffer buffer;
  size_t bytes = sizes[pick(6)];
  buffer.handle = cl_.buffer(bytes, flags[pick(3)]);
  buffer.words.assign(bytes / 4, random_());
  auto source = buffer.words;
  cl_event event = nullptr;
  auto wait = waits({});
  check(clEnqueueWriteBuffer(queue(), buffer.handle, CL_FALSE, 0, bytes, source.data(), wait.size(),
                             wait.empty() ? nullptr : wait.data(), &event),
        "write");
  check(clRetainEvent(event), "clRetainEvent");
  staging_.emplace_back(event, std::move(source));
  used({&buffer}, event);
  buffers_.push_back(std::move(buffer));
}

// Lets go of a buffer, most often while its commands are pending.
void Worker::drop(size_t index) {
  Buffer& buffer = buffers_[index];
  while (buffer.references--) check(clReleaseMemObject(buffer.handle), "clReleaseMemObject");
  if (buffer.last) clReleaseEvent(buffer.last);
  std::swap(buffer, buffers_.back());
  buffers_.pop_back();
}

void Worker::write() {
  Buffer& buffer = any();
  auto wait = waits({&buffer});
  size_t first = pick(buffer.words.size()), count = 1 + pick(buffer.words.size() - first);
  std::vector<uint32_t> source(count, random_());
  std::copy(source.begin(), source.end(), buffer.words.data() + first);
  cl_event event = nullptr;
  check(clEnqueueWriteBuffer(queue(), buffer.handle, CL_FALSE, first * 4, count * 4, source.data(), wait.size(),
                             wait.empty() ? nullptr : wait.data(), &event),
        "write");
  check(clRetainEvent(event), "clRetainEvent");
  staging_.emplace_back(event, std::move(source));
  used({&buffer}, event);
}

void Worker::fill() {
  Buffer& buffer = any();
  auto wait = waits({&buffer});
  uint32_t word = random_();
  cl_event event = nullptr;
  check(clEnqueueFillBuffer(queue(), buffer.handle, &word, 4, 0, buffer.words.size() * 4, wait.size(),
                            wait.empty() ? nullptr : wait.data(), &event),
        "fill");
  std::fill(buffer.words.begin(), buffer.words.end(), word);
  used({&buffer}, event);
}

void Worker::copy() {
  Buffer &from = any(), &to = any();
  if (&from == &to) return;
  auto wait = waits({&from, &to});
  size_t count = std::min(from.words.size(), to.words.size());
  cl_event event = nullptr;
  check(clEnqueueCopyBuffer(queue(), from.handle, to.handle, 0, 0, count * 4, wait.size(),
                            wait.empty() ? nullptr : wait.data(), &event),
        "copy");
  std::copy_n(from.words.begin(), count, to.words.begin());
  used({&from, &to}, event);
}

void Worker::kernel() {
  Buffer& buffer = any();
  auto wait = waits({&buffer});
  uint32_t amount = random_();
  size_t global = buffer.words.size();
  check(clSetKernelArg(add_, 0, sizeof buffer.handle, &buffer.handle), "clSetKernelArg");
  check(clSetKernelArg(add_, 1, sizeof amount, &amount), "clSetKernelArg");
  cl_event event = nullptr;
  check(clEnqueueNDRangeKernel(queue(), add_, 1, nullptr, &global, nullptr, wait.size(),
                               wait.empty() ? nullptr : wait.data(), &event),
        "kernel");
  for (uint32_t& word : buffer.words) word += amount;
  used({&buffer}, event);
}

void Worker::map() {
  Buffer& buffer = any();
  open_gates();
  cl_int code = 0;
  cl_command_queue on = queue();
  auto* mapped = static_cast<uint32_t*>(clEnqueueMapBuffer(on, buffer.handle, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                                           buffer.words.size() * 4, buffer.last ? 1 : 0,
                                                           buffer.last ? &buffer.last : nullptr, nullptr, &code));
  check(code, "map");
  compare(std::vector<uint32_t>(mapped, mapped + buffer.words.size()), buffer.words, "map");
  for (size_t i = 0; i < buffer.words.size(); i += 7) mapped[i] = buffer.words[i] = random_();
  cl_event event = nullptr;
  check(clEnqueueUnmapMemObject(on, buffer.handle, mapped, 0, nullptr, &event), "unmap");
  used({&buffer}, event);
}

void Worker::read() {
  Buffer& buffer = any();
  auto wait = waits({&buffer});
  reads_.push_back({nullptr, std::vector<uint32_t>(buffer.words.size()), buffer.words});
  Pending& read = reads_.back();
  check(clEnqueueReadBuffer(queue(), buffer.handle, CL_FALSE, 0, buffer.words.size() * 4, read.got.data(), wait.size(),
                            wait.empty() ? nullptr : wait.data(), &read.event),
        "read");
  check(clRetainEvent(read.event), "clRetainEvent");
  used({&buffer}, read.event);
}

// A sub-buffer that is written through and let go while that write is pending.
void Worker::part() {
  Buffer& buffer = any();
  auto wait = waits({&buffer});
  cl_int code = 0;
  cl_mem handle = sub_buffer(buffer.handle, 128, 128, 0, &code);
  check(code, "clCreateSubBuffer");
  uint32_t word = random_();
  cl_event event = nullptr;
  check(
      clEnqueueFillBuffer(queue(), handle, &word, 4, 0, 128, wait.size(), wait.empty() ? nullptr : wait.data(), &event),
      "fill of a part");
  std::fill(buffer.words.begin() + 32, buffer.words.begin() + 64, word);
  check(clReleaseMemObject(handle), "clReleaseMemObject");
  used({&buffer}, event);
}

void Worker::retain() {
  Buffer& buffer = any();
  if (buffer.references < 3) {
    check(clRetainMemObject(buffer.handle), "clRetainMemObject");
    ++buffer.references;
  } else {
    check(clReleaseMemObject(buffer.handle), "clReleaseMemObject");
    --buffer.references;
  }
}

void Worker::give_away() {
  size_t index = pick(buffers_.size());
  Buffer& buffer = buffers_[index];
  open_gates();
  if (buffer.last) check(clWaitForEvents(1, &buffer.last), "clWaitForEvents");
  std::swap(buffer, buffers_.back());
  {
    std::lock_guard<std::mutex> guard(handover_lock);
    handover.push_back(std::move(buffers_.back()));
  }
  buffers_.pop_back();
  ++handed_over;
}

void Worker::adopt() {
  std::lock_guard<std::mutex> guard(handover_lock);
  if (handover.empty()) return;
  buffers_.push_back(std::move(handover.front()));
  handover.pop_front();
}

void Worker::run() {
  while (!stop) {
    ++steps;
    if (buffers_.size() < 4) create();
    if (buffers_.size() > 12) drop(pick(buffers_.size()));
    switch (pick(16)) {
      case 0:
      case 1:
      case 2:
        create();
        break;
      case 3:
      case 4:
      case 5:
        drop(pick(buffers_.size()));
        break;
      case 6:
        write();
        break;
      case 7:
        fill();
        break;
      case 8:
        copy();
        break;
      case 9:
        kernel();
        break;
      case 10:
      case 11:
        read();
        break;
      case 12:
        part();
        break;
      case 13:
        retain();
        break;
      case 14:
        if (one_queue_ && pick(500)) {
          kernel();
          break;
        }
        pick(4) ? map() : give_away();
        break;
      default:
        pick(2) ? adopt() : open_gates();
        break;
    }
    if (staging_.size() > 64 || reads_.size() > 16) {
      open_gates();
      settle_reads();
      for (auto& [event, words] : staging_) {
        check(clWaitForEvents(1, &event), "clWaitForEvents");
        check(clReleaseEvent(event), "clReleaseEvent");
      }
      staging_.clear();
    }
  }
}

// Watches the clean-up too: it waits for every command.
static void watch() {
  uint64_t before = steps;
  for (int quiet = 0; !finished;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    quiet = steps == before ? quiet + 1 : 0;
    before = steps;
    if (quiet == 60) fail("deadlock: no step for 30 s");
  }
}

static Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string name = argv[i];
    unsigned long value = strtoul(argv[i + 1], nullptr, 10);
    if (name == "--seconds")
      options.seconds = static_cast<int>(value);
    else if (name == "--threads")
      options.threads = static_cast<int>(value);
    else if (name == "--queues")
      options.queues = static_cast<int>(value);
    else if (name == "--seed")
      options.seed = static_cast<uint32_t>(value);
    else
      fail("unknown option %s", argv[i]);
  }
  return options;
}

int main(int argc, char** argv) {
  Options options = parse(argc, argv);
  run_seed = options.seed;
  say("seed %u, %d threads x %d queues, %d s", options.seed, options.threads, options.queues, options.seconds);
  Setup cl;
  std::thread watchdog(watch);
  std::vector<std::thread> threads;
  auto end = Clock::now() + std::chrono::seconds(options.seconds);
  for (int i = 0; i < options.threads; ++i) {
    threads.emplace_back([&, i] {
      Worker worker(cl, options, options.seed + 1000003u * static_cast<uint32_t>(i));
      worker.run();
    });
  }
  while (Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (Buffer& buffer : handover) {
    while (buffer.references--) check(clReleaseMemObject(buffer.handle), "clReleaseMemObject");
    if (buffer.last) clReleaseEvent(buffer.last);
  }
  cl.release();
  finished = true;
  watchdog.join();
  say("%llu steps, %llu contents checked, %llu buffers changed hands, no difference",
      static_cast<unsigned long long>(steps), static_cast<unsigned long long>(checks),
      static_cast<unsigned long long>(handed_over));
  return finish();
}
