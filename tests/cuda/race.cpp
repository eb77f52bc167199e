// The race proof: threads x streams of random allocate, launch, copy, free and capture. Every block has a value that
// each command on it expects and replaces, in the order of its stream; blocks change streams by events and owners by a
// queue. A write that arrives late in a block of somebody else, or a read that finds a block of somebody else, is seen
// by the next command on it. The driver must poison what it frees and run its streams late (SIMCUDA_STREAM_DELAY_US).
// Options: --steps N (200000, of all threads), --threads N (4), --streams N (4), --seed N (random; CISTERN_TEST_SEED),
// --captures N (1 in N steps, 60; 0: none), --ordered 0 (no stream-ordered allocation or free).
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "random_program.hpp"

struct Options {
  unsigned long steps = 200000, threads = 4, streams = 4, captures = 60, ordered = 1;
};

static std::atomic<unsigned long> checks{0}, frees_pending{0}, captures{0}, handed_over{0};
static std::atomic<bool> finished{false};

// What a kernel found wrong; in memory that the device and the host see.
struct Verdict {
  unsigned wrong, expected, found, word;
};
static Verdict* verdict = nullptr;

ON_BOTH inline void complain(Verdict* to, unsigned expected, unsigned found, size_t word) {
#ifdef __CUDA_ARCH__
  const bool first = atomicAdd(&to->wrong, 1u) == 0;
#else
  const bool first = __atomic_fetch_add(&to->wrong, 1u, __ATOMIC_RELAXED) == 0;
#endif
  if (!first) return;
  to->expected = expected;
  to->found = found;
  to->word = static_cast<unsigned>(word);
}

// Expects one value everywhere and leaves another.
struct Replace {
  static constexpr const char* kName = "replace";
  unsigned* data;
  unsigned expected, next;
  Verdict* verdict;
  ON_BOTH void operator()(size_t index) const {
    if (data[index] != expected) complain(verdict, expected, data[index], index);
    data[index] = next;
  }
};

static void look_at_verdict() {
  const unsigned wrong = __atomic_load_n(&verdict->wrong, __ATOMIC_RELAXED);
  if (wrong == 0) return;
  usleep(1000);  // the details are written after the count
  fail("a kernel found a stale byte: word %u is 0x%x, expected 0x%x (%u words so far; 0xdbdbdbdb is freed memory)",
       verdict->word, verdict->found, verdict->expected, wrong);
}

// The commands on a block are in the order of one stream at any time.
struct Block {
  unsigned* data = nullptr;
  size_t words = 0;
  unsigned value = 0;
  cudaStream_t stream = nullptr;
  bool ordered = false;  // made by cudaMallocAsync
};

static std::mutex handover_lock;
static std::deque<Block> handover;
static std::atomic<unsigned> next_value{1};

class Worker {
 public:
  Worker(const std::vector<cudaStream_t>& streams, const Options& options, unsigned long seed)
      : options_(options), random_(seed), streams_(streams), own_(new_stream()), capturing_(new_stream()) {
    CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  void run();
  void end();

 private:
  struct Arrival {  // a copy to pinned memory, and what it must bring
    unsigned* pinned;
    size_t words;
    unsigned value;
    cudaStream_t stream;
  };
  unsigned long pick(unsigned long n) { return random_() % n; }
  cudaStream_t any_stream() { return pick(6) == 0 ? own_ : streams_[pick(streams_.size())]; }
  Block& any() { return blocks_[pick(blocks_.size())]; }
  void step();
  void allocate();
  void release(size_t index);
  void launch_on(Block& block);
  void copy_between();
  void copy_out();
  void copy_in();
  void look(Block& block);
  void move_to(Block& block, cudaStream_t stream);
  void renew_stream();
  void give_away();
  void adopt();
  void capture();
  void settle();

  const Options& options_;
  std::mt19937_64 random_;
  const std::vector<cudaStream_t>& streams_;
  cudaStream_t own_, capturing_;
  cudaEvent_t event_ = nullptr;
  std::vector<Block> blocks_;
  std::vector<Arrival> arrivals_;
};

void Worker::allocate() {
  const size_t sizes[] = {128, 128, 1024, 1024, 1500, 4096};
  Block block;
  block.words = sizes[pick(6)];
  block.stream = any_stream();
  block.ordered = options_.ordered && pick(20) == 0;
  void* data = nullptr;
  CHECK(block.ordered ? cudaMallocAsync(&data, block.words * 4, block.stream) : cudaMalloc(&data, block.words * 4));
  block.data = static_cast<unsigned*>(data);
  block.value = next_value++;
  CHECK(launch(block.stream, block.words, Fill{block.data, block.value}));
  blocks_.push_back(block);
}

// Most often while the block's commands are pending.
void Worker::release(size_t index) {
  Block& block = blocks_[index];
  if (block.ordered || (options_.ordered && pick(16) == 0))
    CHECK(cudaFreeAsync(block.data, block.stream));
  else
    CHECK(cudaFree(block.data));
  ++frees_pending;
  block = blocks_.back();
  blocks_.pop_back();
}

void Worker::launch_on(Block& block) {
  const unsigned next = next_value++;
  CHECK(launch(block.stream, block.words, Replace{block.data, block.value, next, verdict}));
  block.value = next;
  ++checks;
}

void Worker::move_to(Block& block, cudaStream_t stream) {
  if (block.stream == stream) return;
  CHECK(cudaEventRecord(event_, block.stream));
  CHECK(cudaStreamWaitEvent(stream, event_, 0));
  block.stream = stream;
}

void Worker::copy_between() {
  Block &from = any(), &to = any();
  if (&from == &to || from.words > to.words) return;
  move_to(to, from.stream);
  CHECK(cudaMemcpyAsync(to.data, from.data, from.words * 4, cudaMemcpyDeviceToDevice, from.stream));
  if (from.words < to.words) CHECK(launch(to.stream, to.words - from.words, Fill{to.data + from.words, from.value}));
  to.value = from.value;
}

void Worker::copy_out() {
  Block& block = any();
  void* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, block.words * 4));
  CHECK(cudaMemcpyAsync(pinned, block.data, block.words * 4, cudaMemcpyDeviceToHost, block.stream));
  arrivals_.push_back({static_cast<unsigned*>(pinned), block.words, block.value, block.stream});
  if (arrivals_.size() > 8) settle();
}

// The pinned source is freed while the copy from it is pending.
void Worker::copy_in() {
  Block& block = any();
  void* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, block.words * 4));
  block.value = next_value++;
  std::fill_n(static_cast<unsigned*>(pinned), block.words, block.value);
  CHECK(cudaMemcpyAsync(block.data, pinned, block.words * 4, cudaMemcpyHostToDevice, block.stream));
  CHECK(cudaFreeHost(pinned));
}

void Worker::settle() {
  for (const Arrival& arrival : arrivals_) {
    CHECK(cudaStreamSynchronize(arrival.stream));
    for (size_t i = 0; i < arrival.words; ++i) {
      if (arrival.pinned[i] != arrival.value)
        fail("copied to pinned memory: word %zu is 0x%x, expected 0x%x", i, arrival.pinned[i], arrival.value);
    }
    CHECK(cudaFreeHost(arrival.pinned));
    ++checks;
  }
  arrivals_.clear();
}

void Worker::look(Block& block) {
  std::vector<unsigned> words(block.words);
  CHECK(cudaMemcpyAsync(words.data(), block.data, block.words * 4, cudaMemcpyDeviceToHost, block.stream));
  CHECK(cudaStreamSynchronize(block.stream));
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] != block.value) fail("read back: word %zu is 0x%x, expected 0x%x", i, words[i], block.value);
  }
  ++checks;
}

// The stream is destroyed with work pending in it.
void Worker::renew_stream() {
  settle();
  for (Block& block : blocks_) {
    if (block.stream == own_) move_to(block, streams_[pick(streams_.size())]);
  }
  CHECK(cudaStreamDestroy(own_));
  own_ = new_stream();
}

void Worker::give_away() {
  const size_t index = pick(blocks_.size());
  move_to(blocks_[index], streams_[pick(streams_.size())]);
  {
    std::lock_guard<std::mutex> guard(handover_lock);
    handover.push_back(blocks_[index]);
  }
  blocks_[index] = blocks_.back();
  blocks_.pop_back();
  ++handed_over;
}

void Worker::adopt() {
  std::lock_guard<std::mutex> guard(handover_lock);
  if (handover.empty()) return;
  blocks_.push_back(handover.front());
  handover.pop_front();
}

// A graph of commands on one block; meanwhile blocks come and go, as far as the mode allows it.
void Worker::capture() {
  const bool relaxed = pick(3) != 0;
  const size_t index = pick(blocks_.size());
  Block block = blocks_[index];
  blocks_[index] = blocks_.back();
  blocks_.pop_back();
  move_to(block, capturing_);
  CHECK(cudaStreamBeginCapture(capturing_, relaxed ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < 2; ++i) launch_on(block);
  for (unsigned long i = pick(5); i-- > 0 && !blocks_.empty();) {
    launch_on(any());
    if (!relaxed) continue;
    allocate();
    release(pick(blocks_.size()));
  }
  launch_on(block);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(capturing_, &graph));
  cudaGraphExec_t run = nullptr;
  CHECK(cudaGraphInstantiate(&run, graph, 0));
  CHECK(cudaGraphLaunch(run, capturing_));
  // While the graph runs. A plain free of stream-ordered memory does not wait: that would be the program's own race.
  if (!block.ordered && pick(2)) {
    CHECK(cudaFree(block.data));
    ++frees_pending;
  } else {
    move_to(block, streams_[pick(streams_.size())]);
    blocks_.push_back(block);
  }
  CHECK(cudaStreamSynchronize(capturing_));
  CHECK(cudaGraphExecDestroy(run));
  CHECK(cudaGraphDestroy(graph));
  ++captures;
}

void Worker::step() {
  if (blocks_.size() < 4) allocate();
  if (blocks_.size() > 16) release(pick(blocks_.size()));
  if (options_.captures && pick(options_.captures) == 0) return capture();
  switch (pick(20)) {
    case 0:
    case 1:
    case 2:
    case 3:
      return allocate();
    case 4:
    case 5:
    case 6:
    case 7:
      return release(pick(blocks_.size()));
    case 8:
    case 9:
    case 10:
    case 11:
      return launch_on(any());
    case 12:
    case 13:
      return copy_between();
    case 14:
      return copy_out();
    case 15:
      return copy_in();
    case 16:
      return look(any());
    case 17:
      return give_away();
    case 18:
      return adopt();
    default:
      return pick(8) ? move_to(any(), any_stream()) : renew_stream();
  }
}

void Worker::run() {
  for (unsigned long i = 0; i < options_.steps / options_.threads; ++i) {
    step();
    ++steps_done;
    look_at_verdict();
  }
}

void Worker::end() {
  settle();
  for (Block& block : blocks_) look(block);
  while (!blocks_.empty()) release(blocks_.size() - 1);
  for (cudaStream_t stream : {own_, capturing_}) CHECK(cudaStreamDestroy(stream));
  CHECK(cudaEventDestroy(event_));
}

// Watches the clean-up too: it waits for everything.
static void watch() {
  unsigned long before = steps_done;
  for (int quiet = 0; !finished;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    quiet = steps_done == before ? quiet + 1 : 0;
    before = steps_done;
    if (quiet == 600) fail("deadlock: no step for 60 s");
  }
}

static Options parse(int argc, char** argv) {
  Options options;
  const struct {
    const char* name;
    unsigned long* value;
  } names[] = {{"--steps", &options.steps}, {"--threads", &options.threads},   {"--streams", &options.streams},
               {"--seed", &run_seed},       {"--captures", &options.captures}, {"--ordered", &options.ordered}};
  for (int i = 1; i + 1 < argc; i += 2) {
    bool known = false;
    for (const auto& one : names) {
      if (strcmp(argv[i], one.name) != 0) continue;
      *one.value = static_cast<unsigned long>(strtod(argv[i + 1], nullptr));  // 1e6 is a number too
      known = true;
    }
    if (!known) fail("unknown option %s", argv[i]);
  }
  return options;
}

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  say("seed %lu, %lu steps, %lu threads x %lu streams", run_seed, options.steps, options.threads, options.streams);
  void* shared = nullptr;
  CHECK(cudaHostAlloc(&shared, sizeof(Verdict), cudaHostAllocMapped | cudaHostAllocPortable));
  verdict = new (shared) Verdict{};
  define_kernel<Fill>();
  define_kernel<Replace>();
  std::vector<cudaStream_t> streams;
  for (unsigned long i = 0; i < options.streams; ++i)
    streams.push_back(new_stream(i % 2 ? cudaStreamDefault : cudaStreamNonBlocking));
  std::thread watchdog(watch);
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  for (unsigned long i = 0; i < options.threads; ++i) {
    workers.push_back(std::make_unique<Worker>(streams, options, run_seed + 1000003 * i));
    threads.emplace_back([worker = workers.back().get()] { worker->run(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& worker : workers) worker->end();
  for (Block& block : handover) CHECK(block.ordered ? cudaFreeAsync(block.data, block.stream) : cudaFree(block.data));
  CHECK(cudaDeviceSynchronize());
  look_at_verdict();
  for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFreeHost(verdict));
  finished = true;
  watchdog.join();
  say("%lu steps, %lu contents checked, %lu frees, %lu captures, %lu blocks changed hands: no stale byte",
      steps_done.load(), checks.load(), frees_pending.load(), captures.load(), handed_over.load());
  return 0;
}
