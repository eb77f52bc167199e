// See program.hpp.
#include "shim/doctor/program.hpp"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "pool/base/path.hpp"
#include "pool/base/system_call.hpp"
#include "shim/doctor/elf_file.hpp"

namespace cistern::doctor {
namespace {

constexpr int kStepsMax = 8;  // the kernel gives up after five scripts

// The parts of PATH as execvp takes them: an empty one is the current directory.
template <class Visit>
void for_each_folder(const Environment& environment, Visit visit) {
  std::string_view path = environment.is_set("PATH") ? environment.get("PATH") : "/usr/bin:/bin";
  for (;;) {
    const std::size_t end = path.find(':');
    visit(end == 0 || path.empty() ? "." : path.substr(0, end));
    if (end == path.npos) return;
    path.remove_prefix(end + 1);
  }
}

// As execvp does; empty: there is none, and `error` says why.
String find_in_path(const String& name, const Environment& environment, int& error) {
  error = ENOENT;
  if (name.find('/') != name.npos) {
    error = may_execute(name);
    return error == ENOENT || error == ENOTDIR ? String() : name;
  }
  String found;
  for_each_folder(environment, [&](std::string_view folder) {
    struct stat status;
    const String candidate = String(folder) + "/" + name;
    if (!found.empty() || status_of(candidate, status) != 0 || S_ISDIR(status.st_mode)) return;
    error = may_execute(candidate);
    if (error == 0) found = candidate;
  });
  return found;
}

// The rest of a script's first line: the interpreter and, in one piece, its argument.
struct Interpreter {
  String path, argument;
};
std::optional<Interpreter> interpreter_of(std::string_view text) {
  if (!text.starts_with("#!")) return {};
  std::string_view line = text.substr(2, text.find('\n') - 2);
  const auto trimmed = [](std::string_view part) {
    const std::size_t first = part.find_first_not_of(" \t"), last = part.find_last_not_of(" \t\r");
    return first == part.npos ? std::string_view() : part.substr(first, last - first + 1);
  };
  line = trimmed(line);
  const std::size_t end = line.find_first_of(" \t");
  const std::string_view argument = end == line.npos ? std::string_view() : trimmed(line.substr(end));
  return Interpreter{String(line.substr(0, end)), String(argument)};
}

bool is_assignment(const String& text) {
  const std::size_t equals = text.find('=');
  return equals != text.npos && equals != 0;
}

// The text of env's -S as its words; nothing: there are escapes in it, or a quote or the name of a variable is open.
std::optional<Vector<String>> split_as_env(std::string_view text, const Environment& environment) {
  constexpr std::string_view kBlank = " \t\n\v\f\r";
  Vector<String> words;
  char quote = '\0';
  bool in_word = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') return {};
    if (c == '#' && !in_word) break;
    if (!quote && kBlank.find(c) != kBlank.npos) {
      in_word = false;
      continue;
    }
    if (c == '$' && quote != '\'') {
      const std::size_t end = text.find('}', i);
      if (text.substr(i + 1, 1) != "{" || end == text.npos) return {};
      const String name(text.substr(i + 2, end - i - 2));
      i = end;
      if (!in_word && !environment.is_set(name)) continue;  // no word of its own
      if (!in_word) words.emplace_back();
      in_word = true;
      words.back() += environment.get(name);
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == quote)
      quote = '\0';
    else if (!quote && (c == '\'' || c == '"'))
      quote = c;
    else
      words.back() += c;
  }
  if (quote) return {};
  return words;
}

// Takes env's options off the front, as getopt does: several in one word, a value in the same word or in the next.
class EnvOptions {
 public:
  EnvOptions(Vector<String>& words, Environment& environment)
      : words_(words), environment_(environment), before_(environment) {}

  // False: what they do is not known, or not followed.
  bool follow() {
    while (!words_.empty() && words_.front().starts_with('-')) {
      const String word = take();
      if (word == "-") environment_.clear();
      if (word == "-" || word == "--") break;
      if (!(word[1] == '-' ? follow_long(word) : follow_short(word))) return false;
    }
    // A path that is relative, of the program or in PATH, would be of the new directory.
    while (!words_.empty() && is_assignment(words_.front())) environment_.set(take());
    return !changes_directory_ || words_.empty() || words_.front().starts_with('/') ||
           (words_.front().find('/') == String::npos && all_of_path_is_absolute());
  }

 private:
  String take() {
    String first = words_.front();
    words_.erase(words_.begin());
    return first;
  }

  bool follow_short(const String& word) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      if (word[i] == 'v') continue;
      if (word[i] == 'i') {
        environment_.clear();
        continue;
      }
      if (word[i] != 'u' && word[i] != 'C' && word[i] != 'S') return false;
      if (i + 1 < word.size()) return follow_value(word[i], word.substr(i + 1));
      return !words_.empty() && follow_value(word[i], take());
    }
    return true;
  }

  bool follow_long(const String& word) {
    struct Long {
      std::string_view name;
      char letter;  // the short form of an option with a value
    };
    constexpr Long kWithValue[] = {{"--unset", 'u'}, {"--chdir", 'C'}, {"--split-string", 'S'}};
    constexpr std::string_view kSignals[] = {"--default-signal", "--ignore-signal", "--block-signal"};
    const std::size_t equals = word.find('=');
    const std::string_view name = std::string_view(word).substr(0, equals);
    for (const Long& option : kWithValue) {
      if (name != option.name) continue;
      if (equals != word.npos) return follow_value(option.letter, word.substr(equals + 1));
      return !words_.empty() && follow_value(option.letter, take());
    }
    if (word == "--ignore-environment") environment_.clear();
    return word == "--ignore-environment" || word == "--debug" || word == "--list-signal-handling" ||
           std::find(std::begin(kSignals), std::end(kSignals), name) != std::end(kSignals);
  }

  bool follow_value(char option, const String& value) {
    changes_directory_ |= option == 'C';
    if (option == 'u') environment_.unset(value);
    if (option != 'S') return true;
    const auto split = split_as_env(value, before_);
    if (split) words_.insert(words_.begin(), split->begin(), split->end());
    return split.has_value();
  }

  bool all_of_path_is_absolute() const {
    bool all = true;
    for_each_folder(environment_, [&](std::string_view folder) { all &= folder.starts_with('/'); });
    return all;
  }

  Vector<String>& words_;
  Environment& environment_;
  const Environment before_;
  bool changes_directory_ = false;
};

bool is_someone_elses(const struct stat& status) {
  const auto user = system_call(SYS_getuid), group = system_call(SYS_getgid);
  const bool sets_user = (status.st_mode & S_ISUID) && static_cast<long>(status.st_uid) != user;
  const bool sets_group =
      (status.st_mode & S_ISGID) && (status.st_mode & S_IXGRP) && static_cast<long>(status.st_gid) != group;
  return sets_user || sets_group;
}

// In such a program the loader takes nothing from LD_PRELOAD that has a slash, and only set-user-ID libraries of the
// system's folders otherwise. As root nothing is gained, so nothing is secured.
bool is_secured(const String& file, Findings& findings) {
  struct stat status;
  if (status_of(file, status) != 0 || is_mounted(file, Mounted::without_set_user_id)) return false;
  constexpr const char kInstead[] =
      ": the loader ignores LD_PRELOAD for it; run a copy without these rights, or run it as that user";
  if (is_someone_elses(status)) {
    findings.problem(file + " is set-user-ID or set-group-ID (user " + number(status.st_uid) + ", group " +
                     number(status.st_gid) + ")" + kInstead);
    return true;
  }
  if (system_call(SYS_getuid) == 0 || !has_file_capabilities(file)) return false;
  findings.problem(file + " has file capabilities" + kInstead);
  return true;
}

// Whether the loader belongs to another C library than glibc. The loader of musl is known by its name, even where the
// file does not exist here. A file that is not an ELF file for this machine may still be asked.
bool is_of_another_c_library(const String& loader) {
  if (basename_of(loader).starts_with("ld-musl")) return true;
  const MappedFile contents(loader);
  const ElfFile file(contents.bytes());
  return file.is_for_this_machine() && file.newest_defined().empty();
}

}  // namespace

Followed follow(char** command, const Environment& environment, Findings& findings) {
  Followed followed{{}, {}, environment};
  Vector<String> words;
  for (; *command; ++command) words.emplace_back(*command);
  followed.start = {words[0], words, environment.entries()};
  for (int step = 0; step < kStepsMax; ++step) {
    int error = 0;
    const String file = find_in_path(words[0], followed.environment, error);
    if (step == 0 && !file.empty()) followed.start.file = file;
    if (file.empty() || error != 0) {
      findings.problem(words[0] + " cannot be run: " + error_text(error));
      return followed;
    }
    const MappedFile contents(file);
    if (contents.error() != 0 && contents.error() != EACCES) {
      findings.problem(file + " cannot be run: " + error_text(contents.error()));
      return followed;
    }
    if (const auto interpreter = interpreter_of(contents.bytes().substr(0, 4096))) {
      if (interpreter->path.empty()) {
        findings.problem(file + " cannot be run: its first line names no interpreter");
        return followed;
      }
      findings.note(file + " is a script, which " + interpreter->path + " runs");
      words[0] = file;
      if (!interpreter->argument.empty()) words.insert(words.begin(), interpreter->argument);
      words.insert(words.begin(), interpreter->path);
    } else if (basename_of(file) == "env") {
      Vector<String> rest(words.begin() + 1, words.end());
      Environment after = followed.environment;
      const bool is_known = EnvOptions(rest, after).follow();
      if (!is_known)
        findings.note("the program that " + file + " starts is not examined: some of these options are unknown here");
      if (!is_known || rest.empty()) {
        followed.file = file;
        return followed;
      }
      words = rest;
      followed.environment = after;
    } else {
      followed.file = file;
      return followed;
    }
  }
  findings.problem(words[0] + " cannot be run: too many scripts run each other");
  return followed;
}

bool can_be_preloaded_into(const String& file, Findings& findings) {
  const MappedFile contents(file);
  if (contents.error() == EACCES) {
    if (is_secured(file, findings)) return false;
    findings.note(file + " can be run but not read: its libraries are not examined");
    return false;
  }
  const ElfFile program(contents.bytes());
  if (!program.is_elf()) {
    findings.problem(file + " is neither a program nor a script with a first line #!");
    return false;
  }
  if (!program.is_for_this_machine()) {
    const String bits = program.has_64_bits() ? ", 64 bits" : ", 32 bits";
    findings.problem(file + " is for " + machine_name(program.machine()) + bits + ": this libcistern.so is for " +
                     machine_name(this_machine()) + ", 64 bits, and works only there");
    return false;
  }
  const String loader(program.loader());
  if (loader.empty()) {
    findings.problem(file +
                     " is statically linked: nothing can be preloaded; link it dynamically, or link the library "
                     "(cistern/cistern.h) into it");
    return false;
  }
  if (is_of_another_c_library(loader)) {
    const bool is_musl = loader.find("musl") != loader.npos;
    findings.problem(
        file + " runs with " + (is_musl ? "the C library musl" : "another C library than glibc") + " (" + loader +
        "): libcistern.so needs glibc, and with LD_PRELOAD set the program may fail to start (exit code 127)");
    return false;
  }
  if (!exists(loader)) {
    findings.problem(file + " cannot be run: its loader " + loader + " does not exist here");
    return false;
  }
  if (is_secured(file, findings)) return false;
  findings.ok(file + " is dynamically linked, for " + machine_name(program.machine()) + ", with " + loader);
  return true;
}

}  // namespace cistern::doctor
