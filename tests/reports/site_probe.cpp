// A library that has Cistern inside, as libcistern.so does: its own frames are no part of a site.
#include "tests/reports/site_probe.hpp"

namespace {

volatile int keep_frame = 0;

[[gnu::noinline]] unsigned hook() {
  const cistern::SiteId site = cistern::capture_site("clCreateBuffer");
  keep_frame = keep_frame + 1;
  return site;
}

}  // namespace

unsigned probe_capture() {
  const unsigned site = hook();
  keep_frame = keep_frame + 1;
  return site;
}

cistern::Vector<cistern::FrameFigures> probe_frames(unsigned site) { return cistern::site_frames(site); }
cistern::SiteOwner probe_owner(unsigned site) { return cistern::site_owner(site); }
void probe_symbolise(cistern::Vector<cistern::LeakFigures>& leaks) { cistern::symbolise(leaks, 60000); }
