/* aborting WAY [BYTES]: holds an OpenCL buffer, or none where WAY begins with "cpu_", and ends by abort, in one of many
   ways, or waits for a signal. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace {

__attribute__((noinline)) void hold_memory() {
  cl_platform_id platform;
  cl_device_id device;
  if (clGetPlatformIDs(1, &platform, nullptr) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr))
    _exit(2);
  cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
  clCreateBuffer(context, 0, 4096, nullptr, nullptr);
  signal(SIGABRT, SIG_DFL);  // the compiler in PoCL has a handler of its own
}

void* abort_here(void*) { abort(); }

void say(const char* text) { (void)!write(1, text, strlen(text)); }

void say_and_return(int) { say("handled\n"); }

void say_and_raise(int number) {
  say("handled\n");
  signal(number, SIG_DFL);
  raise(number);
}

void show(const char* when) {
  struct sigaction entry;
  sigaction(SIGABRT, nullptr, &entry);
  printf("%s: %s %x\n", when, entry.sa_handler == SIG_DFL ? "default" : "not default", entry.sa_flags);
  fflush(stdout);
}

void say_end_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  printf("child: %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status));
  fflush(stdout);
}

int handlers_own_bytes;
__attribute__((noinline)) void use_stack_and_abort(int) {
  auto* const used = static_cast<volatile char*>(__builtin_alloca(static_cast<size_t>(handlers_own_bytes)));
  for (int i = 0; i < handlers_own_bytes; ++i) used[i] = 1;
  abort();
}

// Of 8 KiB, as Rust's are.
void fault_beside_a_small_stack(int bytes) {
  handlers_own_bytes = bytes;
  alignas(64) static char stack[8192];
  stack_t small{};
  small.ss_sp = stack, small.ss_size = sizeof stack;
  sigaltstack(&small, nullptr);
  struct sigaction entry {};
  entry.sa_handler = use_stack_and_abort, entry.sa_flags = SA_ONSTACK;
  sigaction(SIGSEGV, &entry, nullptr);
  raise(SIGSEGV);
}

void abort_at_exit() { abort(); }

}  // namespace

int main(int, char** argv) {
  std::string way = argv[1];
  const rlimit none{};
  if (!getenv("WITH_CORE")) setrlimit(RLIMIT_CORE, &none);
  way.starts_with("cpu_") ? (void)(way = way.substr(4)) : hold_memory();
  pthread_t thread, other;
  if (way == "assert") assert(!"as asked");
  if (way == "throw") throw std::runtime_error("as asked");
  if (way == "thread") pthread_create(&thread, nullptr, abort_here, nullptr), pthread_join(thread, nullptr);
  if (way == "two_threads") {
    pthread_create(&thread, nullptr, abort_here, nullptr), pthread_create(&other, nullptr, abort_here, nullptr);
    pthread_join(thread, nullptr), pthread_join(other, nullptr);
  }
  if (way == "blocked") {
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, nullptr);
  }
  if (way == "fault") fault_beside_a_small_stack(atoi(argv[2]));
  if (way == "ignored") signal(SIGABRT, SIG_IGN);
  if (way == "own_handler") signal(SIGABRT, say_and_return);
  if (way == "raising_handler") signal(SIGABRT, say_and_raise);
  if (way == "shown") show("at start"), signal(SIGABRT, say_and_return), signal(SIGABRT, SIG_DFL), show("set back");
  if (way == "forked" || way == "forked_user") {
    const pid_t child = fork();
    if (!child && way == "forked_user") hold_memory();
    if (!child) abort();
    say_end_of(child);
    return 0;
  }
  if (way == "vforked") {
    const pid_t child = vfork();
    if (!child) abort();
    say_end_of(child);
    return 0;
  }
  if (way == "spawned") {
    const pid_t child = fork();
    if (!child) execl("/bin/sh", "sh", "-c", "kill -ABRT $$; echo alive", nullptr);
    say_end_of(child);
    return 0;
  }
  if (way == "freed_twice") {
    char* volatile block = static_cast<char*>(malloc(100));
    free(block), free(block);
  }
  if (way == "at_exit") atexit(abort_at_exit), exit(0);
  if (way == "beside_churn") {
    pthread_create(
        &thread, nullptr,
        [](void*) -> void* {
          for (;;) free(malloc(100000));
        },
        nullptr);
    usleep(10000);
  }
  if (way == "let_in_by_ppoll") {
    sigset_t set, none_blocked;
    sigemptyset(&none_blocked), sigemptyset(&set), sigaddset(&set, SIGABRT);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    raise(SIGABRT);
    ppoll(nullptr, 0, nullptr, &none_blocked);
    say("alive\n");
    return 0;
  }
  if (way == "wait") {
    say("ready\n");
    for (;;) pause();
  }
  if (way == "churn") {
    say("ready\n");
    for (unsigned seed = 1;;) free(malloc(static_cast<size_t>(rand_r(&seed)) % 200000));
  }
  abort();
}
