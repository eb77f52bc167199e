// See judging.hpp. The roots are all mappings that the program can write, but those of our own tables, the host pool's
// blocks, and device files; anonymous ones too that it can only read. Of them drivers' data and the stacks of drivers'
// threads are a group of their own.
#include "shim/core/judging.hpp"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <new>
#include <string_view>

#include "pool/base/lock.hpp"
#include "pool/base/path.hpp"
#include "pool/base/process_start.hpp"
#include "pool/base/symbol_table.hpp"
#include "pool/base/system_call.hpp"
#include "shim/core/core.hpp"
#include "shim/process/alternate_stacks.hpp"
#include "shim/process/held_threads.hpp"
#include "shim/process/kernel_words.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/live_stack.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/memory_copy.hpp"
#include "shim/process/memory_map.hpp"
#include "shim/process/other_threads.hpp"
#include "shim/process/process.hpp"
#include "shim/process/standings.hpp"
#include "shim/process/system_filter.hpp"
#include "stats/counters.hpp"
#include "stats/python/interpreter.hpp"
#include "stats/shared_names.hpp"

namespace cistern {
namespace {

// Whose judge would complain of each word that it reads: it may have been freed, or be written by another thread.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

using leaks::Constants;
using leaks::Residency;
using leaks::Root;
using leaks::Target;

constexpr std::uintptr_t kSystemPage = 4096;
// Most that are looked at; with more nothing is judged.
constexpr std::size_t kRootsMax = std::size_t{1} << 17, kMappingsMax = std::size_t{1} << 16;
constexpr std::size_t kOursMax = std::size_t{1} << 15, kDriverWordsMax = 64, kWordsMax = std::size_t{1} << 18,
                      kStacksMax = std::size_t{1} << 15;

std::uintptr_t address_of(const void* place) { return reinterpret_cast<std::uintptr_t>(place); }

// Of memory that does not grow: where there is no room, that is noted.
template <class T>
class Fixed {
 public:
  explicit Fixed(std::size_t room)
      : first_(static_cast<T*>(take_in_copy(room * sizeof(T)))), room_(first_ ? room : 0) {}
  void push(const T& one) { count_ < room_ ? void(first_[count_++] = one) : void(is_short_ = true); }
  T* begin() { return first_; }
  T* end() { return first_ + count_; }
  std::span<const T> all() const { return {first_, count_}; }
  bool is_short() const { return is_short_ || !room_; }

 private:
  T* const first_;
  const std::size_t room_;
  std::size_t count_ = 0;
  bool is_short_ = false;
};

struct Range {
  std::uintptr_t first, end;
  bool holds(std::uintptr_t address) const { return address - first < end - first; }
};

constinit std::atomic<int> own_thread{0};

// --- What the child needs and what it tells, in memory of both processes

struct Findings {
  host_pool::Picture heap;
  bool is_complete = false;  // there was room for all
  bool cannot_read = false;  // what is mapped
  unsigned unseen_threads = 0;
  std::uint64_t unreadable_bytes = 0, bytes_read = 0, scratch_bytes = 0;
};

struct Plan {
  const void* stack_in_use;
  int own_id;      // of this thread
  int process_id;  // of the first one
  bool on_alternate_stack, may_stop;
  OtherThreads* threads;
  std::span<const std::uintptr_t> handed_out;
  std::span<const Target> unused;
  Findings* findings;
  std::span<Target> targets;
  std::span<std::uint8_t> marks;
  void* picture_table;
  std::size_t picture_bytes;
  Range both;         // all of the memory of both
  HeldThreads* held;  // of the parent
  Range own_stack;
  leaks::PythonIntegers integers;
};

// --- Residency: of memory that was never touched there may be any amount

constexpr std::size_t kPagesLookedAt = 4096;
constexpr std::uint64_t kSomething = std::uint64_t{3} << 62, kOfFile = std::uint64_t{1} << 61;  // present or swapped
// A page that nobody may touch, in the midst of a mapping that may be read (MADV_GUARD_INSTALL): stacks have some. Says
// so since Linux 6.15; it counts as swapped.
constexpr std::uint64_t kGuard = std::uint64_t{1} << 58;
constexpr bool has_contents(std::uint64_t entry) { return (entry & kSomething) && !(entry & kGuard); }
struct PageWindow {
  std::uintptr_t first, end;
  Residency residency;
  bool is_there[kPagesLookedAt];
  std::uint64_t theirs[kPagesLookedAt], ours[kPagesLookedAt];
  unsigned char cached[kPagesLookedAt];
};
constinit PageWindow* window = nullptr;
constinit int own_pagemap = -1;

bool read_pagemap(int file, std::uintptr_t first, std::uint64_t* entries, std::size_t count) {
  const auto bytes = static_cast<long>(count * sizeof *entries);
  return system_call(SYS_pread64, static_cast<std::uintptr_t>(file), address_of(entries), count * sizeof *entries,
                     first / kSystemPage * sizeof *entries) == bytes;
}

// PAGEMAP_SCAN of Linux 6.7, which has to be asked for without its header.
struct PageScan {
  struct Found {
    std::uint64_t first, end, kinds;
  };
  static constexpr std::uint64_t kPresent = 1 << 3, kSwapped = 1 << 4, kGuard = 1 << 8;  // the last since 6.16
  std::uint64_t bytes = sizeof(PageScan), flags = 0, first, end, end_of_walk = 0;
  Found* found;
  std::uint64_t found_max = 1, pages_max, inverted = 0, all_of = 0, any_of, told = any_of;
};

// The parent's first run of pages of these kinds, as far as the most that are asked for; none: it begins at `end`.
// False: the kernel does not know how.
bool find_pages(std::uintptr_t first, std::uintptr_t end, std::uint64_t kinds, std::uint64_t pages_max,
                PageScan::Found& found) {
  PageScan scan{.first = first, .end = end, .found = &found, .pages_max = pages_max, .any_of = kinds};
  const long count = system_call(SYS_ioctl, static_cast<std::uintptr_t>(parent_pagemap()), _IOWR('f', 16, PageScan),
                                 address_of(&scan));
  if (count <= 0) found = {end, end, 0};
  return count >= 0;
}

// Behind what was never touched, which may be terabytes: the kernel passes by it without a look at each page.
std::uintptr_t first_touched(std::uintptr_t first, std::uintptr_t end) {
  PageScan::Found found;
  return find_pages(first, end, PageScan::kPresent | PageScan::kSwapped, 1, found) ? found.first : first;
}

// What the parent has there and the child has not is fetched.
void look_at_pages(std::uintptr_t first, std::uintptr_t end, Residency residency) {
  const std::size_t count = std::min<std::size_t>((end - first + kSystemPage - 1) / kSystemPage, kPagesLookedAt);
  window->first = first;
  window->end = first + count * kSystemPage;
  window->residency = residency;
  std::uint64_t *const theirs = window->theirs, *const ours = window->ours;
  std::fill_n(window->is_there, count, true);
  if (residency == Residency::of_file) {
    if (system_call(SYS_mincore, first, count * kSystemPage, address_of(window->cached)) == 0)
      for (std::size_t i = 0; i < count; ++i) window->is_there[i] = window->cached[i] & 1;
    return;
  }
  if (!read_pagemap(parent_pagemap(), first, theirs, count)) return;
  bool any = false;
  for (std::size_t i = 0; i < count; ++i) any |= window->is_there[i] = has_contents(theirs[i]);
  const bool own_known = any && read_pagemap(own_pagemap, first, ours, count);
  const auto is_missing = [&](std::size_t i) {
    return own_known && has_contents(theirs[i]) && !(theirs[i] & kOfFile) && !(ours[i] & kSomething);
  };
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t behind = i;
    while (behind < count && is_missing(behind)) ++behind;
    if (behind == i) continue;
    fetch_from_parent(first + i * kSystemPage, (behind - i) * kSystemPage);
    i = behind;
  }
}

bool next_resident(std::uintptr_t first, std::uintptr_t end, Residency residency, std::uintptr_t& there,
                   std::uintptr_t& there_end) {
  if (residency == Residency::of_judge) {
    there = first;
    there_end = end;
    return there < end;
  }
  for (std::uintptr_t at = first & ~(kSystemPage - 1); at < end; at = window->end) {
    if (at < window->first || at >= window->end || residency != window->residency) {
      if (residency == Residency::of_pages && (at = first_touched(at, end)) >= end) return false;
      look_at_pages(at, end, residency);
    }
    std::size_t i = (at - window->first) / kSystemPage;
    const std::size_t count = (window->end - window->first) / kSystemPage;
    while (i < count && !window->is_there[i]) ++i;
    if (i == count) continue;
    there = std::max(first, window->first + i * kSystemPage);
    while (i < count && window->is_there[i]) ++i;
    there_end = std::min(end, window->first + i * kSystemPage);
    return there < end;
  }
  return false;
}

// --- Mappings

template <std::size_t count>
bool is_named(std::string_view path, const std::string_view (&begins)[count]) {
  const std::string_view name = basename_of(path);
  return std::any_of(begins, begins + count, [&](std::string_view begin) { return name.starts_with(begin); });
}

bool is_driver_file(std::string_view path) {
  constexpr std::string_view kBegins[] = {"libcuda.so",   "libnvidia-", "libOpenCL.so",  "libpocl",
                                          "libamdocl",    "libigdrcl",  "libintelocl",   "libMesaOpenCL",
                                          "libRusticlOp", "libmali",    "libhsa-runtime"};
  return is_named(path, kBegins);
}

// Through which threads of anybody start.
bool is_runtime_file(std::string_view path) {
  constexpr std::string_view kBegins[] = {"libc.so",   "libc-",       "libpthread", "ld-linux", "libstdc++.so",
                                          "libc++.so", "libcistern.", "libgcc_s",   "libgomp"};
  return is_named(path, kBegins);
}

bool is_device(std::string_view path) {
  return path.starts_with("/dev/") && !path.starts_with("/dev/shm/") && !path.starts_with("/dev/zero") &&
         !path.starts_with("/dev/hugepages");
}

// No instruction of a call is longer.
constexpr std::uintptr_t kLongestCall = 8;

struct CodeRange {
  std::uintptr_t first, end;
  bool of_driver, of_runtime;
};

class Roots {
 public:
  explicit Roots(const Plan& plan) : plan_(plan) {
    const auto add_ours = [](void* roots, std::uintptr_t first, std::size_t bytes) {
      static_cast<Roots*>(roots)->ours_.push({first, first + bytes});
    };
    visit_internal_memory(add_ours, this);
    if (const SharedNamesPlace names = shared_names_place(); names.bytes) add_ours(this, names.first, names.bytes);
    ours_.push(plan.both);
    ours_.push(plan.own_stack);
    ours_.push({memory_of_copy().first, memory_of_copy().end});
    // Not roots: they are followed where something leads to them.
    for (const std::span<const Target> all : {std::span<const Target>(plan.targets), plan.unused})
      for (const Target& target : all)
        if (target.is_readable) ours_.push({target.first, target.first + target.bytes});
    const host_pool::Picture& heap = plan.findings->heap;
    if (heap.bytes()) ours_.push({heap.first(), heap.first() + heap.bytes()});
    for (const OtherThread& thread : plan.threads->all())
      if (const Range dead = dead_part_of(thread); dead.first < dead.end) ours_.push(dead);
  }

  // All that the child has; then, what of the parent's it has not.
  void read() {
    sort_ours();
    read_mappings();
    restore_what_is_missing();
    note_threads();
    note_words_of_kernel();
    for (const Target& target : plan_.targets)
      if (target.is_readable) make_readable(target.first, target.first + target.bytes);
  }

  std::span<const Root> all() const { return roots_.all(); }
  std::span<const Constants> constants() const { return constants_.all(); }
  std::span<const std::uintptr_t> stacks_in_heap() const { return stacks_.all(); }
  unsigned unseen_threads() const { return unseen_threads_; }
  bool cannot_read() const { return cannot_read_; }
  bool is_short() const {
    return roots_.is_short() || constants_.is_short() || code_.is_short() || ours_.is_short() || mapped_.is_short() ||
           of_driver_.is_short() || words_.is_short() || stacks_.is_short();
  }
  bool is_of_driver(std::uintptr_t address) const {
    const auto all = of_driver_.all();
    return std::any_of(all.begin(), all.end(), [&](const Range& one) { return one.holds(address); });
  }

 private:
  void sort_ours() {
    std::sort(ours_.begin(), ours_.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  }

  // What lies without a name behind a module's last mapping is its uninitialised data, as far as its headers say.
  void read_mappings() {
    const int file = open_in_copy("/proc/self/maps");
    if (file < 0) cannot_read_ = true;
    MappingReader reader(file);
    std::uintptr_t driver_end = 0, guard_end = 0;
    while (auto mapping = reader.next()) {
      is_after_guard_ = mapping->first == guard_end;
      guard_end = mapping->is_readable || mapping->is_writable ? 0 : mapping->end;
      mapped_.push({mapping->first, mapping->end});
      if (is_driver_file(mapping->path)) {
        driver_end = std::max({driver_end, mapping->end, end_of_module(*mapping)});
        note(*mapping, true);
        continue;
      }
      const std::uintptr_t until = std::clamp(driver_end, mapping->first, mapping->end);
      if (mapping->path.empty() && until > mapping->first) {
        Mapping data = *mapping;
        data.end = mapping->first = until;
        note(data, true);
      }
      if (mapping->first < mapping->end) note_between_guards(*mapping);
    }
  }

  // Stacks that lie beside each other are one mapping where their guards are inside it, as the C library's are since
  // 2.42.
  void note_between_guards(Mapping mapping) {
    const std::uintptr_t end = mapping.end;
    PageScan::Found guard{end, end, 0};
    for (; mapping.first < end; mapping.first = guard.end, is_after_guard_ = true) {
      if (mapping.path.empty() && !mapping.is_shared && mapping.is_readable)
        find_pages(mapping.first, end, PageScan::kGuard, 0, guard);
      mapping.end = guard.first;
      if (mapping.first < mapping.end) note(mapping, false);
    }
  }

  // Of the module whose first mapping this is; 0: of none.
  static std::uintptr_t end_of_module(const Mapping& mapping) {
    const auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(mapping.first);
    if (!mapping.is_readable || mapping.end - mapping.first < kSystemPage || memcmp(&header, ELFMAG, SELFMAG) != 0 ||
        header.e_phoff + header.e_phnum * sizeof(ElfW(Phdr)) > kSystemPage)
      return 0;
    const auto* const parts = reinterpret_cast<const ElfW(Phdr)*>(mapping.first + header.e_phoff);
    std::uintptr_t end = 0;
    for (int i = 0; i < header.e_phnum; ++i)
      if (parts[i].p_type == PT_LOAD) end = std::max<std::uintptr_t>(end, parts[i].p_vaddr + parts[i].p_memsz);
    return (mapping.first + end + kSystemPage - 1) & ~(kSystemPage - 1);
  }

  void note(const Mapping& mapping, bool of_driver) {
    const bool is_file = mapping.path.starts_with('/');
    if (of_driver) of_driver_.push({mapping.first, mapping.end});
    if (mapping.is_executable) code_.push({mapping.first, mapping.end, of_driver, is_runtime_file(mapping.path)});
    if (is_file && mapping.is_readable && !mapping.is_writable) constants_.push({mapping.first, mapping.end});
    const bool is_special = mapping.path.starts_with("[v");  // [vvar], [vdso], [vsyscall]
    if (is_special || is_device(mapping.path) || (is_file && !mapping.is_writable)) return;
    if (!mapping.is_readable && !make_what_is_there_readable(mapping)) return;
    const Residency residency = mapping.is_shared ? Residency::of_file : Residency::of_pages;
    Range dead{mapping.first, mapping.first};
    if (mapping.path == "[stack]") dead.end = begin_of_use_of_first_thread({mapping.first, mapping.end});
    if (mapping.path.empty() && !mapping.is_shared && is_after_guard_) {
      const Descriptor descriptor = descriptor_in(mapping);
      dead = dead_part_of(mapping, descriptor);
      add_what_ended_left(descriptor, of_driver);
    }
    add(mapping.first, dead.first, of_driver, residency);
    add(dead.end, mapping.end, of_driver, residency);
  }

  // Memory that the program has closed for a while. Before Linux 6.7 (which finds what is there at once) not where so
  // much is reserved that a look at its pages would take too long.
  static bool make_what_is_there_readable(const Mapping& mapping) {
    constexpr std::uintptr_t kLookedAt = std::uintptr_t{1} << 30;
    PageScan::Found found;
    if (mapping.is_shared || !mapping.path.empty()) return false;
    const bool is_found = find_pages(mapping.first, mapping.end, PageScan::kPresent | PageScan::kSwapped, 1, found);
    if (is_found ? found.first >= mapping.end : mapping.end - mapping.first > kLookedAt) return false;
    return system_call(SYS_mprotect, mapping.first, mapping.end - mapping.first, PROT_READ) == 0;
  }

  // --- Stacks. What lies below a stack pointer are frames that are over. Only what is known to be one thread's stack
  // is passed over: the system lists stacks and other memory beside each other as one mapping.

  // As the debuggers' interface of the C library has it, a thread's descriptor is at the upper end of its stack, points
  // to itself twice, and has the thread's number; and where the stack begins and its size, beside each other. Where
  // this thread's own does not look so, none is believed.
  static constexpr std::uintptr_t kDescriptorBytes = 2304;
  struct Descriptor {
    std::uintptr_t at = 0;
    int id = 0;
    Range stack{};  // empty: not known
  };
  Descriptor descriptor_at([[maybe_unused]] std::uintptr_t at) const {
#if defined(__x86_64__)
    constexpr std::uintptr_t kNumberAt = 720, kLeastBytes = 16384, kMostBytes = std::uintptr_t{1} << 34;
    constexpr std::uintptr_t kLowest = 65536;
    const auto word_at = [](std::uintptr_t place) { return *reinterpret_cast<const std::uintptr_t*>(place); };
    const auto number_at = [](std::uintptr_t place) { return *reinterpret_cast<const int*>(place + kNumberAt); };
    if (number_at(address_of(__builtin_thread_pointer())) != plan_.own_id) return {};
    if (word_at(at) != at || word_at(at + 16) != at) return {};
    for (std::uintptr_t place = at; place < at + kDescriptorBytes - 8; place += 8) {
      const std::uintptr_t first = word_at(place), bytes = word_at(place + 8);
      if (bytes < kLeastBytes || bytes > kMostBytes || first < kLowest || first >= at || at - first >= bytes) continue;
      if (first + bytes - at <= kDescriptorBytes + kSystemPage) return {at, number_at(at), {first, first + bytes}};
    }
#endif
    return {};
  }

  // The last of a mapping.
  Descriptor descriptor_in(const Mapping& mapping) const {
    constexpr std::uintptr_t kAlignment = 64, kLookedAt = std::uintptr_t{64} * 1024;
    if (mapping.end - mapping.first < kDescriptorBytes) return {};
    std::uintptr_t at = (mapping.end - kDescriptorBytes) & ~(kAlignment - 1);
    for (; at >= mapping.first && mapping.end - at < kLookedAt; at -= kAlignment)
      if (*reinterpret_cast<const std::uintptr_t*>(at) == at)
        if (const Descriptor found = descriptor_at(at); found.at) return found;
    return {};
  }

  bool is_of_thread(const Descriptor& descriptor) const {
    return descriptor.at == address_of(__builtin_thread_pointer()) || descriptor.id == plan_.own_id ||
           (descriptor.id > 0 && plan_.threads->knows(descriptor.id));
  }

  static std::uintptr_t in_use_from(std::uintptr_t stack, std::uintptr_t below) {
    return (stack - below) & ~std::uintptr_t{7};
  }

  // Of a thread that was seen whole: of its own stack, as its descriptor says. Empty: nothing is known.
  Range dead_part_of(const OtherThread& thread) const {
    if (!thread.is_complete || !thread.thread_pointer || thread.id == plan_.process_id) return {};
    const Range stack = descriptor_at(thread.thread_pointer).stack;
    if (stack.holds(thread.stack)) return {stack.first, in_use_from(thread.stack, kBelowStackPointer)};
    const std::uintptr_t interrupted = interrupted_by_handler(thread);
    if (stack.holds(interrupted)) return {stack.first, in_use_from(interrupted, kBelowStackPointer)};
    return {};
  }

  // That it runs a handler on; empty: none.
  static Range alternate_stack_of(const OtherThread& thread) {
    struct {
      const OtherThread& thread;
      Range found;
    } asked{thread, {}};
    visit_alternate_stacks(
        [](void* context, std::uintptr_t owner, std::uintptr_t first, std::uintptr_t bytes) {
          auto& of = *static_cast<decltype(asked)*>(context);
          const Range stack{first, first + bytes};
          if (of.thread.is_complete && owner == of.thread.thread_pointer && stack.holds(of.thread.stack))
            of.found = stack;
        },
        &asked);
    return asked.found;
  }
  // The stack pointer of what the handler interrupted; 0: there is none.
  static std::uintptr_t interrupted_by_handler(const OtherThread& thread) {
    const Range stack = alternate_stack_of(thread);
    return stack.first < stack.end ? interrupted_stack(thread.stack, stack.end) : 0;
  }

  // Of threads that are not seen whole, and of those that have ended, whose stacks the C library keeps for others, with
  // what was thread-local.
  Range dead_part_of(const Mapping& mapping, const Descriptor& descriptor) const {
    const Range nothing{mapping.first, mapping.first};
    const auto inside = [&](std::uintptr_t end) {
      const std::uintptr_t first = std::max(mapping.first, descriptor.stack.first);
      return first < end ? Range{first, end} : nothing;
    };
    if (!descriptor.at) return nothing;
    if (!is_of_thread(descriptor)) return inside(std::min(descriptor.stack.end, mapping.end));
    if (descriptor.at == address_of(__builtin_thread_pointer()) && !plan_.on_alternate_stack &&
        descriptor.stack.holds(address_of(plan_.stack_in_use)))
      return inside(in_use_from(address_of(plan_.stack_in_use), 0));
    for (const OtherThread& thread : plan_.threads->all())
      if (thread.id == descriptor.id && thread.is_steady && descriptor.stack.holds(thread.stack))
        return inside(in_use_from(thread.stack, kBelowStackPointer));
    return nothing;
  }

  // Of the descriptor of a thread that has ended: its head has what the next thread will use, and what it returned may
  // still be asked for.
  void add_what_ended_left(const Descriptor& descriptor, bool of_driver) {
    constexpr std::uintptr_t kHead = 704, kReturned = 1568, kReturnedEnd = 1592;
    if (!descriptor.at || is_of_thread(descriptor)) return;
    add(descriptor.at, descriptor.at + kHead, of_driver, Residency::of_pages);
    add(descriptor.at + kReturned, descriptor.at + kReturnedEnd, of_driver, Residency::of_pages);
  }

  // At the mapping's begin where that is not known.
  std::uintptr_t begin_of_use_of_first_thread(const Range& mapping) const {
    if (plan_.own_id == plan_.process_id) {
      const std::uintptr_t stack = address_of(plan_.stack_in_use);
      return mapping.holds(stack) && !plan_.on_alternate_stack ? in_use_from(stack, 0) : mapping.first;
    }
    for (const OtherThread& thread : plan_.threads->all()) {
      if (thread.id != plan_.process_id) continue;
      if (!thread.is_complete && !thread.is_steady) return mapping.first;
      const std::uintptr_t stack = mapping.holds(thread.stack) ? thread.stack : interrupted_by_handler(thread);
      return mapping.holds(stack) ? std::max(mapping.first, in_use_from(stack, kBelowStackPointer)) : mapping.first;
    }
    // It has ended; arguments and environment are still the program's.
    const std::uintptr_t arguments = address_of(start_arguments());
    return !plan_.threads->left_out() && mapping.holds(arguments) ? arguments : mapping.first;
  }

  // Without what is ours.
  void add(std::uintptr_t first, std::uintptr_t end, bool of_driver, Residency residency) {
    for (const Range& own : ours_.all()) {
      if (own.end <= first) continue;
      if (own.first >= end) break;
      if (own.first > first) roots_.push({first, own.first, of_driver, residency});
      first = std::max(first, own.end);
    }
    if (first < end) roots_.push({first, end, of_driver, residency});
  }

  // The parent's mappings that were not copied: made here, filled when they are read.
  void restore_what_is_missing() {
    MappingReader reader(parent_maps());
    while (const auto mapping = reader.next()) {
      if (!mapping->is_readable || !mapping->is_writable || is_device(mapping->path)) continue;
      if (mapping->path.starts_with("[v")) continue;
      for_each_hole(mapping->first, mapping->end, [&](std::uintptr_t first, std::uintptr_t end) {
        if (!map_here(first, end)) return;
        fill(first, end);
        add(first, end, false, Residency::of_pages);
      });
    }
  }

  // With what the parent has there.
  static void fill(std::uintptr_t first, std::uintptr_t end) {
    for (std::uintptr_t there; next_resident(first, end, Residency::of_pages, there, first);) {
    }
  }

  // Mapped ranges are sorted, as the system lists them.
  template <class Visit>
  void for_each_hole(std::uintptr_t first, std::uintptr_t end, Visit visit) {
    const auto all = mapped_.all();
    auto at = std::upper_bound(all.begin(), all.end(), first,
                               [](std::uintptr_t address, const Range& one) { return address < one.end; });
    for (; first < end; ++at) {
      const std::uintptr_t until = at == all.end() ? end : std::min(end, at->first);
      if (first < until) visit(first, until);
      if (at == all.end()) return;
      first = std::max(first, at->end);
    }
  }

  static bool map_here(std::uintptr_t first, std::uintptr_t end) {
    return system_call(SYS_mmap, first, end - first, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
                       static_cast<std::uintptr_t>(-1)) == static_cast<long>(first);
  }

  void make_readable(std::uintptr_t first, std::uintptr_t end) {
    for_each_hole(first & ~(kSystemPage - 1), (end + kSystemPage - 1) & ~(kSystemPage - 1),
                  [](std::uintptr_t hole, std::uintptr_t hole_end) {
                    if (map_here(hole, hole_end)) fill(hole, hole_end);
                  });
  }

  // Threads that run a driver's code: the first code that somebody returns to from the upper end of the stack on, but
  // that of the runtime, is the driver's. What they have is the driver's.
  bool runs_driver(const OtherThread& thread) {
    constexpr std::uintptr_t kLookedAt = std::uintptr_t{256} * 1024;
    const auto root = std::find_if(roots_.begin(), roots_.end(), [&](const Root& one) {
      return Range{one.first, one.end}.holds(thread.stack);
    });
    if (!thread.stack || root == roots_.end()) return false;
    const bool has_descriptor = thread.is_complete && Range{root->first, root->end}.holds(thread.thread_pointer);
    const std::uintptr_t upper = (has_descriptor ? thread.thread_pointer : root->end) & ~std::uintptr_t{7};
    for (std::uintptr_t at = upper - 8; at >= thread.stack && upper - at < kLookedAt; at -= 8) {
      const std::uintptr_t word = *reinterpret_cast<const std::uintptr_t*>(at);
      const CodeRange* const code = code_at(word);
      if (!code || code->of_runtime || word - code->first < kLongestCall || !is_behind_call(word)) continue;
      if (code->of_driver) give_to_driver(*root, has_descriptor ? descriptor_at(thread.thread_pointer).stack : Range{});
      return code->of_driver;
    }
    return false;
  }

  // Of a mapping that has more than the stack, the rest is the program's.
  void give_to_driver(Root& root, const Range& stack) {
    const bool is_known = stack.first < stack.end;
    if (is_known && root.first < stack.first) roots_.push({root.first, stack.first, false, root.residency});
    if (is_known && stack.end < root.end) roots_.push({stack.end, root.end, false, root.residency});
    if (is_known) root = {std::max(root.first, stack.first), std::min(root.end, stack.end), true, root.residency};
    root.of_driver = true;
  }

  // Their registers, and stacks that lie in blocks of the host pool: coroutines' and such that programs made. Those
  // blocks are in use whoever has a pointer to them.
  void note_threads() {
    for (OtherThread& thread : plan_.threads->all()) {
      if (!thread.id) continue;
      const bool of_driver = runs_driver(thread);
      if (!thread.is_complete && !of_driver) ++unseen_threads_;
      if (thread.word_count)
        roots_.push(
            {address_of(thread.words), address_of(thread.words + thread.word_count), of_driver, Residency::of_judge});
      const Range dead = dead_part_of(thread), alternate = alternate_stack_of(thread);
      const bool is_alternate = alternate.first < alternate.end;
      const std::uintptr_t begin = note_stack_in_heap(
          thread.stack, is_alternate ? Range{alternate.first, in_use_from(thread.stack, kBelowStackPointer)} : dead);
      if (thread.is_complete && begin_of_block(thread.thread_pointer) != begin)
        note_stack_in_heap(thread.thread_pointer, dead);
    }
    unseen_threads_ += plan_.threads->left_out();
  }
  std::uintptr_t begin_of_block(std::uintptr_t inside) const {
    host_pool::PictureBlock block;
    return inside && plan_.findings->heap.find(inside, block) && block.live ? block.first : 0;
  }
  // Returns its block's begin; 0: it is in none.
  std::uintptr_t note_stack_in_heap(std::uintptr_t inside, const Range& dead) {
    host_pool::PictureBlock block;
    if (!inside || !plan_.findings->heap.find(inside, block) || !block.live) return 0;
    const std::uintptr_t end = block.first + block.bytes;
    const bool has_dead = dead.first < dead.end && dead.first >= block.first && dead.end <= end;
    stacks_.push(block.first);
    if (has_dead) roots_.push({block.first, dead.first, false, Residency::of_pages});
    roots_.push({has_dead ? dead.end : block.first, end, false, Residency::of_pages});
    return block.first;
  }

  // What the kernel alone has; alternate stacks of threads that still live.
  void note_words_of_kernel() {
    // Many programs give epoll a file's number.
    const auto push = [](void* roots, std::uintptr_t word) {
      constexpr std::uintptr_t kLowestAddress = 65536;
      if (word >= kLowestAddress) static_cast<Roots*>(roots)->words_.push(word);
    };
    visit_words_of_kernel(parent_timers(), push, this);
    visit_alternate_stacks(
        [](void* roots, std::uintptr_t thread, std::uintptr_t stack, std::uintptr_t) {
          auto* const own = static_cast<Roots*>(roots);
          if (own->may_live(thread)) own->words_.push(stack);
        },
        this);
    roots_.push({address_of(words_.begin()), address_of(words_.end()), false, Residency::of_judge});
  }
  bool may_live(std::uintptr_t thread_pointer) const {
    const auto all = plan_.threads->all();
    return thread_pointer == address_of(__builtin_thread_pointer()) || plan_.threads->left_out() ||
           std::any_of(all.begin(), all.end(), [=](const OtherThread& thread) {
             return thread.id && (!thread.is_complete || thread.thread_pointer == thread_pointer);
           });
  }

  const CodeRange* code_at(std::uintptr_t address) const {
    const auto all = code_.all();
    const auto behind =
        std::upper_bound(all.begin(), all.end(), address,
                         [](std::uintptr_t wanted, const CodeRange& one) { return wanted < one.first; });
    return behind != all.begin() && address < std::prev(behind)->end ? &*std::prev(behind) : nullptr;
  }

  const Plan& plan_;
  Fixed<Root> roots_{kRootsMax};
  Fixed<Constants> constants_{kMappingsMax};
  Fixed<CodeRange> code_{kMappingsMax};
  Fixed<Range> ours_{kOursMax}, mapped_{kMappingsMax}, of_driver_{kMappingsMax};
  Fixed<std::uintptr_t> words_{kWordsMax}, stacks_{kStacksMax};
  unsigned unseen_threads_ = 0;
  bool cannot_read_ = false, is_after_guard_ = false;
};

// --- In the child

// What objects of drivers begin with: OpenCL's all point to their driver's table of functions.
std::span<const std::uintptr_t> driver_words(const Plan& plan, const Roots& roots, std::uintptr_t* words) {
  std::size_t count = 0;
  for (const std::uintptr_t handle : plan.handed_out) {
    host_pool::PictureBlock block;
    if (!plan.findings->heap.find(handle, block) || !block.live) continue;
    const std::uintptr_t word = *reinterpret_cast<const std::uintptr_t*>(block.first);
    if (count < kDriverWordsMax && roots.is_of_driver(word) && std::find(words, words + count, word) == words + count)
      words[count++] = word;
  }
  std::sort(words, words + count);
  return {words, count};
}

bool judge_in_copy(void* context) {
  const Plan& plan = *static_cast<const Plan*>(context);
  Findings& findings = *plan.findings;
  if (!findings.heap.take(plan.picture_table, plan.picture_bytes) || findings.heap.numbers() > plan.marks.size())
    return true;
  own_pagemap = open_in_copy("/proc/self/pagemap");
  window = static_cast<PageWindow*>(take_in_copy(sizeof(PageWindow)));
  void* const scratch = take_in_copy(leaks::Judge::scratch_bytes());
  if (!window || !scratch) return true;
  plan.threads->await_second_look();
  Roots roots(plan);
  roots.read();
  findings.cannot_read = roots.cannot_read() || own_pagemap < 0;
  if (roots.is_short() || findings.cannot_read) return true;
  std::uintptr_t words[kDriverWordsMax];
  const leaks::World world{
      &findings.heap,    plan.targets,  roots.all(),   plan.handed_out,       driver_words(plan, roots, words),
      roots.constants(), next_resident, plan.integers, roots.stacks_in_heap()};
  leaks::Judge judge(world, plan.marks.data(), scratch, copy_time_is_over);
  const bool in_time = judge.run();
  findings.unseen_threads = roots.unseen_threads();
  findings.unreadable_bytes = unreadable_bytes();
  findings.bytes_read = judge.bytes_read();
  findings.is_complete = in_time;
  return in_time;
}

// Of address space; of what the child does not touch there is none.
std::size_t own_bytes() {
  constexpr std::size_t kTables = kRootsMax * sizeof(Root) + kOursMax * sizeof(Range) +
                                  kMappingsMax * (sizeof(Constants) + sizeof(CodeRange) + 2 * sizeof(Range)) +
                                  (kWordsMax + kStacksMax) * sizeof(std::uintptr_t) + sizeof(PageWindow);
  constexpr std::size_t kRoundedParts = 16;
  return kTables + leaks::Judge::scratch_bytes() + kRoundedParts * kSystemPage;
}

// --- In the parent

// Findings, targets, the picture's table, marks and the table of threads, one behind the other; marks are as many as
// there may be blocks.
class MemoryOfBoth {
 public:
  explicit MemoryOfBoth(const Vector<Target>& targets) {
    picture_bytes_ = 2 * host_pool::Picture::table_bytes();
    marks_ = picture_bytes_ / host_pool::Picture::kEntryBytes * (host_pool::kSliceBytes / host_pool::kGranule);
    targets_at_ = rounded(sizeof(Findings));
    picture_at_ = targets_at_ + rounded(targets.size() * sizeof(Target));
    marks_at_ = picture_at_ + rounded(picture_bytes_);
    threads_at_ = marks_at_ + rounded(marks_);
    threads_bytes_ = OtherThreads::table_bytes();
    bytes_ = threads_at_ + rounded(threads_bytes_);
    void* const memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;
    memory_ = static_cast<char*>(memory);
    new (memory_) Findings;
    std::copy(targets.begin(), targets.end(), reinterpret_cast<Target*>(memory_ + targets_at_));
    target_count_ = targets.size();
  }
  explicit operator bool() const { return memory_; }

  Findings& findings() { return *reinterpret_cast<Findings*>(memory_); }
  std::span<Target> targets() { return {reinterpret_cast<Target*>(memory_ + targets_at_), target_count_}; }
  std::span<std::uint8_t> marks() { return {reinterpret_cast<std::uint8_t*>(memory_ + marks_at_), marks_}; }
  void* picture_table() { return memory_ + picture_at_; }
  std::size_t picture_bytes() const { return picture_bytes_; }
  void* threads_table() { return memory_ + threads_at_; }
  std::size_t threads_bytes() const { return threads_bytes_; }
  Range range() const { return {address_of(memory_), address_of(memory_) + bytes_}; }

 private:
  static std::size_t rounded(std::size_t bytes) { return (bytes + kSystemPage - 1) & ~(kSystemPage - 1); }

  char* memory_ = nullptr;
  std::size_t bytes_ = 0, picture_bytes_, marks_, targets_at_, picture_at_, marks_at_, threads_at_, threads_bytes_,
              target_count_ = 0;
};

bool is_on_alternate_stack() {
  stack_t stack;
  return system_call(SYS_sigaltstack, 0, reinterpret_cast<std::uintptr_t>(&stack)) == 0 &&
         (stack.ss_flags & SS_ONSTACK);
}

void hold_threads(void* context) {
  const Plan& plan = *static_cast<const Plan*>(context);
  if (!plan.may_stop || options().leak_threads == "unseen") return;
  plan.threads->stop();
  if (options().leak_threads == "hold") plan.held->hold(*plan.threads);
}
void let_threads_go(void* context) {
  const Plan& plan = *static_cast<const Plan*>(context);
  plan.threads->let_go();
  plan.held->let_go();
  plan.threads->look_again();
}

// When a Python program comes to its exit, the interpreter has freed its objects. What they had was in use until then,
// so freed ones count as long as their memory was not used again.
leaks::PythonIntegers python_integers() {
  constexpr std::uint32_t kWithTag = 0x030C'0000;
  const link_map* const python = first_module_with("PyLong_Type", main_module());
  if (!python) {
    // One that was loaded later, which a stack has shown. It may be gone by now, so nothing of it is called.
    const unsigned count = python::interpreter_count.load(std::memory_order_acquire);
    if (!count) return {};
    const python::Interpreter& loaded = python::interpreters[count - 1];
    return {address_of(loaded.integer_type), loaded.version >= kWithTag, false};
  }
  const SymbolTable symbols(*python);
  const auto* const version = static_cast<const std::uint32_t*>(symbols.address_of("Py_Version"));
  const bool has_gil = !symbols.defines("_Py_MergeZeroLocalRefcount");
  const auto is_running = reinterpret_cast<int (*)()>(symbols.address_of("Py_IsInitialized"));
  return {address_of(symbols.address_of("PyLong_Type")), version && *version >= kWithTag,
          has_gil && is_running && is_running()};
}

constexpr std::uint64_t kPatienceNs = 10'000'000'000;  // beyond what judging may take
// The times of blocks are coarse: of those that were born before this all have an earlier one.
std::uint64_t next_coarse_moment() {
  constexpr timespec kTick{0, 500'000};
  constexpr int kTicks = 40;  // the clock advances every 1 to 10 ms
  const std::uint64_t now_ns = coarse_nanoseconds_since_start();
  if (!gpu_used()) return now_ns;
  for (int i = 0; i < kTicks && coarse_nanoseconds_since_start() == now_ns; ++i)
    system_call(SYS_nanosleep, address_of(&kTick), 0);
  return coarse_nanoseconds_since_start();
}

// Nobody is kept waiting for what cannot be done in time: of small blocks no more than one in so many nanoseconds was
// ever looked at.
bool blocks_are_too_many(std::uint64_t limit_ns) {
  constexpr std::uint64_t kNsForBlock = 40, kLookedAtBytes = std::uint64_t{256} << 20;
  const Kind& host = *kinds().front();
  if (!host.live_bytes || host.live_bytes() < kLookedAtBytes || host.pools.empty()) return false;
  return host.pools.front().figures(nullptr).live_blocks * kNsForBlock > limit_ns;
}

constinit LongLock judgement_lock;
constinit bool judged_at_end = false;
constinit Range earlier{};  // memory of the last judgement
constinit Range own_stack{};

void drop_earlier() {
  set_judgement({});
  if (earlier.first) munmap(reinterpret_cast<void*>(earlier.first), earlier.end - earlier.first);
  earlier = {};
}

[[gnu::cold]] void judge_live_memory(const void* stack_in_use, bool at_end) {
  const std::uint64_t limit_ns = options().judging_limit();
  drop_earlier();
  if (!limit_ns) return;
  Judgement judgement;
  if (kSanitized || system_calls_are_filtered()) {
    judgement.why_not = kSanitized ? "this copy of Cistern has a sanitizer" : reason_of(CopyEnd::filtered);
    return set_judgement(judgement);
  }
  if (blocks_are_too_many(limit_ns)) {
    judgement.why_not = reason_of(CopyEnd::no_time);
    return set_judgement(judgement);
  }
  const std::uint64_t began_ns = nanoseconds_since_start();
  judgement.listed_ns = next_coarse_moment();
  JudgedMemory memory;
  for (const Kind* kind : kinds())
    if (kind->add_judged) kind->add_judged(memory);
  memory.sort();
  MemoryOfBoth both(memory.targets());
  judgement.why_not = "the system gave no memory for it";
  if (both) {
    earlier = both.range();
    OtherThreads threads(both.threads_table(), both.threads_bytes());
    // A driver's threads mostly wait.
    constexpr int kTries = 20;
    threads.look(own_thread.load(std::memory_order_relaxed), !at_end && gpu_used() ? kTries : 0);
    HeldThreads held;
    Plan plan{stack_in_use,
              static_cast<int>(system_call(SYS_gettid)),
              static_cast<int>(system_call(SYS_getpid)),
              is_on_alternate_stack(),
              at_end,
              &threads,
              memory.handed_out(),
              memory.unused(),
              &both.findings(),
              both.targets(),
              both.marks(),
              both.picture_table(),
              both.picture_bytes(),
              both.range(),
              &held,
              own_stack,
              python_integers()};
    const CopyEnd end = work_in_copy({judge_in_copy, &plan, limit_ns, own_bytes(), hold_threads, let_threads_go});
    const Findings& findings = both.findings();
    judgement.is_known = end == CopyEnd::done && findings.is_complete;
    judgement.why_not = judgement.is_known     ? nullptr
                        : end == CopyEnd::done ? findings.cannot_read ? "no file descriptor was left for it"
                                                                      : "the process has too many mappings"
                                               : reason_of(end);
    judgement.unseen_threads = findings.unseen_threads;
    judgement.stopped_ns = threads.stopped_ns();
    judgement.unreadable_bytes = findings.unreadable_bytes;
    judgement.bytes_read = findings.bytes_read;
    judgement.memory_bytes = findings.heap.numbers() + both.picture_bytes() + leaks::Judge::scratch_bytes();
    judgement.targets = both.targets();
    judgement.heap = &findings.heap;
    judgement.marks = both.marks();
  }
  judgement.took_ns = nanoseconds_since_start() - began_ns;
  set_judgement(judgement);
}

}  // namespace

JudgementHeld::JudgementHeld() : is_ours_(judgement_lock.lock_within(options().judging_limit() + kPatienceNs)) {
  if (is_ours_) set_judging_thread(__builtin_thread_pointer());
}
JudgementHeld::~JudgementHeld() {
  if (!is_ours_) return;
  set_judging_thread(nullptr);
  judgement_lock.unlock();
}

void JudgementHeld::judge_now(const void* stack_in_use) {
  if (is_ours_ && !judged_at_end) judge_live_memory(stack_in_use, false);
}

void judge_at_end(const void* stack_in_use) {
  const JudgementHeld held;
  if (!held.is_ours_ || judged_at_end) return;
  judge_live_memory(stack_in_use, true);
  judged_at_end = true;
}

bool judgement_is_held_here() { return judgement_lock.held_here(); }

void note_own_thread(int id) { own_thread.store(id, std::memory_order_relaxed); }

void note_own_stack(const void* first, std::size_t bytes) {
  own_stack = {address_of(first), address_of(first) + bytes};
}

// Another thread may have held it.
void judging_after_fork_in_child() {
  if (judgement_lock.held_elsewhere()) {
    new (&judgement_lock) LongLock;
    set_judging_thread(nullptr);
  }
  judged_at_end = false;
  earlier = {};
  set_judgement({});
}

}  // namespace cistern
