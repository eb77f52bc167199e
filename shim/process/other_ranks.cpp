// See other_ranks.hpp. Ranks are the processes that a launcher started itself. One that waits shows it by a socket of
// an abstract name, which is gone with the process, however that ends.
#include "shim/process/other_ranks.hpp"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>

#include "pool/base/file_status.hpp"
#include "pool/base/private_descriptor.hpp"
#include "pool/base/system_call.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/other_processes.hpp"
#include "shim/process/run.hpp"
#include "stats/format.hpp"

namespace cistern {
namespace {

// One may wait for what another keeps open until it ends.
constexpr int kLooksMax = 1000;
constexpr timespec kBetweenLooks{0, 10'000'000};

// 0: this process is not a rank. A process that a rank starts is not one either: the launcher does not see its end.
pid_t launcher_of_this_rank() {
  const pid_t starter = parent_of(kThisProcess);
  return starter > 0 && launches_ranks(text_about(starter, "comm")) ? starter : 0;
}

// The name of a rank in this pid namespace: several may share a network.
struct Address {
  sockaddr_un name{};
  socklen_t bytes = 0;

  explicit Address(pid_t rank) {
    struct stat space {};
    status_of_file("/proc/self/ns/pid", space);
    const String text = "cistern-rank-" + decimal(static_cast<double>(space.st_ino), 0) + "-" + decimal(rank, 0);
    name.sun_family = AF_UNIX;
    std::copy(text.begin(), text.end(), name.sun_path + 1);
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
};

class Socket {
 public:
  Socket() : file_(keep_apart(system_call(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0))) {}
  ~Socket() {
    if (file_ != -1) system_call(SYS_close, static_cast<std::uintptr_t>(file_));
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  bool is_named(const Address& address) { return call(SYS_bind, address); }
  bool finds(const Address& address) { return call(SYS_connect, address); }

 private:
  bool call(long number, const Address& address) const {
    return file_ != -1 && system_call(number, static_cast<std::uintptr_t>(file_),
                                      reinterpret_cast<std::uintptr_t>(&address.name), address.bytes) == 0;
  }
  const int file_;
};

bool waits(pid_t rank) { return Socket().finds(Address(rank)); }

// It lives, and Cistern is in it.
bool is_rank(pid_t process) {
  const String environment = environment_of(process);
  return environment.find("OMPI_COMM_WORLD_RANK=") != String::npos &&
         lists_cistern(value_in(environment, "LD_PRELOAD"));
}

struct Others {
  bool are_gone = true, are_through = true;  // through: gone, or waiting
  bool one_goes_before = false;              // waiting, and started earlier
};
Others look_at(pid_t own, const String& children) {
  Others others;
  for (const char *at = children.data(), *const end = at + children.size(); at < end;) {
    pid_t process = 0;
    const auto read = std::from_chars(at, end, process);
    at = read.ptr + 1;
    if (read.ec != std::errc() || process == own || !is_rank(process)) continue;
    const bool is_waiting = waits(process);
    others.are_gone = false;
    others.are_through = others.are_through && is_waiting;
    others.one_goes_before = others.one_goes_before || (is_waiting && process < own);
  }
  return others;
}

}  // namespace

[[gnu::cold]] int code_beside_other_ranks(int own, int chosen) {
  if (own == chosen || !dies_with_other_ranks(environment_variable)) return chosen;
  const pid_t launcher = launcher_of_this_rank(), rank = own_number_in_proc();
  Socket socket;
  if (!launcher || !socket.is_named(Address(rank))) return chosen;
  Others others;
  for (int look = 0; look < kLooksMax; ++look) {
    others = look_at(rank, children_of(launcher));
    if (others.are_gone || (others.are_through && others.one_goes_before)) break;
    system_call(SYS_nanosleep, reinterpret_cast<std::uintptr_t>(&kBetweenLooks), 0);
  }
  return others.one_goes_before ? own : chosen;
}

}  // namespace cistern
