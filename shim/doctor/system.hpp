// The doctor's questions to the system, by system calls: files, their rights, other programs and their output.
#pragma once
#include <sys/stat.h>

#include <cstdint>
#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern::doctor {

void say(std::string_view text);  // on standard output
void say_error(std::string_view line);
[[noreturn]] void end(int code);

String error_text(int error);  // "No such file or directory"
String number(std::int64_t value);

// 0, or an errno.
int status_of(const String& path, struct stat& status);
int may_execute(const String& path);
bool exists(const String& path);
// Its first bytes; empty where it cannot be read.
String text_of(const String& path, std::size_t bytes_max = SIZE_MAX);
// Where a symbolic link leads; empty: it is none.
String link_target(const String& path);
// A name of no file, an empty text: of the current directory.
String absolute(const String& path);
String own_path();

enum class Mounted : std::uint8_t { plainly, without_execution, without_set_user_id };
bool is_mounted(const String& path, Mounted how);
bool has_file_capabilities(const String& path);

// The names in a folder, in no order; empty where it cannot be read.
Vector<String> names_in(const String& folder);

// A whole file, read-only, for as long as this lives; empty, with the reason, where there is none.
class MappedFile {
 public:
  explicit MappedFile(const String& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  int error() const { return error_; }
  std::string_view bytes() const { return bytes_; }

 private:
  std::string_view bytes_;
  int error_ = 0;
};

// The command and the environment that a program is started with.
struct Start {
  String file;
  Vector<String> arguments;  // the first is its name
  Vector<String> environment;
};

struct Ended {
  int status = 0;  // as of wait; -1: it could not be started
  String output;   // of both streams
};
Ended output_of(const Start& start);
// The child's number, or an errno, negated.
long start_child(const Start& start, int output = -1);

}  // namespace cistern::doctor
