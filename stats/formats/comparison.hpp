// Two runs side by side: each kind of memory and each call site with its figures before and after. A call site is the
// same in both as groups.hpp has it.
#pragma once
#include <string>
#include <vector>

#include "stats/formats/model.hpp"

namespace cistern::formats {

// --- Call sites
struct SiteFigures {
  Count blocks = 0, bytes = 0, lost_blocks = 0, lost_bytes = 0, peak_blocks = 0, peak_bytes = 0;
};
template <class Visitor>
void visit_fields(Visitor& visit, SiteFigures& of) {
  visit("blocks", of.blocks), visit("bytes", of.bytes), visit("lost_blocks", of.lost_blocks);
  visit("lost_bytes", of.lost_bytes), visit("peak_blocks", of.peak_blocks), visit("peak_bytes", of.peak_bytes);
}

struct ComparedSite {
  std::string kind, api;
  StackId frames = 0;  // those of the later run, if the site is in it
  SiteFigures before, after;
};
template <class Visitor>
void visit_fields(Visitor& visit, ComparedSite& of) {
  visit("kind", of.kind), visit("api", of.api), visit.stack("frames", of.frames);
  visit("before", of.before), visit("after", of.after);
}

// Site by site: growth here is not made up for by what shrank there.
struct Growth {
  Count grown_sites = 0, grown_bytes = 0, shrunk_sites = 0, shrunk_bytes = 0, before_bytes = 0, after_bytes = 0;
};
template <class Visitor>
void visit_fields(Visitor& visit, Growth& of) {
  visit("grown_sites", of.grown_sites), visit("grown_bytes", of.grown_bytes), visit("shrunk_sites", of.shrunk_sites);
  visit("shrunk_bytes", of.shrunk_bytes), visit("before_bytes", of.before_bytes), visit("after_bytes", of.after_bytes);
}
struct Growths {
  Growth gpu_live, gpu_lost, host_live, host_lost;
};
template <class Visitor>
void visit_fields(Visitor& visit, Growths& of) {
  visit("gpu_live", of.gpu_live), visit("gpu_lost", of.gpu_lost);
  visit("host_live", of.host_live), visit("host_lost", of.host_lost);
}

// --- Kinds of memory
struct KindFigures {
  Count live_blocks = 0, live_bytes = 0;
  Count peak_bytes = 0;  // the largest of a process: peaks have no sum
};
template <class Visitor>
void visit_fields(Visitor& visit, KindFigures& of) {
  visit("live_blocks", of.live_blocks), visit("live_bytes", of.live_bytes), visit("peak_bytes", of.peak_bytes);
}

struct ComparedKind {
  std::string kind;
  KindFigures before, after;
};
template <class Visitor>
void visit_fields(Visitor& visit, ComparedKind& of) {
  visit("kind", of.kind), visit("before", of.before), visit("after", of.after);
}

// --- The runs
struct Side {
  std::string name;     // as the user called it
  std::string command;  // the first process has this one
  Count processes = 0;
  Seconds wall_s = 0;  // the longest of its processes
  bool gpu_memory_used = false;
  std::vector<std::string> site_modes, estimated;  // each once
  std::vector<std::string> missing;                // sentences about what its recordings do not have
};
template <class Visitor>
void visit_fields(Visitor& visit, Side& of) {
  visit("name", of.name), visit("command", of.command), visit("processes", of.processes), visit("wall_s", of.wall_s);
  visit("gpu_memory_used", of.gpu_memory_used), visit("site_modes", of.site_modes), visit("estimated", of.estimated);
  visit("missing", of.missing);
}

struct Comparison {
  Side before, after;
  std::vector<ComparedKind> kinds;
  std::vector<ComparedSite> sites;  // memory of the GPU before the host's, then what changed most
  Growths growth;
  std::vector<Frame> frames;
  std::vector<Stack> stacks;
};

// Suppressed rows are left out.
Comparison compared(const Run& before, const std::string& name_before, const Run& after, const std::string& name_after);

}  // namespace cistern::formats
