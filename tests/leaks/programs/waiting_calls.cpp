// Threads that wait in every call of the system that may be stopped, and in some that may not, while the process ends.
// Each prints what its call answered when an exit handler let it end.
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

namespace {

constexpr long kMs = 1'000'000;
std::atomic<bool> over{false};
int pipe_to_read[2], pipe_to_write[2], sockets[2], timed[2], for_all[2], events, timer, signals, watch, epoll,
    semaphores, messages;
aio_context_t requests;
std::vector<std::thread> threads;

timespec time_out() { return {0, 700 * kMs}; }

template <class Call>
void waits(const char* name, Call call) {
  threads.emplace_back([=] {
    errno = 0;
    const long answer = call();
    std::printf("%s: %ld, errno %d\n", name, answer, answer < 0 ? errno : 0);
  });
}

void prepare() {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  const timeval seconds{0, 700'000};
  if (pipe(pipe_to_read) || pipe(pipe_to_write) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) ||
      socketpair(AF_UNIX, SOCK_STREAM, 0, timed) || socketpair(AF_UNIX, SOCK_STREAM, 0, for_all) ||
      setsockopt(timed[0], SOL_SOCKET, SO_RCVTIMEO, &seconds, sizeof seconds) || syscall(SYS_io_setup, 1, &requests))
    std::abort();
  events = eventfd(0, 0);
  timer = timerfd_create(CLOCK_MONOTONIC, 0);
  const itimerspec once{{0, 0}, {0, 700 * kMs}};
  timerfd_settime(timer, 0, &once, nullptr);
  signals = signalfd(-1, &blocked, 0);
  watch = inotify_init();
  inotify_add_watch(watch, "/tmp", IN_OPEN);
  epoll = epoll_create1(0);
  epoll_event of_pipe{EPOLLIN, {}};
  epoll_ctl(epoll, EPOLL_CTL_ADD, pipe_to_read[0], &of_pipe);
  semaphores = semget(IPC_PRIVATE, 2, 0600);
  messages = msgget(IPC_PRIVATE, 0600);
  // A part of it has come.
  if (write(for_all[0], "abc", 3) != 3) std::abort();
}

void start() {
  waits("poll", [] { return poll(nullptr, 0, 700); });
  waits("ppoll", [] {
    const timespec time = time_out();
    return ppoll(nullptr, 0, &time, nullptr);
  });
  waits("select", [] {
    timeval time{0, 700'000};
    return select(0, nullptr, nullptr, nullptr, &time);
  });
  waits("nanosleep", [] {
    const timespec time = time_out();
    return nanosleep(&time, nullptr);
  });
  waits("clock_nanosleep", [] {
    const timespec time = time_out();
    return clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
  });
  waits("epoll_wait", [] {
    epoll_event event;
    return epoll_wait(epoll, &event, 1, -1);
  });
  waits("epoll_wait for a time", [] {
    const int other = epoll_create1(0);
    epoll_event event;
    return epoll_wait(other, &event, 1, 700);
  });
  waits("epoll_pwait", [] {
    sigset_t none;
    sigemptyset(&none);
    const int other = epoll_create1(0);
    epoll_event event;
    return epoll_pwait(other, &event, 1, 700, &none);
  });
  waits("read of a pipe", [] {
    std::array<char, 10> some;
    usleep(1000);
    return read(pipe_to_read[0], some.data(), 1);
  });
  waits("readv of an event counter", [] {
    std::uint64_t count;
    const iovec part{&count, sizeof count};
    return readv(events, &part, 1);
  });
  waits("read of a timer", [] {
    std::uint64_t count;
    return read(timer, &count, sizeof count);
  });
  waits("read of a signal", [] {
    signalfd_siginfo info;
    return read(signals, &info, sizeof info);
  });
  waits("recv", [] {
    char one;
    return recv(sockets[0], &one, 1, 0);
  });
  waits("recvmsg", [] {
    char one;
    iovec part{&one, 1};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    return recvmsg(timed[1], &message, 0);
  });
  waits("recv for a time", [] {
    char one;
    return recv(timed[0], &one, 1, 0);
  });
  waits("recv of all", [] {
    std::array<char, 100> all;
    return recv(for_all[1], all.data(), 64, MSG_WAITALL);
  });
  waits("write of much", [] {
    const std::vector<char> much(300'000);
    return write(pipe_to_write[1], much.data(), much.size());
  });
  waits("sigtimedwait", [] {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGRTMIN + 3);
    pthread_sigmask(SIG_BLOCK, &wanted, nullptr);
    const timespec time = time_out();
    return sigtimedwait(&wanted, nullptr, &time);
  });
  waits("semop", [] {
    sembuf down{0, -1, 0};
    return semop(semaphores, &down, 1);
  });
  waits("semtimedop", [] {
    sembuf down{1, -1, 0};
    const timespec time = time_out();
    return semtimedop(semaphores, &down, 1, &time);
  });
  waits("msgrcv", [] {
    struct {
      long type;
      char text[8];
    } message;
    return msgrcv(messages, &message, 8, 0, 0);
  });
  waits("io_getevents", [] {
    io_event event;
    timespec time = time_out();
    return syscall(SYS_io_getevents, requests, 1, 1, &event, &time);
  });
  waits("a condition for a time", [] {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    pthread_mutex_lock(&mutex);
    return pthread_cond_timedwait(&condition, &mutex, &until);
  });
  waits("a semaphore for a time", [] {
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    return sem_timedwait(&semaphore, &until);
  });
  waits("a loop", [] {
    long rounds = 0;
    while (!over) ++rounds;
    return rounds > 0;
  });
}

void let_end() {
  usleep(1'100'000);
  over = true;
  std::array<char, 100> some{};
  const std::uint64_t one = 1;
  const bool written = write(pipe_to_read[1], "xy", 2) == 2 && write(sockets[1], "x", 1) == 1 &&
                       write(timed[0], "x", 1) == 1 && write(events, &one, sizeof one) == sizeof one &&
                       write(for_all[0], some.data(), 61) == 61;
  if (!written) std::abort();
  kill(getpid(), SIGUSR2);
  sembuf up{0, 1, 0};
  semop(semaphores, &up, 1);
  const struct {
    long type;
    char text[8];
  } message{1, "hello"};
  msgsnd(messages, &message, 6, 0);
  std::vector<char> read_again(300'000);
  for (std::size_t got = 0; got < read_again.size();)
    got += static_cast<std::size_t>(read(pipe_to_write[0], read_again.data(), read_again.size()));
  for (std::thread& thread : threads) thread.join();
  semctl(semaphores, 0, IPC_RMID);
  msgctl(messages, IPC_RMID, nullptr);
  std::fflush(stdout);
  _exit(0);
}

}  // namespace

int main() {
  prepare();
  std::atexit(let_end);
  start();
  usleep(100'000);
  std::exit(0);
}
