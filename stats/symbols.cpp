// See symbols.hpp.
#include "stats/symbols.hpp"

#include <backtrace.h>
#include <cxxabi.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "pool/base/lock.hpp"
#include "stats/counters.hpp"

namespace cistern {
namespace {

constexpr std::size_t kHostSitesMax = 200;  // the largest ones; the others keep module and offset
constexpr std::size_t kCopySitesMax = 50;

// One address resolved: inlined calls first, the function that holds them last. Empty where nothing is known.
struct Resolved {
  Vector<FrameFigures> frames;
  Vector<bool> ours;
  bool qualified = false;  // the last function's name came from a mangled one
};

constinit Lock symbols_lock;

// A libbacktrace state knows the modules that were loaded when it was made, so one is good until that set changes.
// States cannot be freed; a report after every dlopen costs their tables each time.
struct LoadedModules {
  unsigned long long added = 0, removed = 0;
  bool operator==(const LoadedModules&) const = default;
};
constinit backtrace_state* current_state = nullptr;
constinit LoadedModules current_modules;

LoadedModules loaded_modules() {
  LoadedModules modules;
  const auto read_counts = [](dl_phdr_info* info, std::size_t, void* result) {
    *static_cast<LoadedModules*>(result) = {info->dlpi_adds, info->dlpi_subs};
    return 1;
  };
  dl_iterate_phdr(read_counts, &modules);
  return modules;
}

// Without names module and offset remain, so errors need no words.
void ignore_error(void*, const char*, int) {}

backtrace_state* state_for_now() {
  const LoadedModules modules = loaded_modules();
  if (!current_state || !(modules == current_modules))
    current_state = backtrace_create_state(nullptr, /*threaded=*/1, ignore_error, nullptr);
  current_modules = modules;
  return current_state;
}

bool is_mangled(std::string_view symbol) { return symbol.starts_with("_Z"); }

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

void set_function(Resolved& resolved, const char* symbol) {
  FrameFigures& frame = resolved.frames.back();
  int status = 0;
  char* demangled = is_mangled(symbol) ? abi::__cxa_demangle(symbol, nullptr, nullptr, &status) : nullptr;
  frame.function = demangled ? short_function_name(demangled) : symbol;
  std::free(demangled);
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

// Debug information names functions that only their file sees without their namespace; the symbol has it. What is
// inlined into a function of ours is ours too.
void note_symbol(void* data, std::uintptr_t, const char* symbol, std::uintptr_t, std::uintptr_t) {
  auto& resolved = *static_cast<Resolved*>(data);
  if (!symbol) return;
  if (resolved.frames.empty()) add_frame(resolved);
  if (resolved.frames.back().function.empty() || is_mangled(symbol)) set_function(resolved, symbol);
  if (is_ours(symbol)) resolved.ours.assign(resolved.ours.size(), true);
}

Resolved resolve(backtrace_state* state, std::uint64_t address) {
  Resolved resolved;
  backtrace_pcinfo(state, address, note_line, ignore_error, &resolved);
  if (!resolved.qualified) backtrace_syminfo(state, address, note_symbol, ignore_error, &resolved);
  return resolved;
}

// Replaces frame by frame; what was not resolved in time stays as it is. Frames are resolved once per report.
class Symboliser {
 public:
  explicit Symboliser(unsigned budget_ms)
      : deadline_ns_(nanoseconds_since_start() + std::uint64_t{budget_ms} * 1'000'000) {}

  Vector<FrameFigures> frames(const Vector<FrameFigures>& bare) {
    Vector<FrameFigures> named;
    bool leading = true;
    for (const FrameFigures& frame : bare) {
      const Resolved* resolved = frame.address ? find(frame.address) : nullptr;
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
  static FrameFigures merged(const FrameFigures& bare, const FrameFigures& names, bool inlined) {
    FrameFigures frame = bare;
    frame.function = names.function;
    frame.file = names.file;
    frame.line = names.line;
    frame.inlined = inlined;
    return frame;
  }

  const Resolved* find(std::uint64_t address) {
    if (const auto known = resolved_.find(address); known != resolved_.end()) return &known->second;
    if (nanoseconds_since_start() >= deadline_ns_) return nullptr;
    if (!state_) state_ = state_for_now();
    if (!state_) return nullptr;
    return &resolved_.emplace(address, resolve(state_, address)).first->second;
  }

  std::uint64_t deadline_ns_;
  backtrace_state* state_ = nullptr;
  Map<std::uint64_t, Resolved> resolved_;
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
  Locked hold(symbols_lock);
  Symboliser symboliser(budget_ms);
  for (LeakFigures& leak : leaks) leak.frames = symboliser.frames(leak.frames);
}

void symbolise(Snapshot& snapshot, unsigned budget_ms) {
  Locked hold(symbols_lock);
  Symboliser symboliser(budget_ms);
  for (LeakFigures& leak : snapshot.leaks) leak.frames = symboliser.frames(leak.frames);
  for (Vector<UsingSite>* sites : {&snapshot.at_peak, &snapshot.in_loops})
    for (UsingSite& site : *sites) site.frames = symboliser.frames(site.frames);
  for (TransferFigures& transfer : snapshot.transfers) transfer.frames = symboliser.frames(transfer.frames);
  for (std::size_t i = 0; i < snapshot.copy_sites.size(); ++i)
    if (i < kCopySitesMax || snapshot.copy_sites[i].worth_a_line())
      snapshot.copy_sites[i].frames = symboliser.frames(snapshot.copy_sites[i].frames);
  for (std::size_t i = 0; i < snapshot.host_sites.size() && i < kHostSitesMax; ++i)
    snapshot.host_sites[i].frames = symboliser.frames(snapshot.host_sites[i].frames);
}

void symbols_after_fork_in_child() {
  if (!symbols_lock.held_elsewhere()) return;
  new (&symbols_lock) Lock;
  current_state = nullptr;
}

}  // namespace cistern
