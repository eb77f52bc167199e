// The contents of every kind's out-of-memory line: the other holders of memory, and the lines of the program that hold
// most.
#pragma once
#include "stats/sink.hpp"
#include "stats/sites.hpp"

namespace cistern {

struct Kind;

// Live blocks of one site.
struct Holding {
  SiteId site;
  std::uint64_t bytes = 0, blocks = 0;
};

// Live blocks by their site; those without one are left out.
class Holdings {
 public:
  void add(SiteId site, std::uint64_t bytes) {
    if (!site) return;
    Holding& holding = by_site_[site];
    holding.site = site;
    holding.bytes += bytes;
    ++holding.blocks;
  }
  // "; 32.0 MiB in 1 block at load (src/w.cpp:42); ...", the three largest. Where all came through one function, a
  // wrapper, its callers are named.
  void print(Sink& line) const;

 private:
  Map<SiteId, Holding> by_site_;
};

// "; host: 1.2 GiB; opencl: 3.0 MiB": kinds other than `own` that have any.
void print_other_kinds(Sink& line, const Kind& own);

// "; this call at load (src/w.cpp:42)"; nothing without a site.
void print_this_call(Sink& line, SiteId site);

}  // namespace cistern
