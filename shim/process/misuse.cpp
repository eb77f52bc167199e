// See misuse.hpp.
#include "shim/process/misuse.hpp"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "pool/base/path.hpp"
#include "shim/process/log.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/resolve.hpp"
#include "stats/sink.hpp"

namespace cistern {
namespace {

constexpr unsigned kSymbolBudgetMs = 500;

// Places of use that were named already: a loop that goes on after the error is one place. When there is no room for
// more, the log's own limit on like lines is left.
bool is_new_place(const char* api, const LifeSites& sites) {
  constexpr std::size_t kPlaces = 64;
  static constinit std::atomic<std::uint64_t> places[kPlaces] = {};
  const std::uint64_t use = sites.used ? sites.used : reinterpret_cast<std::uintptr_t>(api);
  const std::uint64_t place = std::max<std::uint64_t>(use << 32 ^ use >> 32 ^ sites.freed, 1);  // 0: room for one
  for (std::atomic<std::uint64_t>& known : places) {
    std::uint64_t seen = known.load(std::memory_order_relaxed);
    if (seen == place) return false;
    if (!seen && known.compare_exchange_strong(seen, place)) return true;
    if (seen == place) return false;
  }
  return true;
}

void append_sites(Sink& line, SiteId created, SiteId released) {
  if (created) line.print(", created at {}", describe_site(created));
  if (released) line.print(", released at {}", describe_site(released));
}

void report_freed(const char* api, std::uintptr_t pointer, const char* kind, const LifeSites& sites) {
  Uncounted uncounted;
  StringSink line;
  line.print("{}({}): {} block already freed", api, reinterpret_cast<void*>(pointer), kind);
  if (sites.allocated) line.print("; allocated at {}", describe_site(sites.allocated));
  if (sites.freed) line.print(", freed at {}", describe_site(sites.freed));
  if (sites.used) line.print(", used at {}", describe_site(sites.used));
  line.print("; CUDA_ERROR_INVALID_VALUE returned");
  warn_line(line.text());
}

}  // namespace

void report_unknown_handle(const char* api, const void* handle) {
  Uncounted uncounted;
  StringSink line;
  line.print("{}({}): not a memory object; CL_INVALID_MEM_OBJECT returned", api, handle);
  warn_line(line.text());
}

void report_released_handle(const char* api, const void* handle, const char* kind, SiteId created, SiteId released) {
  Uncounted uncounted;
  StringSink line;
  line.print("{}({}): {} already released", api, handle, kind);
  append_sites(line, created, released);
  line.print("; CL_INVALID_MEM_OBJECT returned");
  warn_line(line.text());
}

void report_use_after_release(const void* handle, SiteId created, SiteId released) {
  if (!is_new_place("a command", {created, released, 0})) return;
  Uncounted uncounted;
  StringSink line;
  line.print("a command uses buffer {} after its last release", handle);
  append_sites(line, created, released);
  warn_line(line.text());
}

void report_double_free(const char* api, std::uintptr_t pointer, const char* kind, SiteId allocated, SiteId freed) {
  report_freed(api, pointer, kind, {allocated, freed, 0});
}

void report_use_of_freed(const char* api, std::uintptr_t pointer, const LifeSites& sites) {
  if (is_new_place(api, sites)) report_freed(api, pointer, "device", sites);
}

void report_use_of_released(const char* api, const void* handle, const LifeSites& sites) {
  if (!is_new_place(api, sites)) return;
  Uncounted uncounted;
  StringSink line;
  line.print("{}({}): buffer already released", api, handle);
  append_sites(line, sites.allocated, sites.freed);
  if (sites.used) line.print(", used at {}", describe_site(sites.used));
  line.print("; CL_INVALID_MEM_OBJECT returned");
  warn_line(line.text());
}

void report_unknown_pointer(const char* api, std::uintptr_t pointer) {
  Uncounted uncounted;
  StringSink line;
  line.print("{}({}): not the start of a live allocation; the driver returned CUDA_ERROR_INVALID_VALUE", api,
             reinterpret_cast<void*>(pointer));
  warn_line(line.text());
}

void report_wrong_free(const char* api, std::uintptr_t pointer, const char* kind, SiteId allocated) {
  Uncounted uncounted;
  StringSink line;
  line.print("{}({}): this is a live {} block", api, reinterpret_cast<void*>(pointer), kind);
  if (allocated) line.print(", allocated at {}", describe_site(allocated));
  line.print("; the driver returned CUDA_ERROR_INVALID_VALUE");
  warn_line(line.text());
}

bool read_word(const void* address, void** word) {
  // The kernel checks the address for us: a pipe takes the bytes, or write fails with EFAULT.
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) return false;
  const bool readable =
      ::write(ends[1], address, sizeof *word) == sizeof *word && ::read(ends[0], word, sizeof *word) == sizeof *word;
  close(ends[0]);
  close(ends[1]);
  return readable;
}

String describe_site(SiteId site) {
  if (!site) return {};
  Uncounted uncounted;
  const Vector<FrameFigures> frames = resolved_frames(site, kSymbolBudgetMs);
  if (frames.empty()) return {};
  return describe_frame(frames.front());
}

String describe_frame(const FrameFigures& frame) {
  StringSink text;
  if (!frame.function.empty() && frame.line) {
    text.print("{} ({}:{})", frame.function, frame.file, frame.line);
  } else {
    text.print("{}+0x{:x}", basename_of(frame.module), frame.offset);
  }
  return text.text();
}

}  // namespace cistern
