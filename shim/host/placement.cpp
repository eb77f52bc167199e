// See placement.hpp. The advice and the mapping run inside malloc, under the region's lock: they make system calls
// and nothing else. So numa_tonode_memory and its relatives are not used, which allocate, and print when they fail:
// libnuma says which nodes there are, and its mbind is told the same policies.
#include "shim/host/placement.hpp"

#include <dlfcn.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/mman.h>

#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string_view>

#include "pool/base/page_size.hpp"
#include "pool/base/system_call.hpp"
#include "pool/heap/blocks.hpp"
#include "pool/heap/region.hpp"
#include "shim/host/serving.hpp"
#include "shim/process/log.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"
#include "shim/process/system_filter.hpp"
#include "shim/process/uncounted.hpp"

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif

namespace cistern::host {
namespace {

constexpr unsigned kNodesMax = 1024;  // the kernel's own bound
constexpr unsigned kWordBits = 8 * sizeof(unsigned long);

using Bind = long (*)(void* memory, unsigned long bytes, int mode, const unsigned long* nodes, unsigned long bits,
                      unsigned flags);

// What the advice asks for. Written before the region knows the advice.
struct Policy {
  Bind bind;
  int mode;
  unsigned long nodes[kNodesMax / kWordBits];
};
constinit Policy policy = {};
constinit bool transparent = false;

constinit host_pool::System normal = {};  // the region's own system calls, before huge_bytes was set
constinit std::size_t huge_bytes = 0;
constinit std::atomic<bool> bind_refused{false}, transparent_refused{false}, huge_refused{false};

// The first time only. Neither translated nor formatted into memory of ours: that would allocate.
template <class... Values>
void say_once(std::atomic<bool>& said, const char* format, Values... values) {
  if (said.exchange(true)) return;
  char line[200];
  snprintf(line, sizeof line, format, values...);
  warn_later(line);
}

// --- Inside malloc
void advise(void* memory, std::size_t bytes) {
  if (policy.bind && policy.bind(memory, bytes, policy.mode, policy.nodes, kNodesMax + 1, 0) != 0)
    say_once(bind_refused, "CISTERN_NUMA: mbind: %s; the system chooses where memory lies", strerrordesc_np(errno));
  if (transparent && madvise(memory, bytes, MADV_HUGEPAGE) != 0)
    say_once(transparent_refused, "CISTERN_HUGE_PAGES: madvise: %s; normal pages are used", strerrordesc_np(errno));
}

void* map_huge_pages(void* at, std::size_t bytes, int flags) {
  const int size = __builtin_ctzll(huge_bytes) << MAP_HUGE_SHIFT;
  return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | size | flags, -1, 0);
}

void say_there_are_none() {
  say_once(huge_refused, "CISTERN_HUGE_PAGES: no free page of %s (%s); normal pages are used",
           huge_bytes >> 30 ? "1 GiB" : "2 MiB", strerrordesc_np(errno));
}

// The pages of the whole chunk are the process's with the mapping: it misses none later. But a forked child's copies
// are new ones, and the kernel ends a child that finds none (SIGBUS).
bool map_huge(void* at, std::size_t bytes) {
  if ((host_pool::address_of(at) | bytes) % huge_bytes != 0) return normal.map(at, bytes);
  void* const mapped = map_huge_pages(at, bytes, MAP_FIXED_NOREPLACE);
  if (mapped == at) return true;
  if (mapped != MAP_FAILED) {  // a kernel that does not know the flag
    munmap(mapped, bytes);
  } else if (errno != EEXIST) {
    say_there_are_none();
  }
  return normal.map(at, bytes);
}

// --- CISTERN_NUMA
struct Wish {
  int mode;
  std::optional<unsigned> node;
};

// As the option spells it: "off", "local", "interleave" or "node:" and a number.
Wish wish_of(std::string_view text) {
  constexpr std::string_view kNode = "node:";
  if (text == "local") return {MPOL_LOCAL, {}};
  if (text == "interleave") return {MPOL_INTERLEAVE, {}};
  if (!text.starts_with(kNode)) return {MPOL_DEFAULT, {}};
  unsigned node = 0;
  std::from_chars(text.data() + kNode.size(), text.data() + text.size(), node);
  return {MPOL_PREFERRED, node};  // not MPOL_BIND: a full node is no reason to fail
}

struct NodeMask {  // struct bitmask of numa.h
  unsigned long bits;
  const unsigned long* words;
};

template <class Function>
bool look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(real_dlsym()(library, name));
  return function != nullptr;
}

// Loaded for good: its mbind is called as long as the process lives.
void prepare_numa(const Wish& wish) {
  void* const library = real_dlopen()("libnuma.so.1", RTLD_LAZY | RTLD_LOCAL);
  int (*available)() = nullptr;
  NodeMask* (*allowed_nodes)() = nullptr;
  void (*free_mask)(NodeMask*) = nullptr;
  Bind bind = nullptr;
  if (!library || !look_up(library, "numa_available", available) ||
      !look_up(library, "numa_get_mems_allowed", allowed_nodes) || !look_up(library, "numa_bitmask_free", free_mask) ||
      !look_up(library, "mbind", bind)) {
    dlerror();  // ours, not the program's
    return warn_later("CISTERN_NUMA: libnuma.so.1 cannot be loaded; the system chooses where memory lies");
  }
  if (available() < 0)
    return warn_later("CISTERN_NUMA: the system has no NUMA support; the system chooses where memory lies");
  NodeMask* const allowed = allowed_nodes();
  bool any = wish.mode == MPOL_LOCAL;
  for (unsigned node = 0; node < allowed->bits && node < kNodesMax && wish.mode != MPOL_LOCAL; ++node) {
    const unsigned long bit = allowed->words[node / kWordBits] & (1UL << node % kWordBits);
    if (!bit || (wish.node && *wish.node != node)) continue;
    policy.nodes[node / kWordBits] |= bit;
    any = true;
  }
  free_mask(allowed);
  if (!any) {
    char line[120];
    snprintf(line, sizeof line,
             "CISTERN_NUMA: node %u is not available to this process; the system chooses where memory lies",
             wish.node.value_or(0));
    return warn_later(line);
  }
  policy.mode = wish.mode;
  policy.bind = bind;
}

// --- CISTERN_HUGE_PAGES
// Such memory is never given back: the pages would be anybody's, and missing when it is touched again.
void prepare_huge_pages(std::size_t bytes) {
  huge_bytes = bytes;
  void* const probe = map_huge_pages(nullptr, bytes, 0);
  if (probe == MAP_FAILED) return say_there_are_none();
  munmap(probe, bytes);
  normal = host_pool::region_system;
  host_pool::System huge = normal;
  huge.map = map_huge;
  huge.unit_bytes = bytes;
  huge.keeps_pages = true;
  host_pool::replace_system(huge);
}

// Blocks that were advised; many of one place forget each other, and are advised again.
constexpr std::size_t kAdvisedMax = 64;
constinit std::atomic<std::uintptr_t> advised[kAdvisedMax] = {};
constinit std::atomic<bool> copied_get_huge{false};

}  // namespace

void copied(const void* memory, std::size_t bytes) {
  if (!copied_get_huge.load(std::memory_order_relaxed) || system_calls_are_filtered()) return;
  const host_pool::Whereabouts where = host_pool::whereabouts(memory);
  if (!where.block || where.free || where.block_bytes < bytes) return;
  const std::uintptr_t start = host_pool::address_of(where.block);
  std::atomic<std::uintptr_t>& known = advised[(start >> 16) % kAdvisedMax];
  if (known.exchange(start + where.block_bytes, std::memory_order_relaxed) == start + where.block_bytes) return;
  const std::uintptr_t first = whole_pages(start);
  system_call(SYS_madvise, first, page_begin(start + where.block_bytes - first), MADV_HUGEPAGE);
}

int place_block(void* memory, std::size_t bytes, int node, bool huge) {
  const std::uintptr_t at = host_pool::address_of(memory);
  if (node >= static_cast<int>(kNodesMax)) return EINVAL;
  if (node != kAnyNode) {
    unsigned long nodes[kNodesMax / kWordBits] = {};
    nodes[static_cast<unsigned>(node) / kWordBits] = 1UL << static_cast<unsigned>(node) % kWordBits;
    const long bound = system_call(SYS_mbind, at, bytes, MPOL_PREFERRED, reinterpret_cast<std::uintptr_t>(nodes),
                                   kNodesMax + 1, MPOL_MF_MOVE);
    if (bound < 0) return static_cast<int>(-bound);
  }
  const long advised = huge ? system_call(SYS_madvise, at, bytes, MADV_HUGEPAGE) : 0;
  if (advised < 0 && node != kAnyNode) unplace_block(memory, bytes);
  return advised < 0 ? static_cast<int>(-advised) : 0;
}

void unplace_block(void* memory, std::size_t bytes) {
  const auto nodes = policy.bind ? reinterpret_cast<std::uintptr_t>(policy.nodes) : 0;
  system_call(SYS_mbind, host_pool::address_of(memory), bytes, policy.bind ? policy.mode : MPOL_DEFAULT, nodes,
              nodes ? kNodesMax + 1 : 0, 0);
}

void prepare_placement() {
  const Options& chosen = options();
  const Wish wish = wish_of(chosen.numa);
  const bool placed = wish.mode != MPOL_DEFAULT;
  if (serving() != Serving::pool || (!placed && chosen.huge_pages == "off")) return;
  Uncounted uncounted;
  if (placed) prepare_numa(wish);
  transparent = chosen.huge_pages == "thp";
  copied_get_huge = chosen.huge_pages == "copied";
  if (chosen.huge_pages == "2m") prepare_huge_pages(std::size_t{2} << 20);
  if (chosen.huge_pages == "1g") prepare_huge_pages(std::size_t{1} << 30);
  if (policy.bind || transparent) host_pool::advise_chunks(advise);
}

}  // namespace cistern::host
