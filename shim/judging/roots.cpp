// See roots.hpp.
#include "shim/judging/roots.hpp"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include <cstring>
#include <string_view>

#include "pool/base/page_size.hpp"
#include "pool/base/path.hpp"
#include "pool/base/system_call.hpp"
#include "shim/judged_copy/alternate_stacks.hpp"
#include "shim/judged_copy/kernel_words.hpp"
#include "shim/judged_copy/live_stack.hpp"
#include "shim/judging/residency.hpp"
#include "stats/shared_names.hpp"

namespace cistern::judging {

using leaks::Residency;
using leaks::Root;
using leaks::Target;

namespace {

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

}  // namespace

Roots::Roots(const Plan& plan) : plan_(plan), thread_stacks_(plan) {
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
    if (const AddressRange dead = thread_stacks_.dead_part_of(thread); dead.first < dead.end) ours_.push(dead);
}

void Roots::read() {
  std::sort(ours_.begin(), ours_.end(), [](const AddressRange& a, const AddressRange& b) { return a.first < b.first; });
  read_mappings();
  restore_what_is_missing();
  note_threads();
  note_words_of_kernel();
  for (const Target& target : plan_.targets)
    if (target.is_readable) make_readable(target.first, target.first + target.bytes);
}

bool Roots::is_short() const {
  return roots_.is_short() || constants_.is_short() || code_.is_short() || ours_.is_short() || mapped_.is_short() ||
         of_driver_.is_short() || words_.is_short() || stacks_.is_short();
}

bool Roots::is_of_driver(std::uintptr_t address) const {
  const auto all = of_driver_.all();
  return std::any_of(all.begin(), all.end(), [&](const AddressRange& one) { return one.holds(address); });
}

void Roots::read_mappings() {
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

void Roots::note_between_guards(Mapping mapping) {
  const std::uintptr_t end = mapping.end;
  AddressRange guard{end, end};
  for (; mapping.first < end; mapping.first = guard.end, is_after_guard_ = true) {
    if (mapping.path.empty() && !mapping.is_shared && mapping.is_readable) guard = next_guard(mapping.first, end);
    mapping.end = guard.first;
    if (mapping.first < mapping.end) note(mapping, false);
  }
}

std::uintptr_t Roots::end_of_module(const Mapping& mapping) {
  const auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(mapping.first);
  if (!mapping.is_readable || mapping.end - mapping.first < kLeastPageBytes || memcmp(&header, ELFMAG, SELFMAG) != 0 ||
      header.e_phoff + header.e_phnum * sizeof(ElfW(Phdr)) > kLeastPageBytes)
    return 0;
  const auto* const parts = reinterpret_cast<const ElfW(Phdr)*>(mapping.first + header.e_phoff);
  std::uintptr_t end = 0;
  for (int i = 0; i < header.e_phnum; ++i)
    if (parts[i].p_type == PT_LOAD) end = std::max<std::uintptr_t>(end, parts[i].p_vaddr + parts[i].p_memsz);
  return whole_pages(mapping.first + end);
}

void Roots::note(const Mapping& mapping, bool of_driver) {
  const bool is_file = mapping.path.starts_with('/');
  if (of_driver) of_driver_.push({mapping.first, mapping.end});
  if (mapping.is_executable) code_.push({mapping.first, mapping.end, of_driver, is_runtime_file(mapping.path)});
  if (is_file && mapping.is_readable && !mapping.is_writable) constants_.push({mapping.first, mapping.end});
  const bool is_special = mapping.path.starts_with("[v");  // [vvar], [vdso], [vsyscall]
  if (is_special || is_device(mapping.path) || (is_file && !mapping.is_writable)) return;
  if (!mapping.is_readable && !make_what_is_there_readable(mapping)) return;
  const Residency residency = mapping.is_shared ? Residency::of_file : Residency::of_pages;
  AddressRange dead{mapping.first, mapping.first};
  if (mapping.path == "[stack]") dead.end = thread_stacks_.begin_of_use_of_first_thread({mapping.first, mapping.end});
  if (mapping.path.empty() && !mapping.is_shared && is_after_guard_) {
    const Descriptor descriptor = thread_stacks_.descriptor_in(mapping);
    dead = thread_stacks_.dead_part_of(mapping, descriptor);
    add_what_ended_left(descriptor, of_driver);
  }
  add(mapping.first, dead.first, of_driver, residency);
  add(dead.end, mapping.end, of_driver, residency);
}

bool Roots::make_what_is_there_readable(const Mapping& mapping) {
  constexpr std::uintptr_t kLookedAt = std::uintptr_t{1} << 30;
  if (mapping.is_shared || !mapping.path.empty()) return false;
  const Touched touched = any_page_touched(mapping.first, mapping.end);
  if (touched == Touched::no || (touched == Touched::unknown && mapping.end - mapping.first > kLookedAt)) return false;
  return system_call(SYS_mprotect, mapping.first, mapping.end - mapping.first, PROT_READ) == 0;
}

void Roots::add_what_ended_left(const Descriptor& descriptor, bool of_driver) {
  constexpr std::uintptr_t kHead = 704, kReturned = 1568, kReturnedEnd = 1592;
  if (!descriptor.at || thread_stacks_.is_of_thread(descriptor)) return;
  add(descriptor.at, descriptor.at + kHead, of_driver, Residency::of_pages);
  add(descriptor.at + kReturned, descriptor.at + kReturnedEnd, of_driver, Residency::of_pages);
}

void Roots::add(std::uintptr_t first, std::uintptr_t end, bool of_driver, Residency residency) {
  for (const AddressRange& own : ours_.all()) {
    if (own.end <= first) continue;
    if (own.first >= end) break;
    if (own.first > first) roots_.push({first, own.first, of_driver, residency});
    first = std::max(first, own.end);
  }
  if (first < end) roots_.push({first, end, of_driver, residency});
}

void Roots::restore_what_is_missing() {
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

void Roots::fill(std::uintptr_t first, std::uintptr_t end) {
  for (std::uintptr_t there; next_resident(first, end, Residency::of_pages, there, first);) {
  }
}

bool Roots::map_here(std::uintptr_t first, std::uintptr_t end) {
  return system_call(SYS_mmap, first, end - first, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
                     static_cast<std::uintptr_t>(-1)) == static_cast<long>(first);
}

void Roots::make_readable(std::uintptr_t first, std::uintptr_t end) {
  for_each_hole(page_begin(first), whole_pages(end), [](std::uintptr_t hole, std::uintptr_t hole_end) {
    if (map_here(hole, hole_end)) fill(hole, hole_end);
  });
}

bool Roots::runs_driver(const OtherThread& thread) {
  constexpr std::uintptr_t kLookedAt = std::uintptr_t{256} * 1024;
  const auto root = std::find_if(roots_.begin(), roots_.end(), [&](const Root& one) {
    return AddressRange{one.first, one.end}.holds(thread.stack);
  });
  if (!thread.stack || root == roots_.end()) return false;
  const bool has_descriptor = thread.is_complete && AddressRange{root->first, root->end}.holds(thread.thread_pointer);
  const std::uintptr_t upper = (has_descriptor ? thread.thread_pointer : root->end) & ~std::uintptr_t{7};
  for (std::uintptr_t at = upper - 8; at >= thread.stack && upper - at < kLookedAt; at -= 8) {
    const std::uintptr_t word = *reinterpret_cast<const std::uintptr_t*>(at);
    const CodeRange* const code = code_at(word);
    if (!code || code->of_runtime || word - code->first < kLongestCall || !is_behind_call(word)) continue;
    if (code->of_driver)
      give_to_driver(*root,
                     has_descriptor ? thread_stacks_.descriptor_at(thread.thread_pointer).stack : AddressRange{});
    return code->of_driver;
  }
  return false;
}

void Roots::give_to_driver(Root& root, const AddressRange& stack) {
  const bool is_known = stack.first < stack.end;
  if (is_known && root.first < stack.first) roots_.push({root.first, stack.first, false, root.residency});
  if (is_known && stack.end < root.end) roots_.push({stack.end, root.end, false, root.residency});
  if (is_known) root = {std::max(root.first, stack.first), std::min(root.end, stack.end), true, root.residency};
  root.of_driver = true;
}

void Roots::note_threads() {
  for (OtherThread& thread : plan_.threads->all()) {
    if (!thread.id) continue;
    const bool of_driver = runs_driver(thread);
    if (!thread.is_complete && !of_driver) ++unseen_threads_;
    if (thread.word_count)
      roots_.push(
          {address_of(thread.words), address_of(thread.words + thread.word_count), of_driver, Residency::of_judge});
    const AddressRange dead = thread_stacks_.dead_part_of(thread), alternate = Stacks::alternate_stack_of(thread);
    const bool is_alternate = alternate.first < alternate.end;
    const std::uintptr_t begin = note_stack_in_heap(
        thread.stack,
        is_alternate ? AddressRange{alternate.first, Stacks::in_use_from(thread.stack, kBelowStackPointer)} : dead);
    if (thread.is_complete && begin_of_block(thread.thread_pointer) != begin)
      note_stack_in_heap(thread.thread_pointer, dead);
  }
  unseen_threads_ += plan_.threads->left_out();
}

std::uintptr_t Roots::begin_of_block(std::uintptr_t inside) const {
  host_pool::PictureBlock block;
  return inside && plan_.findings->heap.find(inside, block) && block.live ? block.first : 0;
}

std::uintptr_t Roots::note_stack_in_heap(std::uintptr_t inside, const AddressRange& dead) {
  host_pool::PictureBlock block;
  if (!inside || !plan_.findings->heap.find(inside, block) || !block.live) return 0;
  const std::uintptr_t end = block.first + block.bytes;
  const bool has_dead = dead.first < dead.end && dead.first >= block.first && dead.end <= end;
  stacks_.push(block.first);
  if (has_dead) roots_.push({block.first, dead.first, false, Residency::of_pages});
  roots_.push({has_dead ? dead.end : block.first, end, false, Residency::of_pages});
  return block.first;
}

void Roots::note_words_of_kernel() {
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

bool Roots::may_live(std::uintptr_t thread_pointer) const {
  const auto all = plan_.threads->all();
  return thread_pointer == address_of(__builtin_thread_pointer()) || plan_.threads->left_out() ||
         std::any_of(all.begin(), all.end(), [=](const OtherThread& thread) {
           return thread.id && (!thread.is_complete || thread.thread_pointer == thread_pointer);
         });
}

const Roots::CodeRange* Roots::code_at(std::uintptr_t address) const {
  const auto all = code_.all();
  const auto behind = std::upper_bound(all.begin(), all.end(), address,
                                       [](std::uintptr_t wanted, const CodeRange& one) { return wanted < one.first; });
  return behind != all.begin() && address < std::prev(behind)->end ? &*std::prev(behind) : nullptr;
}

}  // namespace cistern::judging
