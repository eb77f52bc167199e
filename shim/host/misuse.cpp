// See misuse.hpp.
#include "shim/host/misuse.hpp"

#include <spdlog/fmt/fmt.h>
#include <stdlib.h>

#include <algorithm>
#include <utility>

#include "pool/base/lock.hpp"
#include "pool/heap/blocks.hpp"
#include "shim/host/c_library.hpp"
#include "shim/host/serving.hpp"
#include "shim/host/sites.hpp"
#include "shim/process/log.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/misuse.hpp"
#include "shim/process/process.hpp"
#include "shim/process/uncounted.hpp"

namespace cistern::host {
namespace {

// One line, cut where it is too long.
class Line {
 public:
  template <class... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    const auto end =
        fmt::format_to_n(text_ + bytes_, sizeof text_ - bytes_, format, std::forward<Arguments>(arguments)...);
    bytes_ += std::min(end.size, sizeof text_ - bytes_);
  }
  std::string_view text() const { return {text_, bytes_}; }

 private:
  char text_[512];
  std::size_t bytes_ = 0;
};

void add_what_it_is(Line& line, const void* pointer, const host_pool::Whereabouts& where, const char* source) {
  if (where.block && where.block != pointer) {
    line.add("invalid pointer: at offset {} in the {} block of {} bytes at {}",
             static_cast<const char*>(pointer) - static_cast<const char*>(where.block), where.free ? "free" : "live",
             where.block_bytes, where.block);
  } else if (where.block && where.never_given) {
    line.add("invalid pointer: this block of {} bytes was never allocated", where.block_bytes);
  } else if (where.block) {
    line.add("double free: this block of {} bytes is already free", where.block_bytes);
  } else if (where.in_pool) {
    line.add("invalid pointer: in memory of the pool, but in no block: already freed, or never allocated");
  } else {
    line.add("invalid pointer: not from {}{}", source, is_mapped(pointer) ? "" : ", and no memory is mapped there");
  }
}

// Under a lock of ours nothing is looked up: it may be the sites'.
void add_sites(Line& line, std::uint32_t allocated) {
  if (locks_held > 0) return;
  const std::uint32_t here = site_of_misuse();
  const Uncounted uncounted;
  if (allocated) line.add("; allocated at {}", describe_site(allocated).c_str());
  if (here) line.add("; this call at {}", describe_site(here).c_str());
}

// Another thread may be cut off by a fork between a free and the store that forgets the pointer. In the child the C
// library clears up behind that thread (its thread-local storage, before a new thread gets it) and frees once more.
// That happens whoever's malloc it is, and is nothing the program could mend.
bool is_cut_off_free(const host_pool::Whereabouts& where, const void* caller) {
  if (!where.in_pool || !forked_beside_threads()) return false;
  const link_map* const module = module_of(caller);
  return module && (is_c_library(*module) || lies_in_library(caller, "ld-linux"));
}

void say(const char* api, const void* pointer, const host_pool::Whereabouts& where, const char* source,
         const char* outcome) {
  Line line;
  line.add("{}({}): ", api, pointer);
  add_what_it_is(line, pointer, where, source);
  add_sites(line, where.site);
  line.add("; {}", outcome);
  warn_line(line.text());
}

}  // namespace

void report_misuse(const char* api, const void* pointer, const void* caller) {
  const host_pool::Whereabouts where = host_pool::whereabouts(pointer);
  if (is_cut_off_free(where, caller)) return;
  const bool ends = abort_on_misuse();
  say(api, pointer, where, "malloc", ends ? "aborting" : "ignored");
  if (ends) abort();
}

void say_misuse(const char* api, const void* pointer) {
  say(api, pointer, host_pool::whereabouts(pointer), "this copy of Cistern", "ignored");
}

}  // namespace cistern::host
