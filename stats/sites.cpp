// See sites.hpp. Sites live in a hash table of immutable entries that is read without a lock and never shrinks.
#include "stats/sites.hpp"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "pool/base/forked.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/path.hpp"
#include "pool/base/process_start.hpp"
#include "stats/counters.hpp"
#include "stats/format.hpp"
#include "stats/python/frames.hpp"
#include "stats/scripts.hpp"
#include "stats/symbols.hpp"
#include "stats/unwind/modules.hpp"
#include "stats/unwind/unwinder.hpp"

namespace cistern {
namespace {

constexpr int kDepthMax = 32;
constexpr int kOwnFramesMax = 8;  // frames of code that passes calls on: without them the full depth is left
constexpr int kRawMax = kDepthMax + kOwnFramesMax;
constexpr int kPythonMax = 40;
constexpr int kWitnessesMax = 8;
// Few pages in a process with few sites; those that come later have more buckets.
constexpr std::size_t kBuckets = 1 << 12, kEarlySites = 1 << 13, kLateBuckets = 1 << 17;
// In a program that recurses at random, or runs the initialisers of a large library, no stack is like another. After so
// many stacks, only their inner parts are told apart.
struct Form {
  std::size_t sites_max;
  int native, python;
};
constexpr Form kForms[] = {{1 << 16, kRawMax, kPythonMax}, {3 << 15, 6, 3}, {1 << 17, 2, 1}};
constexpr unsigned kTimedEvery = 64, kTimedMin = 4;  // a mean of fewer says nothing

struct Site {
  Site* next;
  std::uint64_t hash;
  const char* api;
  SiteId id;
  std::uint8_t count;  // frames as captured
  std::uint8_t first;  // the first of them that is not ours
  std::uint8_t python_count;
  bool is_cut_off;  // further out there is more
  std::uint8_t witness_count;
  std::uint8_t witnesses[kWitnessesMax];  // one frame of each module that could have been unloaded

  // `count` return addresses, then their modules: null in generated code; then the Python frames.
  void** addresses() { return reinterpret_cast<void**>(this + 1); }
  void* const* addresses() const { return reinterpret_cast<void* const*>(this + 1); }
  const Module** modules() { return static_cast<const Module**>(static_cast<void*>(addresses() + count)); }
  const Module* const* modules() const {
    return static_cast<const Module* const*>(static_cast<const void*>(addresses() + count));
  }
  python::Frame* python() { return static_cast<python::Frame*>(static_cast<void*>(modules() + count)); }
  const python::Frame* python() const {
    return static_cast<const python::Frame*>(static_cast<const void*>(modules() + count));
  }
};

struct Stack {
  const char* api;
  void* const* addresses;
  int count;
  bool is_cut_off, calls_only;
  Calls calls;
  const python::Frame* python;
  int python_count;
  std::uint64_t hash;

  std::size_t site_bytes() const {
    return sizeof(Site) + static_cast<std::size_t>(count) * (sizeof(void*) + sizeof(const Module*)) +
           static_cast<std::size_t>(python_count) * sizeof(python::Frame);
  }
};

using Bucket = std::atomic<Site*>;
constinit Bucket buckets[kBuckets] = {};
constinit std::atomic<Bucket*> late_buckets{nullptr};    // made with the first late site
constinit Lock sites_lock;                               // guards insertion and sites_by_id
constinit std::atomic<std::size_t> sites_known[2] = {};  // of each Calls
// In pieces, each of which may not be had: where the process is out of memory there is a site less, no end of it.
constexpr std::size_t kPieceSites = 1 << 10, kPieces = 2 * kForms[2].sites_max / kPieceSites + 1;
constinit Site** sites_by_id[kPieces] = {};
constinit std::size_t site_count = 0;
constinit std::atomic<std::uint64_t> sites_woke_at_ns{0};  // 0: never
constinit Counter captures_timed{0}, captures_timed_ns{0}, captures_failed{0};
thread_local constinit unsigned captures_of_thread = 0;

// At random: in a row, recursions that differ in a few turns would have one hash.
constexpr auto kFactors = [] {
  std::array<std::uint64_t, kRawMax + kPythonMax> factors{};
  std::uint64_t state = 0;
  for (std::uint64_t& factor : factors) {  // splitmix64
    std::uint64_t word = state += 0x9E3779B97F4A7C15;
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9;
    word = (word ^ word >> 27) * 0x94D049BB133111EB;
    factor = (word ^ word >> 31) | 1;
  }
  return factors;
}();

// Each frame has a factor of its own, so that none waits for another.
std::uint64_t hash_of(const Stack& stack) {
  std::uint64_t sum = reinterpret_cast<std::uintptr_t>(stack.api);
  for (int i = 0; i < stack.count; ++i)
    sum += reinterpret_cast<std::uintptr_t>(stack.addresses[i]) * kFactors[static_cast<unsigned>(i)];
  for (int i = 0; i < stack.python_count; ++i)
    sum += stack.python[i].word() * kFactors[static_cast<unsigned>(kRawMax + i)];
  sum = (sum ^ sum >> 32) * 0x9E3779B97F4A7C15;
  return sum ^ sum >> 29;
}

// A return address may be the first of the next function: the call before it never is.
std::uintptr_t call_address(const void* return_address) { return reinterpret_cast<std::uintptr_t>(return_address) - 1; }

bool same_addresses(const Site& site, const Stack& stack) {
  if (site.hash != stack.hash || site.api != stack.api || site.count != stack.count ||
      site.python_count != stack.python_count)
    return false;
  return !std::memcmp(site.addresses(), stack.addresses, static_cast<std::size_t>(stack.count) * sizeof(void*)) &&
         std::equal(site.python(), site.python() + site.python_count, stack.python,
                    [](const python::Frame& one, const python::Frame& other) { return one.word() == other.word(); });
}

// The same addresses in another plugin, loaded where one was unloaded, are another site.
bool same_stack(const Site& site, const Stack& stack) {
  if (!same_addresses(site, stack)) return false;
  for (int i = 0; i < site.witness_count; ++i) {
    const int frame = site.witnesses[i];
    if (!lies_in(*site.modules()[frame], call_address(site.addresses()[frame]))) return false;
  }
  return true;
}

template <class Same>
[[gnu::always_inline]] inline const Site* find_in(const std::atomic<Site*>& bucket, Same same) {
  const Site* site = bucket.load(std::memory_order_acquire);
  while (site && !same(*site)) site = site->next;
  return site;
}

template <class Same>
[[gnu::always_inline]] inline const Site* find(std::uint64_t hash, Same same) {
  if (const Site* const site = find_in(buckets[hash % kBuckets], same)) [[likely]]
    return site;
  const Bucket* const late = late_buckets.load(std::memory_order_acquire);
  return late ? find_in(late[hash % kLateBuckets], same) : nullptr;
}

const Site* find(const Stack& stack) {
  return find(stack.hash, [&](const Site& site) { return same_stack(site, stack); });
}

// Under the lock: the linker was asked when `made` was, and is not asked again.
const Site* find_like(const Site& made, const Stack& stack) {
  return find(stack.hash, [&](const Site& site) {
    const auto same_module = [&](std::uint8_t frame) { return site.modules()[frame] == made.modules()[frame]; };
    return same_addresses(site, stack) && std::all_of(site.witnesses, site.witnesses + site.witness_count, same_module);
  });
}

// Ours, and those that only pass the call on: a site is the same whichever way the call came to us.
bool is_leading(const Module* module) {
  return module && !module->is_program && (module->is_own || module->forwards_calls);
}

// Our wrapper around main stands in the middle of every stack; the program has no such frame.
bool is_wrapper(const Module* module) { return module && module->is_own && !module->is_program; }

void choose_witnesses(Site& site) {
  for (int i = 0; i < site.count && site.witness_count < kWitnessesMax; ++i) {
    const Module* module = site.modules()[i];
    bool seen = !module || module->is_permanent;
    for (int j = 0; j < site.witness_count && !seen; ++j) seen = site.modules()[site.witnesses[j]] == module;
    if (!seen) site.witnesses[site.witness_count++] = static_cast<std::uint8_t>(i);
  }
}

// Null: a thread forks, or memory ran out.
Site* make_site(const Stack& stack) {
  void* const room = internal_try_allocate(stack.site_bytes());
  if (!room) return nullptr;
  auto* const site = new (room) Site{};
  site->hash = stack.hash;
  site->api = stack.api;
  site->count = static_cast<std::uint8_t>(stack.count);
  site->is_cut_off = stack.is_cut_off;
  site->python_count = static_cast<std::uint8_t>(stack.python_count);
  std::copy_n(stack.python, stack.python_count, site->python());
  for (int i = 0; i < stack.count; ++i) {
    site->addresses()[i] = stack.addresses[i];
    if (!module_at(call_address(stack.addresses[i]), site->modules()[i])) {
      internal_deallocate(site, stack.site_bytes());
      return nullptr;
    }
  }
  while (site->first < site->count && is_leading(site->modules()[site->first])) ++site->first;
  if (site->first == site->count) site->first = 0;
  choose_witnesses(*site);
  return site;
}

// False: no memory, or no number left. Threads that come to the last site of kForms at the same time make a few more
// than it says.
bool add_by_id(Site* site) {
  if (site_count == kPieces * kPieceSites) return false;
  Site**& piece = sites_by_id[site_count / kPieceSites];
  if (!piece) piece = static_cast<Site**>(internal_try_allocate(kPieceSites * sizeof(Site*)));
  if (!piece) return false;
  piece[site_count % kPieceSites] = site;
  site->id = static_cast<SiteId>(++site_count);
  return true;
}

// Under the lock. Null: no memory.
Bucket* late_buckets_made() {
  if (Bucket* const made = late_buckets.load(std::memory_order_relaxed)) return made;
  auto* const made = static_cast<Bucket*>(internal_try_allocate_zeroed(kLateBuckets * sizeof(Bucket)));
  late_buckets.store(made, std::memory_order_release);
  return made;
}

SiteId insert(const Stack& stack) {
  Site* site = make_site(stack);  // before the lock: it asks the dynamic linker
  if (!site) {
    add(captures_failed);
    return 0;
  }
  const LockedUnlessForking hold(sites_lock);
  const Site* other = hold ? find_like(*site, stack) : nullptr;
  if (!hold || other || !add_by_id(site)) {
    if (!other) add(captures_failed);
    internal_deallocate(site, stack.site_bytes());
    return other ? other->id : 0;
  }
  sites_known[static_cast<int>(stack.calls)].fetch_add(1, std::memory_order_relaxed);
  Bucket* const late = site_count > kEarlySites ? late_buckets_made() : nullptr;
  Bucket& bucket = late ? late[stack.hash % kLateBuckets] : buckets[stack.hash % kBuckets];
  site->next = bucket.load(std::memory_order_relaxed);
  bucket.store(site, std::memory_order_release);
  return site->id;
}

const Site* find_stack(Stack& stack) {
  stack.hash = hash_of(stack);
  return find(stack);
}

int leading_frames(const Stack& stack) {
  int leading = 0;
  const Module* module;
  while (leading < stack.count && module_at(call_address(stack.addresses[leading]), module) && is_leading(module))
    ++leading;
  return leading;
}

// One that was not found.
[[gnu::noinline]] SiteId insert_bounded(Stack& stack) {
  const std::size_t known = sites_known[static_cast<int>(stack.calls)].load(std::memory_order_relaxed);
  if (known < kForms[0].sites_max) [[likely]]
    return insert(stack);
  const int leading = leading_frames(stack);
  for (const Form& form : kForms) {
    stack.count = std::min(stack.count, leading + form.native);
    stack.python_count = std::min(stack.python_count, form.python);
    stack.is_cut_off = true;
    if (const Site* const site = find_stack(stack)) return site->id;
    if (known < form.sites_max) return insert(stack);
  }
  add(captures_failed);
  return 0;
}

bool know_modules(const Stack& stack) {
  const Module* module;
  for (int i = 0; i < stack.count; ++i)
    if (!module_at(call_address(stack.addresses[i]), module)) return false;
  return true;
}

// In a process that has an interpreter.
[[gnu::noinline]] SiteId capture_python(Stack& stack) {
  python::Frame frames[kPythonMax];
  stack.python = frames;
  // A signal may have interrupted code that was about to link a frame.
  if (stack.calls_only || !passes_signal(stack.addresses, stack.count))
    stack.python_count = python::read_frames(stack.addresses, stack.count, stack.is_cut_off, frames, kPythonMax);
  const Site* const site = find_stack(stack);
  return site ? site->id : insert_bounded(stack);
}

[[gnu::noinline]] SiteId capture_anew(const char* api, Calls calls, const WalkStart& start, bool may_have_name) {
  void* addresses[kRawMax];
  WalkEnd end;
  NamedStack named{api};
  const int count = unwind_stack(start, addresses, kRawMax, &end, may_have_name ? &named : nullptr);
  if (count <= 0) {
    add(captures_failed);
    return 0;
  }
  int first = 0;
  if (const void* const of_library = CalledFrom::callers[static_cast<int>(calls)]) [[unlikely]]
    if (void** const found = std::find(addresses, addresses + count, of_library); found != addresses + count)
      first = static_cast<int>(found - addresses);
  const bool is_cut_off = count == kRawMax || !end.is_whole;
  Stack stack{api, addresses + first, count - first, is_cut_off, end.calls_only, calls, nullptr, 0, 0};
  if (python::interpreter_count.load(std::memory_order_relaxed)) return capture_python(stack);
  if (const Site* site = find_stack(stack)) [[likely]] {
    if (may_have_name) name_stack(named, site->id);
    return site->id;
  }
  // Its modules become known first: one may be an interpreter.
  if (!know_modules(stack)) return 0;
  if (python::interpreter_count.load(std::memory_order_relaxed)) return capture_python(stack);
  return insert_bounded(stack);
}

[[gnu::always_inline]] inline SiteId capture(const char* api, Calls calls, const WalkStart& start) {
  const bool may_have_name = stacks_have_names.load(std::memory_order_relaxed) &&
                             !python::interpreter_count.load(std::memory_order_relaxed) &&
                             !CalledFrom::callers[static_cast<int>(calls)];  // else a site is more than a stack
  const SiteId named = may_have_name ? name_of_stack(start, api) : 0;
  return named ? named : capture_anew(api, calls, start, may_have_name);
}

const Site* site_of(SiteId id) {
  Locked hold(sites_lock);
  return id && id <= site_count ? sites_by_id[(id - 1) / kPieceSites][(id - 1) % kPieceSites] : nullptr;
}

}  // namespace

bool wake_sites() {
  if (!sites_are_asleep.load()) return false;
  sites_woke_at_ns.store(nanoseconds_since_start());
  return sites_are_asleep.exchange(false);
}

SitesSleep sites_sleep() {
  const std::uint64_t at_ns = sites_woke_at_ns.load();
  if (sites_are_asleep.load()) return {true, std::nullopt};
  return {false, at_ns ? std::optional(at_ns) : std::nullopt};
}

[[gnu::noinline]] SiteId capture_site(const char* api, Calls calls) {
  if (sites_are_asleep.load(std::memory_order_relaxed)) [[unlikely]]
    return 0;
  const int saved_errno = errno;
  // The second of a thread: the first one fills the unwinder's caches and would be the mean of a short program.
  const bool timed = captures_of_thread++ % kTimedEvery == 1;
  const std::uint64_t start = timed ? nanoseconds_since_start() : 0;
  const SiteId site = capture(api, calls, walk_start());
  if (timed) {
    add(captures_timed_ns, nanoseconds_since_start() - start);
    add(captures_timed);
  }
  errno = saved_errno;
  return site;
}

namespace {

FrameFigures python_frame(const python::Line& line) {
  FrameFigures figures{};
  figures.function = line.function->text;
  figures.file = line.file->text;
  figures.line = line.number;
  figures.python = true;
  return figures;
}

// The Python frames of a site, run by run: each call of an interpreter's function runs one.
class PythonRuns {
 public:
  explicit PythonRuns(const Site& site) : frame_(site.python()), end_(frame_ + site.python_count) {
    for (const python::Frame* frame = frame_; frame != end_; ++frame) runs_ += frame->ends_run() || frame + 1 == end_;
  }
  int left() const { return runs_; }
  template <class Show>
  void show_next(Show show) {
    for (bool ends = false; frame_ != end_ && !ends; ++frame_) {
      ends = frame_->ends_run();
      if (frame_->line()) show(*frame_->line());
    }
    --runs_;
  }

 private:
  const python::Frame *frame_, *end_;
  int runs_ = 0;
};

int evaluations(const Site& site) {
  int count = 0;
  for (int i = site.first; i < site.count; ++i) count += python::is_evaluation(call_address(site.addresses()[i]));
  return count;
}

bool is_c_library(const Module* module) {
  return module && basename_of(std::string_view(module->path)).starts_with("libc.so.");
}

// Behind the last frame of the program: the C library's start of it is not shown, nor its entry point, which that
// returns to. (Where a wrapper of ours calls main, the walk ended there.)
int end_of_program(const Site& site) {
  constexpr std::uintptr_t kEntryBytesMax = 64;
  if (site.count == 0) return 0;
  const std::uintptr_t outermost = call_address(site.addresses()[site.count - 1]);
  if (outermost - start_value(AT_ENTRY) >= kEntryBytesMax) return site.count;
  int end = site.count - 1;
  while (end > site.first && is_c_library(site.modules()[end - 1])) --end;
  return end > site.first ? end : site.count;
}

// The frames that are shown, leaf first. Calls nothing that another library may define.
template <class ShowNative, class ShowPython>
void show_frames(const Site& site, ShowNative show_native, ShowPython show_python) {
  PythonRuns runs(site);
  // Where the interpreter's function cannot be told on the whole stack (it is in parts), the innermost run comes first.
  int unplaced = site.is_cut_off ? 0 : runs.left() - evaluations(site);
  const int end = std::min(end_of_program(site), site.first + kDepthMax);
  for (int i = site.first; i < end; ++i) {
    const Module* const module = site.modules()[i];
    if (is_wrapper(module)) continue;
    const std::uintptr_t address = call_address(site.addresses()[i]);
    for (; unplaced > 0 && python::is_interpreter(address); --unplaced) runs.show_next(show_python);
    if (runs.left() > 0 && python::is_evaluation(address)) {
      runs.show_next(show_python);
      continue;
    }
    show_native(module, address);
  }
  while (runs.left() > 0) runs.show_next(show_python);
}

}  // namespace

Vector<FrameFigures> site_frames(SiteId id) {
  Vector<FrameFigures> frames;
  const Site* site = site_of(id);
  if (!site) return frames;
  const Module* checked = nullptr;
  bool loaded = false;
  const auto add_native = [&](const Module* module, std::uintptr_t address) {
    FrameFigures figures{};
    figures.address = address;
    if (module) {
      if (module != checked) loaded = is_loaded(*module);
      checked = module;
      figures.offset = figures.address - module->bias;
      if (!loaded) figures.address = 0, figures.closed = module;
      figures.module = module->path;
      figures.build_id = module->build_id;
    }
    frames.push_back(figures);
  };
  show_frames(*site, add_native, [&](const python::Line& line) { frames.push_back(python_frame(line)); });
  return frames;
}

bool visit_raw_frames(SiteId id, const RawFrames& visitor) {
  const Site* site = nullptr;
  {
    const LockedUnlessForking hold(sites_lock);
    if (!hold) return false;
    if (id && id <= site_count) site = sites_by_id[(id - 1) / kPieceSites][(id - 1) % kPieceSites];
  }
  if (!site) return true;
  visitor.call(visitor.context, site->api);
  show_frames(
      *site, [&](const Module* module, std::uintptr_t address) { visitor.native(visitor.context, module, address); },
      [&](const python::Line& line) { visitor.python(visitor.context, line); });
  return true;
}

namespace {
// A block that a script made belongs to its program, whichever library of the interpreter made the call.
bool is_interpreter(std::string_view module) { return module.starts_with("python") || module.starts_with("libpython"); }

bool acts_for_others(const Module& module) {
  return module.may_forward || allocates_for_callers(basename_of(std::string_view(module.path)));
}

// Runs constructors, threads and main. A sanitizer's runtime starts threads in the C library's place.
bool is_system(std::string_view module) {
  constexpr std::string_view kPrefixes[] = {"libc.so",    "ld-linux",   "libpthread", "libasan.so",
                                            "liblsan.so", "libtsan.so", "libubsan.so"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [module](std::string_view prefix) { return module.starts_with(prefix); });
}

// The line of the script itself, rather than of the modules that it uses.
const python::Line* line_of_script(const Site& site) {
  const python::Line* innermost = nullptr;
  for (int i = 0; i < site.python_count; ++i) {
    const python::Line* const line = site.python()[i].line();
    if (!line) continue;
    if (!is_installed(line->file->text)) return line;
    if (!innermost) innermost = line;
  }
  return innermost;
}
}  // namespace

SiteOwner site_owner(SiteId id) {
  const Site* site = site_of(id);
  if (!site) return {{}, false};
  if (const python::Line* const line = line_of_script(*site)) {
    String owner(basename_of(line->file->text));
    if (line->number) owner += ":" + decimal(line->number, 0);
    return {std::move(owner), true};
  }
  const Module* owner = nullptr;
  bool interpreted = false;
  for (int i = site->first; i < site->count; ++i) {
    const Module* const module = site->modules()[i];
    if (!module) continue;  // generated code acts for the module that runs it
    // A module that acts for others is the caller itself if only the system stands behind it.
    if (!owner || (acts_for_others(*owner) && !acts_for_others(*module) && !is_system(basename_of(module->path))))
      owner = module;
    interpreted |= is_interpreter(basename_of(module->path));
  }
  if (!owner) return {{}, false};
  return {String(basename_of(owner->path)), owner->is_program || interpreted};
}

LeakFigures leak_at(SiteId site, String kind, const char* object, const char* api) {
  LeakFigures leak{};
  leak.kind = std::move(kind);
  leak.object = object;
  leak.api = api;
  leak.first_s = 1e300;
  leak.site = site;
  return leak;
}

SiteStatistics site_statistics() {
  SiteStatistics statistics{};
  {
    Locked hold(sites_lock);
    statistics.sites = site_count;
  }
  if (const std::uint64_t timed = read(captures_timed); timed >= kTimedMin)
    statistics.capture_mean_ns = static_cast<double>(read(captures_timed_ns)) / static_cast<double>(timed);
  statistics.dropped = read(captures_failed);
  return statistics;
}

Vector<PythonFigures> pythons_seen() {
  Vector<PythonFigures> pythons;
  const unsigned known = python::interpreter_count.load(std::memory_order_acquire);
  for (unsigned i = 0; i < known; ++i) {
    const python::Interpreter& interpreter = python::interpreters[i];
    const unsigned version = interpreter.version;
    pythons.push_back({version >> 24, version >> 16 & 255, version >> 8 & 255, interpreter.why_not});
  }
  return pythons;
}

void sites_use_few_system_calls() { modules_look_at_files.store(false, std::memory_order_relaxed); }

void sites_before_fork() {
  sites_lock.lock_for_fork();
  modules_before_fork();
  python::places_before_fork();
  unwinder_before_fork();
  symbols_before_fork();
}

void sites_after_fork() {
  symbols_after_fork();
  unwinder_after_fork();
  python::places_after_fork();
  modules_after_fork();
  sites_lock.unlock_after_fork();
}

void sites_after_fork_in_child() {
  set_in_child(python::walkers, 0u);  // they were in other threads
  symbols_after_fork_in_child();
  sites_after_fork();
}

}  // namespace cistern
