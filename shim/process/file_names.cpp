// See file_names.hpp.
#include "shim/process/file_names.hpp"

#include "stats/format.hpp"

namespace cistern {
namespace {

String insert_before_ending(std::string_view path, std::string_view more) {
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == path.npos ? 0 : slash + 1;
  const std::size_t dot = path.rfind('.');
  const std::size_t end = dot == path.npos || dot <= name ? path.size() : dot;
  return String(path.substr(0, end)).append(more).append(path.substr(end));
}

String pid_and_attempt(int pid, int attempt) {
  String text = "." + decimal(pid, 0);
  return attempt > 1 ? text + "-" + decimal(attempt, 0) : text;
}

}  // namespace

String path_with_pid(std::string_view path, int pid, int attempt) {
  return insert_before_ending(path, pid_and_attempt(pid, attempt));
}

String path_of_earlier(std::string_view path, int pid, int attempt) {
  return insert_before_ending(path, pid_and_attempt(pid, attempt) + ".old");
}

String name_of_recording(std::string_view path, int pid, int nth) {
  return nth ? path_with_pid(path, pid, nth) : String(path);
}

}  // namespace cistern
