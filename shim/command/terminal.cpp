// See terminal.hpp.
#include "shim/command/terminal.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace cistern::command {
namespace {

constexpr std::string_view kEnter = "\033[?1049h\033[?25l", kLeave = "\033[?25h\033[?1049l";
constexpr std::string_view kHome = "\033[H", kEndOfLine = "\033[K", kBelow = "\033[J";

termios before;
volatile sig_atomic_t ended_by = 0;

void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t bytes = write(STDOUT_FILENO, text.data(), text.size());
    if (bytes < 0 && errno != EINTR) return;
    if (bytes > 0) text.remove_prefix(static_cast<std::size_t>(bytes));
  }
}

void take() {
  termios now = before;
  now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  tcsetattr(STDIN_FILENO, TCSANOW, &now);
  put(kEnter);
}

void give_back() {
  put(kLeave);
  tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

void on_stop(int) {
  const int error = errno;
  give_back();
  raise(SIGSTOP);
  take();
  errno = error;
}

}  // namespace

Terminal::Terminal() {
  tcgetattr(STDIN_FILENO, &before);
  struct sigaction entry {};
  entry.sa_handler = [](int number) { ended_by = number; };
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaction(number, &entry, nullptr);
  entry.sa_handler = on_stop;
  sigaction(SIGTSTP, &entry, nullptr);
  take();
}

Terminal::~Terminal() { give_back(); }

formats::Screen Terminal::size() const {
  winsize found{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &found) != 0 || !found.ws_col || !found.ws_row) return {};
  return {found.ws_col, found.ws_row};
}

// The last line has no end: the terminal would move all lines up.
void Terminal::show(std::string_view lines) const {
  std::string text(kHome);
  for (const char c : lines) {
    if (c == '\n') text += kEndOfLine;
    text += c;
  }
  if (text.ends_with('\n')) text.pop_back();
  put(text.append(kBelow));
}

bool Terminal::wait(double seconds) const {
  pollfd keys{STDIN_FILENO, POLLIN, 0};
  if (ended_by) return false;
  if (poll(&keys, 1, static_cast<int>(seconds * 1000)) <= 0) return !ended_by;
  char key = 0;
  return read(STDIN_FILENO, &key, 1) == 1 && key != 'q' && key != 'Q';
}

}  // namespace cistern::command
