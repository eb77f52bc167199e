// The walk by rows against the unwinders that read the same tables each time: frame by frame, for code of many shapes.
#include "stats/unwind/unwinder.hpp"

#include <alloca.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <ucontext.h>

#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

// Whether handlers of signals are passed by rows, too.
#if defined(__x86_64__)
#define ROWS_PASS_HANDLERS 1
#else
#define ROWS_PASS_HANDLERS 0
#endif
#if defined(__GNUC__) && !defined(__clang__)
#define OPTIMIZED(...) [[gnu::optimize(__VA_ARGS__)]]
#else
#define OPTIMIZED(...)
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#else
#define HAS_SANITIZER 0
#endif

namespace cistern {
namespace {

constexpr int kFramesMax = 64;
using Stack = std::vector<std::uintptr_t>;
using Unwinder = int (*)(void** frames, int frames_max);

// What a test's calls share: the leaf compares, and counts what it compared.
struct Comparison {
  unsigned stacks = 0, by_rows = 0, by_name = 0;
  std::size_t deepest = 0;
};
Comparison compared;
thread_local volatile int keep_frame = 0;

Unwinder libunwind() {
  static const Unwinder function = [] {
    void* const library = HAS_SANITIZER ? nullptr : dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    return library ? reinterpret_cast<Unwinder>(dlsym(library, "unw_backtrace")) : nullptr;
  }();
  return function;
}

// From the frame that `start` returns to; as many as all unwinders have room for behind their own.
Stack behind(void* const* frames, int count, const void* start) {
  int first = 0;
  while (first < count && frames[first] != start) ++first;
  Stack stack;
  for (int i = first; i < count && i < first + kFramesMax - 8; ++i)
    stack.push_back(reinterpret_cast<std::uintptr_t>(frames[i]));
  return stack;
}

std::string written(const Stack& stack) {
  std::string text;
  for (const std::uintptr_t address : stack) {
    char part[300];
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(address), &info);
    std::snprintf(part, sizeof part, "\n  %zx %s %s", static_cast<std::size_t>(address),
                  info.dli_fname ? info.dli_fname : "?", info.dli_sname ? info.dli_sname : "?");
    text += part;
  }
  return text;
}

// A stack that has a name has that of this very stack, however many are like it.
void compare_names(const WalkStart& from, const Stack& wanted) {
  static std::map<Stack, std::uint32_t> names;
  void* frames[kFramesMax];
  NamedStack named{&names};
  const std::uint32_t name = name_of_stack(from, &names);
  const int count = unwind_stack(from, frames, kFramesMax, nullptr, &named);
  const auto [entry, is_new] = names.try_emplace(wanted, names.size() + 1);
  if (name) {
    EXPECT_EQ(name, entry->second) << written(wanted);
    ++compared.by_name;
  } else {
    EXPECT_EQ(behind(frames, count, frames[0]), wanted);
    name_stack(named, entry->second);
  }
}

[[gnu::noinline]] int compare_here() {
  const void* const start = __builtin_extract_return_addr(__builtin_return_address(0));
  void* frames[kFramesMax];
  int count = unwind_stack_with_libgcc(frames, kFramesMax);
  const Stack wanted = behind(frames, count, start);
  EXPECT_GE(wanted.size(), 3u);
  count = unwind_stack(walk_start(), frames, kFramesMax);
  const Stack seen = behind(frames, count, start);
  EXPECT_EQ(seen, wanted) << "seen:" << written(seen) << "\nwanted:" << written(wanted);
  const int by_rows = unwind_stack_by_rows(walk_start(), frames, kFramesMax);
  if (by_rows >= 0) {
    const Stack again = behind(frames, by_rows, start);
    EXPECT_EQ(again, wanted) << "by rows:" << written(again) << "\nwanted:" << written(wanted);
  }
  if (const Unwinder other = libunwind(); other && by_rows >= 0) {
    count = other(frames, kFramesMax);
    const Stack others = behind(frames, count, start);
    EXPECT_EQ(others, wanted) << "libunwind:" << written(others) << "\nwanted:" << written(wanted);
  }
  compare_names(walk_start(), wanted);
  ++compared.stacks;
  compared.by_rows += by_rows >= 0;
  compared.deepest = std::max(compared.deepest, wanted.size());
  return static_cast<int>(wanted.size());
}

// --- Functions of many shapes that call one another
struct Tree {
  std::mt19937_64 random;
  int depth_max;
};
int call_any(Tree& tree, int depth);

#define SHAPE(name, ...) __VA_ARGS__ [[gnu::noinline]] int name(Tree& tree, int depth)

SHAPE(plain) {
  const int result = call_any(tree, depth + 1);
  keep_frame = keep_frame + 1;
  return result + 1;
}
SHAPE(with_frame_pointer, OPTIMIZED("O2", "no-omit-frame-pointer")) {
  const int result = call_any(tree, depth + 1);
  keep_frame = keep_frame + 2;
  return result + 1;
}
SHAPE(without_frame_pointer, OPTIMIZED("O2", "omit-frame-pointer")) {
  const int result = call_any(tree, depth + 1);
  keep_frame = keep_frame + 3;
  return result + 1;
}
SHAPE(unoptimized, OPTIMIZED("O0")) {
  int result = call_any(tree, depth + 1);
  keep_frame = keep_frame + 4;
  return result + 1;
}
SHAPE(unoptimized_without_frame_pointer, OPTIMIZED("O0", "omit-frame-pointer")) {
  int result = call_any(tree, depth + 1);
  keep_frame = keep_frame + 5;
  return result + 1;
}
SHAPE(with_alloca, OPTIMIZED("O2", "omit-frame-pointer")) {
  auto* const memory = static_cast<volatile char*>(alloca(16 + tree.random() % 500));
  memory[0] = 1;
  const int result = call_any(tree, depth + 1);
  return result + memory[0];
}
SHAPE(with_aligned_locals, OPTIMIZED("O2")) {
  alignas(64) volatile char memory[128];
  memory[tree.random() % 128] = 1;
  const int result = call_any(tree, depth + 1);
  return result + memory[0];
}
SHAPE(with_a_large_frame, OPTIMIZED("O2", "omit-frame-pointer")) {
  volatile char memory[100'000];
  memory[tree.random() % sizeof memory] = 1;
  const int result = call_any(tree, depth + 1);
  return result + (memory[7] == 1);
}
SHAPE(with_many_registers, OPTIMIZED("O2", "omit-frame-pointer")) {
  std::uint64_t a = tree.random(), b = tree.random(), c = tree.random(), d = tree.random(), e = tree.random(),
                f = tree.random();
  const int result = call_any(tree, depth + 1);
  keep_frame = static_cast<int>(a ^ b ^ c ^ d ^ e ^ f);
  const int second = depth + 1 < tree.depth_max ? 0 : call_any(tree, depth + 1);
  return result + second + (keep_frame != static_cast<int>(a ^ b ^ c ^ d ^ e ^ f));
}
// rbp holds anything but an address.
SHAPE(with_rbp_as_a_number, OPTIMIZED("O2", "omit-frame-pointer")) {
  std::uint64_t number = tree.random();
#if defined(__x86_64__) && !HAS_SANITIZER
  asm volatile("" : "+r"(number)::"rbx", "r12", "r13", "r14", "r15");
#endif
  const int result = call_any(tree, depth + 1);
  return result + static_cast<int>(number % 2);
}
OPTIMIZED("O2") [[gnu::noinline]] int variadic(Tree* tree, int depth, ...) {
  const int result = call_any(*tree, depth + 1);
  keep_frame = keep_frame + 6;
  return result + 1;
}
SHAPE(with_arguments_on_the_stack) {
  const int result = variadic(&tree, depth, 1, 2, 3, 4, 5, 6, 7, 8, 9);
  keep_frame = keep_frame + 7;
  return result;
}
SHAPE(through_a_function_object) {
  const std::function<int()> inner = [&] { return call_any(tree, depth + 1); };
  const int result = inner();
  keep_frame = keep_frame + 8;
  return result + 1;
}

struct Sorting {
  Tree* tree;
  int depth;
  bool called;
} sorting;
SHAPE(through_the_c_library) {
  const Sorting outer = sorting;
  sorting = {&tree, depth, false};
  int numbers[2] = {2, 1};
  std::qsort(numbers, 2, sizeof(int), [](const void* one, const void* other) {
    if (!sorting.called) {
      sorting.called = true;
      call_any(*sorting.tree, sorting.depth + 2);
    }
    return *static_cast<const int*>(one) - *static_cast<const int*>(other);
  });
  sorting = outer;
  return numbers[0];
}
// An exception in flight: in the destructors that run meanwhile, and in the handler.
struct InDestructor {
  Tree& tree;
  int depth;
  ~InDestructor() { call_any(tree, depth + 3); }
};
[[gnu::noinline]] void throw_past(Tree& tree, int depth) {
  const InDestructor last{tree, depth};
  throw depth;
}
SHAPE(with_an_exception) {
  try {
    throw_past(tree, depth);
  } catch (int thrown) {
    return thrown + call_any(tree, depth + 1);
  }
  return 0;
}

// What follows such a call in the code belongs to another path, with another frame.
[[noreturn]] [[gnu::noinline]] void call_and_throw(Tree& tree, int depth, long, long, long, long, long, long) {
  throw call_any(tree, depth + 1);
}
SHAPE(with_a_call_that_does_not_return, OPTIMIZED("O2", "omit-frame-pointer")) {
  try {
    if (keep_frame != INT_MIN) call_and_throw(tree, depth, 1, 2, 3, 4, 5, 6);
  } catch (int thrown) {
    return thrown;
  }
  return 0;
}

constexpr decltype(&plain) kShapes[] = {plain,
                                        with_a_call_that_does_not_return,
                                        with_frame_pointer,
                                        without_frame_pointer,
                                        unoptimized,
                                        unoptimized_without_frame_pointer,
                                        with_alloca,
                                        with_aligned_locals,
                                        with_a_large_frame,
                                        with_many_registers,
                                        with_rbp_as_a_number,
                                        with_arguments_on_the_stack,
                                        through_a_function_object,
                                        through_the_c_library,
                                        with_an_exception};

[[gnu::noinline]] int call_any(Tree& tree, int depth) {
  int sum = 0;
  if (depth >= tree.depth_max || tree.random() % 8 == 0) sum += compare_here();
  if (depth < tree.depth_max) sum += kShapes[tree.random() % std::size(kShapes)](tree, depth);
  keep_frame = keep_frame + 9;
  return sum;
}

void call_trees(std::uint64_t seed, int count) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
    Tree tree{random, 3 + static_cast<int>(random() % 25)};
    call_any(tree, 0);
  }
}

class UnwinderRows : public testing::Test {
 protected:
  void SetUp() override {
    compared = {};
    stacks_have_names = true;
  }
};

TEST_F(UnwinderRows, SeeWhatTheOthersSeeInRandomCallTrees) {
  call_trees(20261121, 150);
  EXPECT_GT(compared.stacks, 300u);
  EXPECT_GT(compared.deepest, 30u);
  // All shapes are ones that rows have: none of these stacks was another unwinder's.
  if (!HAS_SANITIZER) {
    EXPECT_EQ(compared.by_rows, compared.stacks);
  }
}

TEST_F(UnwinderRows, KnowStacksByNames) {
  for (int round = 0; round < 3; ++round) call_trees(20261126, 50);
  if (!HAS_SANITIZER) {
    EXPECT_GT(compared.by_name, 20u);  // most are too deep for names
  }
}

// More than the table has room for: it begins anew, and what was numbered before names nothing.
[[gnu::noinline]] int turns(unsigned bits, int depth, unsigned* named_now) {
  if (depth == 0) {
    static int tag;
    void* frames[kFramesMax];
    NamedStack named{&tag};
    const WalkStart here = walk_start();
    if (const std::uint32_t name = name_of_stack(here, &tag)) {
      ++*named_now;
      return static_cast<int>(name);
    }
    unwind_stack(here, frames, kFramesMax, nullptr, &named);
    name_stack(named, *named_now + 1);
    return 0;
  }
  if (bits & 1) {
    const int name = turns(bits >> 1, depth - 1, named_now);
    keep_frame = keep_frame + 1;
    return name;
  }
  const int name = turns(bits >> 1, depth - 1, named_now);
  keep_frame = keep_frame + 2;
  return name;
}
TEST_F(UnwinderRows, ForgetNamesWhenThereAreTooMany) {
  constexpr int kDepth = 13;
  for (int round = 0; round < 2; ++round)
    for (unsigned bits = 0; bits < 1u << kDepth; ++bits) {
      unsigned stack_number = bits;
      turns(bits, kDepth, &stack_number);  // named "bits + 1", if it has no name
      unsigned again = bits;
      const int name = turns(bits, kDepth, &again);
      if (name) {
        ASSERT_EQ(name, static_cast<int>(bits + 1));
      }
    }
}

TEST_F(UnwinderRows, SeeTheStacksOfThreads) {
  for (unsigned i = 0; i < 4; ++i) std::thread([&] { call_trees(i, 20); }).join();
  EXPECT_GT(compared.stacks, 40u);
}

// Threads at once learn rows and remember walks; what each sees is its own stack.
[[gnu::noinline]] int stack_at(int depth, Stack& stack) {
  if (depth) {
    const int result = stack_at(depth - 1, stack);
    keep_frame = keep_frame + 1;
    return result + 1;
  }
  void* frames[kFramesMax];
  const int count = unwind_stack(walk_start(), frames, kFramesMax);
  stack = behind(frames, count, __builtin_extract_return_addr(__builtin_return_address(0)));
  return count;
}
// All threads come to a depth by the same calls.
[[gnu::noinline]] bool is_named_wrongly(int depth, int left) {
  if (left) {
    const bool result = is_named_wrongly(depth, left - 1);
    keep_frame = keep_frame + 1;
    return result;
  }
  static int tag;
  void* frames[kFramesMax];
  NamedStack named{&tag};
  const WalkStart here = walk_start();
  if (const std::uint32_t name = name_of_stack(here, &tag)) return name != static_cast<unsigned>(depth) + 1;
  unwind_stack(here, frames, kFramesMax, nullptr, &named);
  name_stack(named, static_cast<unsigned>(depth) + 1);
  return false;
}
TEST_F(UnwinderRows, ServeThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<unsigned> wrong(40);
  for (unsigned number = 0; number < wrong.size(); ++number)
    threads.emplace_back([&wrong, number] {
      std::vector<Stack> first(20);
      for (int round = 0; round < 100; ++round)
        for (int depth = 0; depth < 20; ++depth) {
          Stack stack;
          stack_at(depth, stack);
          if (round == 0) first[static_cast<std::size_t>(depth)] = stack;
          const Stack& expected = first[static_cast<std::size_t>(depth)];
          const bool grows = depth == 0 || expected.size() == first[0].size() + static_cast<std::size_t>(depth);
          wrong[number] += stack != expected || !grows || is_named_wrongly(depth, depth);
        }
    });
  for (std::thread& thread : threads) thread.join();
  for (const unsigned count : wrong) EXPECT_EQ(count, 0u);
}

// --- Signals: what the kernel puts down for a handler leads to the code that was interrupted, maybe on another stack
// The handler only collects: comparing allocates.
struct InHandler {
  void* frames[2][kFramesMax];
  int counts[2], by_rows;
  WalkEnd end;
  bool passes_signal;
  const void* start;
} in_handler;
[[gnu::noinline]] void collect_in_handler(int) {
  in_handler.start = __builtin_extract_return_addr(__builtin_return_address(0));
  in_handler.counts[0] = unwind_stack_with_libgcc(in_handler.frames[0], kFramesMax);
  in_handler.counts[1] = unwind_stack(walk_start(), in_handler.frames[1], kFramesMax, &in_handler.end);
  in_handler.passes_signal = passes_signal(in_handler.frames[1], in_handler.counts[1]);
  void* frames[kFramesMax];
  in_handler.by_rows = unwind_stack_by_rows(walk_start(), frames, kFramesMax);
}
// Two signals on the stack.
void raise_in_handler(int signal) {
  raise(SIGUSR2);
  keep_frame = keep_frame + signal;
}
[[gnu::noinline]] void interrupted() {
  raise(SIGUSR1);
  keep_frame = keep_frame + 1;
}
// An instruction that is no call, with a frame that is found by rsp.
[[gnu::noinline]] OPTIMIZED("O2", "omit-frame-pointer") void interrupted_amid_code() {
  volatile int room[20] = {};
#if defined(__x86_64__)
  asm volatile("ud2");
#else
  asm volatile(".inst 0");  // udf #0
#endif
  keep_frame = keep_frame + room[3];
}
void handle_signals(int flags, void (*first)(int)) {
  in_handler = {};
  struct sigaction action {};
  action.sa_flags = flags;
  struct sigaction before[2];
  action.sa_handler = collect_in_handler;
  ASSERT_EQ(sigaction(SIGUSR2, &action, &before[1]), 0);
  action.sa_handler = first;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before[0]), 0);
  interrupted();
  sigaction(SIGUSR1, &before[0], nullptr);
  sigaction(SIGUSR2, &before[1], nullptr);
}
void compare_in_handler() {
  const Stack wanted = behind(in_handler.frames[0], in_handler.counts[0], in_handler.start);
  const Stack seen = behind(in_handler.frames[1], in_handler.counts[1], in_handler.start);
  EXPECT_GT(wanted.size(), 4u);
  EXPECT_EQ(seen, wanted) << "seen:" << written(seen) << "\nwanted:" << written(wanted);
#if !defined(__SANITIZE_THREAD__)  // which calls the inner one of two handlers later, by a plain call
  EXPECT_FALSE(in_handler.end.calls_only);
  EXPECT_TRUE(in_handler.passes_signal);
#endif
  if (ROWS_PASS_HANDLERS && !HAS_SANITIZER) {
    EXPECT_GT(in_handler.by_rows, 4);
  }
}
class SmallSignalStack {
 public:
  SmallSignalStack() {
    const stack_t small{.ss_sp = memory_, .ss_flags = 0, .ss_size = sizeof memory_};
    EXPECT_EQ(sigaltstack(&small, &before_), 0);
  }
  ~SmallSignalStack() { sigaltstack(&before_, nullptr); }

 private:
  char memory_[64 * 1024];  // above the frames that it leads to
  stack_t before_;
};
TEST_F(UnwinderRows, PassHandlersOfSignals) {
  handle_signals(0, collect_in_handler);
  compare_in_handler();
}
TEST_F(UnwinderRows, PassHandlersOfSignalsInHandlers) {
  handle_signals(0, raise_in_handler);
  compare_in_handler();
}
TEST_F(UnwinderRows, PassHandlersOnAStackOfTheirOwn) {
  const auto stack = std::make_unique<SmallSignalStack>();
  handle_signals(SA_ONSTACK, raise_in_handler);
  compare_in_handler();
  const SmallSignalStack above;
  handle_signals(SA_ONSTACK, collect_in_handler);
  compare_in_handler();
}
TEST_F(UnwinderRows, PassHandlersOfSignalsAmidCode) {
  struct sigaction action {};
  action.sa_sigaction = [](int signal, siginfo_t*, void* context) {
    collect_in_handler(signal);
#if defined(__x86_64__)
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP] += 2;  // ud2
#else
    static_cast<ucontext_t*>(context)->uc_mcontext.pc += 4;
#endif
  };
  action.sa_flags = SA_SIGINFO;
  struct sigaction before;
  in_handler = {};
  ASSERT_EQ(sigaction(SIGILL, &action, &before), 0);
  interrupted_amid_code();
  sigaction(SIGILL, &before, nullptr);
  compare_in_handler();
}

// --- Code that the tables say nothing of
#if defined(__x86_64__)
extern "C" int cistern_test_call_without_entry(int (*function)());
asm(R"(
  .text
  .type cistern_test_call_without_entry, @function
cistern_test_call_without_entry:
  subq $8, %rsp
  call *%rdi
  addq $8, %rsp
  ret
  .size cistern_test_call_without_entry, . - cistern_test_call_without_entry
)");
struct {
  void *by_rows[kFramesMax], *by_libgcc[kFramesMax];
  int rows_count, libgcc_count;
  WalkEnd end;
} without_entry;
TEST_F(UnwinderRows, EndAtCodeThatHasNoEntry) {
  cistern_test_call_without_entry([] {
    without_entry.rows_count =
        unwind_stack_by_rows(walk_start(), without_entry.by_rows, kFramesMax, &without_entry.end);
    return without_entry.libgcc_count = unwind_stack_with_libgcc(without_entry.by_libgcc, kFramesMax);
  });
  ASSERT_GT(without_entry.libgcc_count, 2);
  ASSERT_EQ(without_entry.rows_count, without_entry.libgcc_count - 2);  // which shows itself and its caller
  EXPECT_EQ(without_entry.by_rows[without_entry.rows_count - 1],
            without_entry.by_libgcc[without_entry.libgcc_count - 1]);
  EXPECT_FALSE(without_entry.end.is_whole);
}

// --- Code whose frame no row describes: libgcc walks, and its own frames take of the room
extern "C" int cistern_test_call_by_rbx(int (*function)());
asm(R"(
  .text
  .type cistern_test_call_by_rbx, @function
cistern_test_call_by_rbx:
  .cfi_startproc
  pushq %rbx
  .cfi_def_cfa_offset 16
  .cfi_offset %rbx, -16
  movq %rsp, %rbx
  .cfi_def_cfa_register %rbx
  call *%rdi
  popq %rbx
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
  .size cistern_test_call_by_rbx, . - cistern_test_call_by_rbx
)");
struct {
  int by_rows, count, limited_count;
  WalkEnd end, limited_end;
} by_rbx;
TEST_F(UnwinderRows, ByLibgccAreNotWholeWhereItsOwnFramesTookTheRoom) {
  cistern_test_call_by_rbx([] {
    void* frames[kFramesMax];
    by_rbx.by_rows = unwind_stack_by_rows(walk_start(), frames, kFramesMax);
    by_rbx.count = unwind_stack(walk_start(), frames, kFramesMax, &by_rbx.end);
    by_rbx.limited_count = unwind_stack(walk_start(), frames, by_rbx.count, &by_rbx.limited_end);
    return 0;
  });
  ASSERT_EQ(by_rbx.by_rows, -1);
  EXPECT_TRUE(by_rbx.end.is_whole);
  EXPECT_LT(by_rbx.limited_count, by_rbx.count);
  EXPECT_FALSE(by_rbx.limited_end.is_whole);
}
#endif

// --- A stack that is not the thread's
ucontext_t main_context, other_context;
void on_other_stack() {
  call_trees(5, 5);
  swapcontext(&other_context, &main_context);
}
TEST_F(UnwinderRows, SeeStacksThatAProgramMade) {
  if (HAS_SANITIZER) GTEST_SKIP() << "the sanitizer does not follow";
  std::vector<char> memory(8 << 20);
  getcontext(&other_context);
  other_context.uc_stack.ss_sp = memory.data();
  other_context.uc_stack.ss_size = memory.size();
  other_context.uc_link = &main_context;
  makecontext(&other_context, on_other_stack, 0);
  swapcontext(&main_context, &other_context);
  EXPECT_GT(compared.stacks, 5u);
}

// --- Libraries that come and go: their callbacks capture. Some are loaded where others were.
void* allocate_and_compare(void*, int count, int bytes) {
  compare_here();
  return std::calloc(static_cast<std::size_t>(count), static_cast<std::size_t>(bytes));
}
void release(void*, void* block) { std::free(block); }

// The beginning of z_stream and of bz_stream, and room for the rest.
struct ZStream {
  void* members[8];
  void* (*allocate)(void*, unsigned, unsigned);
  void (*release)(void*, void*);
  void* rest[16];
};
struct BzStream {
  void* members[7];
  void* (*allocate)(void*, int, int);
  void (*release)(void*, void*);
  void* rest[16];
};

bool use_zlib() {
  void* const library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return false;
  const auto start = reinterpret_cast<int (*)(ZStream*, int, const char*, int)>(dlsym(library, "deflateInit_"));
  const auto end = reinterpret_cast<int (*)(ZStream*)>(dlsym(library, "deflateEnd"));
  ZStream stream{};
  stream.allocate = [](void* context, unsigned count, unsigned bytes) {
    return allocate_and_compare(context, static_cast<int>(count), static_cast<int>(bytes));
  };
  stream.release = release;
  EXPECT_EQ(start(&stream, 6, "1", 112), 0);
  EXPECT_EQ(end(&stream), 0);
  EXPECT_EQ(dlclose(library), 0);
  return true;
}

bool use_bzip2() {
  void* const library = dlopen("libbz2.so.1.0", RTLD_NOW | RTLD_LOCAL);
  if (!library) return false;
  const auto start = reinterpret_cast<int (*)(BzStream*, int, int, int)>(dlsym(library, "BZ2_bzCompressInit"));
  const auto end = reinterpret_cast<int (*)(BzStream*)>(dlsym(library, "BZ2_bzCompressEnd"));
  BzStream stream{};
  stream.allocate = allocate_and_compare;
  stream.release = release;
  EXPECT_EQ(start(&stream, 1, 0, 0), 0);
  EXPECT_EQ(end(&stream), 0);
  EXPECT_EQ(dlclose(library), 0);
  return true;
}

TEST_F(UnwinderRows, FollowLibrariesThatComeAndGo) {
  volatile int rounds = 30;
  bool any = false;
  for (int i = 0; i < rounds; ++i) any = (i % 3 ? use_zlib() : use_bzip2()) || any;
  if (!any) GTEST_SKIP() << "neither libz nor libbz2";
  EXPECT_GE(compared.stacks, 30u);
  EXPECT_EQ(compared.by_rows, compared.stacks);
}

// --- A plugin where another one was, with the same code but for the size of its frame: the first one's rows are wrong
// there, and no address says so.
struct PluginWalk {
  const void* call;  // where the callback returns to, in the plugin
  std::uintptr_t stack;
  void *by_rows[kFramesMax], *by_libgcc[kFramesMax];
  int rows_count, libgcc_count;
} plugin_walk;
[[gnu::noinline]] unsigned walk_in_plugin() {
  plugin_walk.rows_count = unwind_stack_by_rows(walk_start(), plugin_walk.by_rows, kFramesMax);
  plugin_walk.libgcc_count = unwind_stack_with_libgcc(plugin_walk.by_libgcc, kFramesMax);
  plugin_walk.call = __builtin_extract_return_addr(__builtin_return_address(0));
  plugin_walk.stack = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  return 0;
}
struct PluginVisit {
  const void* call = nullptr;
  std::uintptr_t stack_bytes = 0;  // from the caller's frame to the callback's
};
[[gnu::noinline]] PluginVisit visit_plugin(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    ADD_FAILURE() << dlerror();
    return {};
  }
  reinterpret_cast<unsigned (*)(unsigned (*)())>(dlsym(library, "plugin_large"))(walk_in_plugin);
  EXPECT_GE(plugin_walk.rows_count, 0) << path;
  const Stack seen = behind(plugin_walk.by_rows, plugin_walk.rows_count, plugin_walk.call);
  const Stack wanted = behind(plugin_walk.by_libgcc, plugin_walk.libgcc_count, plugin_walk.call);
  EXPECT_GE(wanted.size(), 3u);
  EXPECT_EQ(seen, wanted) << path << "\nseen:" << written(seen) << "\nwanted:" << written(wanted);
  EXPECT_EQ(dlclose(library), 0);
  EXPECT_EQ(dlopen(path, RTLD_NOW | RTLD_NOLOAD), nullptr) << "it was not unloaded";
  return {plugin_walk.call, reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) - plugin_walk.stack};
}

TEST_F(UnwinderRows, TellAPluginFromAnotherAtItsPlace) {
  PluginVisit large, larger;
  // A library lies in the highest gap that has room for it. Both are of a size, so that is the one where the first was,
  // unless one above came free in between: then that is the place of both the next time.
  for (int i = 0; i < 10 && (i == 0 || larger.call != large.call) && !HasFailure(); ++i) {
    large = visit_plugin(PLUGIN_LARGE);
    larger = visit_plugin(PLUGIN_LARGER);
  }
  ASSERT_NE(large.call, nullptr);
  ASSERT_EQ(larger.call, large.call);
  EXPECT_GT(larger.stack_bytes, large.stack_bytes);
}

TEST_F(UnwinderRows, AllocateNothingOfTheProgram) {
  if (HAS_SANITIZER) GTEST_SKIP() << "malloc is not the C library's";
  void* frames[kFramesMax];
  const std::size_t before = mallinfo2().uordblks;
  const int count = unwind_stack_by_rows(walk_start(), frames, kFramesMax);
  EXPECT_EQ(mallinfo2().uordblks, before);
  EXPECT_GT(count, 3);
}

#if defined(__x86_64__)  // a function of aarch64 may load its return address before it mends it
// Coroutines that share one stack leave words of each other where their frames were.
[[gnu::noinline]] OPTIMIZED("no-omit-frame-pointer") int count_behind_garbage(std::uintptr_t rbp,
                                                                              std::uintptr_t address) {
  auto* const frame = static_cast<volatile std::uintptr_t*>(__builtin_frame_address(0));
  const std::uintptr_t own[] = {frame[0], frame[1]};
  if (rbp) frame[0] = rbp;
  if (address) frame[1] = address;
  void* frames[kFramesMax];
  const int count = unwind_stack(walk_start(), frames, kFramesMax);
  frame[0] = own[0];
  frame[1] = own[1];
  keep_frame = keep_frame + 1;
  return count;
}

// Its frame is found by rbp only.
[[gnu::noinline]] OPTIMIZED("no-omit-frame-pointer") int with_alloca(std::uintptr_t rbp, std::uintptr_t address) {
  volatile char* const room = static_cast<char*>(alloca(static_cast<std::size_t>(100 + keep_frame % 2)));
  room[0] = 1;
  const int count = count_behind_garbage(rbp, address);
  return count + room[0] - 1;
}

TEST_F(UnwinderRows, SurviveWordsThatAreNoFrames) {
  if (HAS_SANITIZER) GTEST_SKIP() << "it is the walk by rows that is tried, on a stack that is broken";
  const int whole = with_alloca(0, 0);
  EXPECT_GT(whole, 3);
  const std::uintptr_t here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  for (const std::uintptr_t rbp : {std::uintptr_t{0x20}, std::uintptr_t{8}, here + 1, here - (std::uintptr_t{1} << 20),
                                   here + (std::uintptr_t{1} << 28), ~std::uintptr_t{0} - 15, std::uintptr_t{1} << 46})
    EXPECT_LE(with_alloca(rbp, 0), whole) << std::hex << rbp;
  for (const std::uintptr_t address : {std::uintptr_t{1}, here, std::uintptr_t{0x123456789}, ~std::uintptr_t{0}})
    EXPECT_LE(with_alloca(0, address), whole) << std::hex << address;
}
#endif

#if defined(__x86_64__)
// 0: the stack had no name until now.
[[gnu::noinline]] std::uint32_t name_here(std::uint32_t name) {
  static int tag;
  const WalkStart here = walk_start();
  if (const std::uint32_t known = name_of_stack(here, &tag)) return known;
  void* frames[kFramesMax];
  NamedStack named{&tag};
  unwind_stack(here, frames, kFramesMax, nullptr, &named);
  name_stack(named, name);
  return 0;
}
[[gnu::noinline]] OPTIMIZED("no-omit-frame-pointer") std::uint32_t
    name_returning_to(std::uintptr_t address, std::uint32_t name) {
  auto* const frame = static_cast<volatile std::uintptr_t*>(__builtin_frame_address(0));
  const std::uintptr_t own = frame[1];
  if (address) frame[1] = address;
  const std::uint32_t known = name_here(name);
  frame[1] = own;
  keep_frame = keep_frame + 1;
  return known;
}
[[gnu::noinline]] std::uint32_t name_from_here(std::uintptr_t address, std::uint32_t name) {
  const std::uint32_t known = name_returning_to(address, name);
  keep_frame = keep_frame + 1;
  return known;
}
[[gnu::noinline]] std::uint32_t name_from_there(std::uint32_t name) {
  const std::uint32_t known = name_returning_to(0, name);
  keep_frame = keep_frame + 2;
  return known;
}

TEST_F(UnwinderRows, KnowAStackAgainWhereOthersWereSince) {
  if (HAS_SANITIZER) GTEST_SKIP() << "it is the walk by rows that is tried";
  for (unsigned round = 0; round < 4; ++round) {
    const std::uint32_t here = name_from_here(0, 7), there = name_from_there(8);
    if (round < 2) continue;
    EXPECT_EQ(here, 7u);
    EXPECT_EQ(there, 8u);
  }
}

TEST_F(UnwinderRows, NameNoStackWhoseReturnAddressWasChangedInPlace) {
  if (HAS_SANITIZER) GTEST_SKIP() << "it is the walk by rows that is tried, on a stack that is broken";
  for (unsigned round = 0; round < 3; ++round) {
    const std::uint32_t whole = name_from_here(0, 9), changed = name_from_here(0x123456789, 10);
    EXPECT_EQ(whole, round ? 9u : 0u);
    EXPECT_NE(changed, 9u);
  }
}
#endif

TEST_F(UnwinderRows, StopWhereTheCallerSays) {
  void* all[kFramesMax];
  const int count = unwind_stack(walk_start(), all, kFramesMax);
  ASSERT_GT(count, 4);
  for (int limit = 0; limit < 4; ++limit) {
    void* frames[8] = {};
    EXPECT_EQ(unwind_stack(walk_start(), frames, limit), limit);
    EXPECT_EQ(frames[limit], nullptr);
  }
}

}  // namespace
}  // namespace cistern
