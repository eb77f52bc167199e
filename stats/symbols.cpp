// See symbols.hpp.
#include "stats/symbols.hpp"

#include <backtrace.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "pool/base/lock.hpp"
#include "pool/base/path.hpp"
#include "pool/base/private_descriptor.hpp"
#include "pool/base/process_start.hpp"
#include "pool/base/system_call.hpp"
#include "stats/counters.hpp"
#include "stats/demangled.hpp"
#include "stats/rust_names.hpp"
#include "stats/shared_names.hpp"
#include "stats/split_units.hpp"
#include "stats/stacks.hpp"
#include "stats/unwind/modules.hpp"

// The core of the C++ library's __cxa_demangle. Its shared object does not export it.
extern "C" int __gcclibcxx_demangle_callback(const char* mangled,
                                             void (*take)(const char* text, std::size_t bytes, void* data), void* data);

namespace cistern {
namespace {

// One address resolved: inlined calls first, the function that holds them last. Empty where nothing is known.
struct Resolved {
  Vector<FrameFigures> frames;
  Vector<bool> ours;
  bool qualified = false;  // the last function's name came from a mangled one
};

// A libbacktrace state reads the debug information of all modules that it is shown, at its first question: each is
// shown one module, and made when a frame of that module is to be named. States cannot be freed; one is good for as
// long as its module lies where it lay. One that was unloaded is shown as if it lay at 0, where its addresses are those
// of the file. Reading takes long, and calls the C library and the dynamic linker: no lock is held, and two threads
// that come to a module at the same time have a state each.
struct ShownModule {
  std::uintptr_t base;  // the base of its addresses
  std::uintptr_t begin, end;
  String path;  // empty: the program
  String build_id;
  const Module* closed;
};

struct State {
  ShownModule module;
  backtrace_state* state;
  State* next;
};
constinit std::atomic<State*> states{nullptr};

// The module that is shown to each thread that resolves. A signal handler may be one more, on the same thread.
struct Showing {
  const std::uintptr_t thread = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
  const ShownModule* module = nullptr;
  Showing* next = nullptr;
};
constinit Lock symbols_lock;
constinit Showing* showing = nullptr;  // the latest first; under the lock

class Shown {
 public:
  Shown() {
    const Locked hold(symbols_lock);
    one_.next = showing;
    showing = &one_;
  }
  ~Shown() {
    const Locked hold(symbols_lock);
    for (Showing** link = &showing; *link; link = &(*link)->next)
      if (*link == &one_) {
        *link = one_.next;
        return;
      }
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;
  void set(const ShownModule* module) { one_.module = module; }

 private:
  Showing one_;
};

const ShownModule* shown_here() {
  const auto self = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
  const Locked hold(symbols_lock);
  const Showing* one = showing;
  while (one && one->thread != self) one = one->next;
  return one ? one->module : nullptr;
}

std::uintptr_t end_of(const dl_phdr_info& info) {
  std::uintptr_t end = info.dlpi_addr;
  for (int i = 0; i < info.dlpi_phnum; ++i)
    if (info.dlpi_phdr[i].p_type == PT_LOAD)
      end = std::max(end, info.dlpi_addr + info.dlpi_phdr[i].p_vaddr + info.dlpi_phdr[i].p_memsz);
  return end;
}

std::uintptr_t begin_of(const dl_phdr_info& info) {
  std::uintptr_t begin = UINTPTR_MAX;
  for (int i = 0; i < info.dlpi_phnum; ++i)
    if (info.dlpi_phdr[i].p_type == PT_LOAD) begin = std::min(begin, info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
  return begin;
}

Vector<ShownModule> modules_now() {
  Vector<ShownModule> modules;
  const auto add = [](dl_phdr_info* info, std::size_t, void* result) {
    const char* const path = info->dlpi_name ? info->dlpi_name : "";
    static_cast<Vector<ShownModule>*>(result)->push_back(
        {info->dlpi_addr, begin_of(*info), end_of(*info), path, {}, nullptr});
    return 0;
  };
  dl_iterate_phdr(add, &modules);
  return modules;
}

// Without names module and offset remain, so errors need no words.
void ignore_error(void*, const char*, int) {}

// As it was started; empty where /proc leads to it, which still does when the file has got another name.
String program_without_proc() {
  char first;
  const auto* const executed = reinterpret_cast<const char*>(start_value(AT_EXECFN));
  return executed && readlink("/proc/self/exe", &first, 1) < 0 ? executed : "";
}

backtrace_state* state_of(const ShownModule& module, const String& build_id) {
  for (const State* made = states.load(std::memory_order_acquire); made; made = made->next)
    if (made->module.base == module.base && made->module.path == module.path && made->module.build_id == build_id &&
        made->module.closed == module.closed)
      return made->state;
  auto* const made = new (internal_allocate(sizeof(State))) State{module, nullptr, nullptr};
  made->module.build_id = build_id;
  // The name stays in use; for the program's own there is none, and libbacktrace finds it in /proc.
  const String name = module.path.empty() ? program_without_proc() : module.path;
  char* path = nullptr;
  if (!name.empty()) {
    path = static_cast<char*>(internal_allocate(name.size() + 1));
    std::memcpy(path, name.c_str(), name.size() + 1);
  }
  made->state = backtrace_create_state(path, /*threaded=*/1, ignore_error, nullptr);
  made->next = states.load(std::memory_order_relaxed);
  while (!states.compare_exchange_weak(made->next, made, std::memory_order_release, std::memory_order_relaxed)) {
  }
  return made->state;
}

bool is_mangled(std::string_view symbol) { return symbol.starts_with("_Z") || symbol.starts_with("_R"); }

bool is_ours(std::string_view symbol) {
  for (const std::string_view prefix : {"_ZN7cistern", "_ZNK7cistern", "_ZZN7cistern", "cistern_"})
    if (symbol.starts_with(prefix)) return true;
  return false;
}

void add_frame(Resolved& resolved) {
  resolved.frames.push_back({});
  resolved.ours.push_back(false);
  resolved.qualified = false;
}

// With the parameters, which go; so it is more than is shown.
constexpr std::size_t kCppNameBytesMax = 1 << 15;

// Where the first bracket stands that is open still at the end.
std::size_t open_bracket(std::string_view name) {
  std::size_t first = 0;
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if ((name[i] == '(' || name[i] == '<') && depth++ == 0) first = i;
    if (depth && (name[i] == ')' || name[i] == '>')) --depth;
  }
  return depth ? first : name.size();
}

// Each conversion to a type that is a parameter may double the time that the demangler needs to read the symbol, before
// it hands over anything. Behind a digit the letters begin an identifier: OpenCV's namespace is one.
bool has_too_many_conversions(std::string_view symbol) {
  constexpr unsigned kConversionsMax = 16;
  unsigned count = 0;
  for (std::size_t at = 0; (at = symbol.find("cv", at + 1)) != symbol.npos;)
    count += symbol[at - 1] < '0' || symbol[at - 1] > '9';
  return count > kConversionsMax;
}

String in_words(const char* symbol) {
  if (has_too_many_conversions(symbol)) return symbol;
  const auto demangle = [](const char* mangled, TakeText take, void* data) {
    return __gcclibcxx_demangle_callback(mangled, take, data) == 0;
  };
  String name = demangled(symbol, demangle, kCppNameBytesMax);
  if (name.size() == kCppNameBytesMax) name.resize(open_bracket(name));
  return name.empty() ? symbol : short_function_name(name);
}

void set_function(Resolved& resolved, const char* symbol) {
  FrameFigures& frame = resolved.frames.back();
  // First: in the form before today's, Rust's names are such of C++ too, with a hash behind.
  frame.function = is_mangled(symbol) ? rust_name(symbol) : symbol;
  frame.rust = is_mangled(symbol) ? !frame.function.empty() : is_of_rust_runtime(symbol);
  if (frame.function.empty()) frame.function = in_words(symbol);
  resolved.qualified = is_mangled(symbol);
  resolved.ours.back() = is_ours(symbol);
}

int note_line(void* data, std::uintptr_t, const char* file, int line, const char* function) {
  auto& resolved = *static_cast<Resolved*>(data);
  if (!file && !function) return 0;
  add_frame(resolved);
  if (file) resolved.frames.back().file = file;
  if (line > 0) resolved.frames.back().line = static_cast<unsigned>(line);
  if (function) set_function(resolved, function);
  return 0;
}

// Debug information names functions that only their file sees without their namespace; the symbol has it.
void note_symbol(void* data, std::uintptr_t, const char* symbol, std::uintptr_t, std::uintptr_t) {
  auto& resolved = *static_cast<Resolved*>(data);
  if (!symbol) return;
  if (resolved.frames.empty()) add_frame(resolved);
  if (resolved.frames.back().function.empty() || is_mangled(symbol)) set_function(resolved, symbol);
  if (is_ours(symbol)) resolved.ours.back() = true;
}

// libbacktrace has only the line of a unit whose functions lie in a file beside the program.
bool lacks_functions(const Resolved& resolved) {
  return resolved.frames.size() == 1 && resolved.frames[0].function.empty();
}

void take_functions(Resolved& resolved, const Vector<HoldingFunction>& functions) {
  if (functions.empty()) return;
  const Resolved of_line = std::exchange(resolved, {});
  String file = of_line.frames[0].file;
  unsigned line = of_line.frames[0].line;
  for (const HoldingFunction& function : functions) {
    add_frame(resolved);
    resolved.frames.back().file = std::exchange(file, function.call_file);
    resolved.frames.back().line = std::exchange(line, function.call_line);
    if (!function.symbol.empty()) set_function(resolved, function.symbol.c_str());
  }
}

// A function that is inlined into one of ours is ours too.
template <class SplitUnitsOf>
Resolved resolve(backtrace_state* state, std::uint64_t address, const FrameFigures& frame, SplitUnitsOf&& split_units) {
  Resolved resolved;
  backtrace_pcinfo(state, address, note_line, ignore_error, &resolved);
  if (lacks_functions(resolved)) take_functions(resolved, split_units().functions_at(frame.offset));
  if (!resolved.qualified) backtrace_syminfo(state, address, note_symbol, ignore_error, &resolved);
  if (!resolved.ours.empty() && resolved.ours.back()) resolved.ours.assign(resolved.ours.size(), true);
  return resolved;
}

Resolved from_relative(const Vector<NamedFrame>& frames) {
  Resolved resolved;
  for (const NamedFrame& frame : frames) {
    add_frame(resolved);
    resolved.frames.back().function = frame.function;
    resolved.frames.back().file = frame.file;
    resolved.frames.back().line = frame.line;
    resolved.frames.back().rust = frame.is_rust;
    resolved.ours.back() = frame.is_ours;
  }
  return resolved;
}

Vector<NamedFrame> for_relatives(const Resolved& resolved) {
  Vector<NamedFrame> frames;
  for (std::size_t i = 0; i < resolved.frames.size(); ++i) {
    const FrameFigures& frame = resolved.frames[i];
    frames.push_back({frame.function, frame.file, frame.line, resolved.ours[i], frame.rust});
  }
  return frames;
}

// Replaces frame by frame; what was not resolved in time stays as it is. Frames are resolved once per report.
class Symboliser {
 public:
  explicit Symboliser(unsigned budget_ms)
      : deadline_ns_(nanoseconds_since_start() + std::uint64_t{budget_ms} * 1'000'000) {}

  Vector<FrameFigures> frames(const Vector<FrameFigures>& bare) {
    Vector<FrameFigures> named;
    bool leading = true;
    const std::size_t telling = bare.size() - frames_before_main(bare);
    for (const FrameFigures& frame : bare) {
      const bool named_at_all = static_cast<std::size_t>(&frame - bare.data()) < telling;
      const Resolved* resolved = !named_at_all ? nullptr : frame.closed ? find_in_closed(frame) : find(frame);
      if (!resolved || resolved->frames.empty()) {
        leading = false;
        named.push_back(frame);
        continue;
      }
      for (std::size_t i = 0; i < resolved->frames.size(); ++i) {
        leading = leading && resolved->ours[i];
        if (!leading) named.push_back(merged(frame, resolved->frames[i], i + 1 < resolved->frames.size()));
      }
    }
    return named.empty() ? bare : named;
  }

 private:
  // The C library's, which call main and the threads' functions: the outermost ones. They say nothing, and its debug
  // information is large.
  static std::size_t frames_before_main(const Vector<FrameFigures>& bare) {
    std::size_t count = 0;
    while (count < bare.size() && basename_of(bare[bare.size() - 1 - count].module).starts_with("libc.so.")) ++count;
    return count == bare.size() ? 0 : count;
  }

  static FrameFigures merged(const FrameFigures& bare, const FrameFigures& names, bool inlined) {
    FrameFigures frame = bare;
    frame.function = names.function;
    frame.file = names.file;
    frame.line = names.line;
    frame.rust = names.rust;
    frame.inlined = inlined;
    return frame;
  }

  const Resolved* find(const FrameFigures& frame) {
    const std::uint64_t address = frame.address;
    if (!address) return nullptr;
    if (const auto known = resolved_.find(address); known != resolved_.end()) return &known->second;
    if (modules_.empty()) modules_ = modules_now();
    const auto module = std::find_if(modules_.begin(), modules_.end(),
                                     [&](const ShownModule& m) { return m.begin <= address && address < m.end; });
    if (module == modules_.end()) return nullptr;
    const NameKey key{address, hash_of_module(module->base, module->path, frame.build_id)};
    if (const auto frames = shared_names(key)) return &resolved_.emplace(address, from_relative(*frames)).first->second;
    if (nanoseconds_since_start() >= deadline_ns_) return nullptr;
    backtrace_state* const state = state_of(*module, frame.build_id);
    if (!state) return nullptr;
    shown_.set(&*module);
    const auto split = [&]() -> SplitUnits& { return split_units_of(*module, frame.module); };
    const Resolved& resolved = resolved_.emplace(address, resolve(state, address, frame, split)).first->second;
    share_names(key, for_relatives(resolved));
    return &resolved;
  }

  // From the file, if it is still the one that was loaded.
  const Resolved* find_in_closed(const FrameFigures& frame) {
    auto file = std::find_if(closed_.begin(), closed_.end(),
                             [&](const ClosedFile& one) { return one.shown.closed == frame.closed; });
    if (file == closed_.end()) {
      if (nanoseconds_since_start() >= deadline_ns_) return nullptr;
      file = closed_.insert(
          closed_.end(),
          {{0, 0, 0, frame.closed->path, frame.build_id, frame.closed}, has_file_still(*frame.closed), {}});
    }
    if (!file->is_same) return nullptr;
    if (const auto known = file->resolved.find(frame.offset); known != file->resolved.end()) return &known->second;
    if (nanoseconds_since_start() >= deadline_ns_) return nullptr;
    backtrace_state* const state = state_of(file->shown, frame.build_id);
    if (!state) return nullptr;
    shown_.set(&file->shown);
    const auto split = [&]() -> SplitUnits& { return split_units_of(file->shown, frame.module); };
    return &file->resolved.emplace(frame.offset, resolve(state, frame.offset, frame, split)).first->second;
  }

  SplitUnits& split_units_of(const ShownModule& module, const String& path) {
    constexpr std::size_t kModulesMax = 4;  // with files open at the same time
    for (SplitModule& known : split_modules_)
      if (known.path == path) return known.units;
    if (split_modules_.size() == kModulesMax) split_modules_.clear();
    const bool is_found_by_proc = module.path.empty() && program_without_proc().empty();
    return split_modules_.emplace_back(path, is_found_by_proc ? "/proc/self/exe" : path).units;
  }

  struct ClosedFile {
    ShownModule shown;
    bool is_same;
    Map<std::uint64_t, Resolved> resolved;
  };

  struct SplitModule {
    SplitModule(const String& its_path, const String& opened) : path(its_path), units(opened, its_path) {}
    String path;
    SplitUnits units;
  };

  std::uint64_t deadline_ns_;
  Shown shown_;
  Vector<ShownModule> modules_;
  Vector<ClosedFile> closed_;
  Map<std::uint64_t, Resolved> resolved_;
  Deque<SplitModule> split_modules_;
};

// Where the parameter list that ends the name begins; npos without one.
std::size_t parameters_start(std::string_view name) {
  int depth = 0;
  for (std::size_t i = name.size(); i-- > 0;) {
    if (name[i] == ')') ++depth;
    if (name[i] == '(' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

// Where the name begins behind a return type: after the last space outside brackets, unless it belongs to an operator.
std::size_t name_start(std::string_view name) {
  const std::size_t searched = std::min(name.find("operator"), name.size());
  std::size_t start = 0;
  int depth = 0;
  for (std::size_t i = 0; i < searched; ++i) {
    if (name[i] == '(' || name[i] == '<' || name[i] == '{') ++depth;
    if (name[i] == ')' || name[i] == '>' || name[i] == '}') --depth;
    if (name[i] == ' ' && depth == 0) start = i + 1;
  }
  return start;
}

}  // namespace

// libbacktrace calls this instead of dl_iterate_phdr: scripts/cmake/dependencies.cmake.
extern "C" int cistern_visit_shown_module(int (*visit)(dl_phdr_info*, std::size_t, void*), void* data) {
  struct Visitor {
    decltype(visit) function;
    void* data;
    const ShownModule* shown;
  } visitor{visit, data, shown_here()};
  if (visitor.shown && visitor.shown->closed) {
    dl_phdr_info info{};
    info.dlpi_name = visitor.shown->path.c_str();
    return visit(&info, sizeof info, data);
  }
  return dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t size, void* state) {
        const auto& to = *static_cast<const Visitor*>(state);
        const bool is_shown =
            to.shown && info->dlpi_addr == to.shown->base && to.shown->path == (info->dlpi_name ? info->dlpi_name : "");
        return is_shown ? to.function(info, size, to.data) : 0;
      },
      &visitor);
}

namespace {
int answer_or_errno(long answer) {
  if (answer < 0) errno = static_cast<int>(-answer);
  return answer < 0 ? -1 : 0;
}
}  // namespace

// It calls this instead of open: the files that it reads are open for a while.
extern "C" int cistern_open_shown_file(const char* path, int flags, ...) {
  const long file = system_call(SYS_openat, static_cast<std::uintptr_t>(AT_FDCWD),
                                reinterpret_cast<std::uintptr_t>(path), static_cast<std::uintptr_t>(flags | O_CLOEXEC));
  if (file < 0) errno = static_cast<int>(-file);
  return keep_apart(file);
}

// It calls this instead of lstat and fstat: at the end of a process an interposer of those (libfaketime) may have ended
// itself already, and aborts when it is called.
extern "C" int cistern_status_of_shown_link(const char* path, struct stat* status) {
  return answer_or_errno(system_call(SYS_newfstatat, static_cast<std::uintptr_t>(AT_FDCWD),
                                     reinterpret_cast<std::uintptr_t>(path), reinterpret_cast<std::uintptr_t>(status),
                                     AT_SYMLINK_NOFOLLOW));
}

extern "C" int cistern_status_of_shown_file(int file, struct stat* status) {
  return answer_or_errno(
      system_call(SYS_fstat, static_cast<std::uintptr_t>(file), reinterpret_cast<std::uintptr_t>(status)));
}

String short_function_name(std::string_view demangled) {
  String text(demangled);
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  for (std::size_t at; (at = text.find(kAnonymous)) != String::npos;) text.erase(at, kAnonymous.size());
  std::string_view name = text;
  if (const std::size_t clone = name.find(" [clone"); clone != std::string_view::npos) name = name.substr(0, clone);
  for (const std::string_view suffix : {" &&", " &", " volatile", " const"})
    if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  if (name.ends_with(')') && !name.ends_with("operator()")) {
    const std::size_t parameters = parameters_start(name);
    if (parameters != std::string_view::npos && parameters != 0) name = name.substr(0, parameters);
  }
  return String(name.substr(name_start(name)));
}

void symbolise(Vector<LeakFigures>& leaks, unsigned budget_ms) {
  assert_no_lock_held();
  Symboliser symboliser(budget_ms);
  for (LeakFigures& leak : leaks) leak.frames = symboliser.frames(leak.frames);
}

void symbolise(Snapshot& snapshot, unsigned budget_ms) {
  assert_no_lock_held();
  Symboliser symboliser(budget_ms);
  for_each_stack(snapshot, [&](std::uint32_t, Vector<FrameFigures>& frames, bool is_named) {
    if (is_named) frames = symboliser.frames(frames);
  });
}

void symbols_before_fork() { symbols_lock.lock_for_fork(); }
void symbols_after_fork() { symbols_lock.unlock_after_fork(); }

// The work of another thread that was resolving is cut off, perhaps in the middle of a state.
void symbols_after_fork_in_child() {
  const auto self = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
  for (Showing** link = &showing; *link;) {
    if ((*link)->thread == self) {
      link = &(*link)->next;
    } else {
      *link = (*link)->next;
      states.store(nullptr);
    }
  }
}

}  // namespace cistern
