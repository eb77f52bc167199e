// What site_modules_test asks of a library that has Cistern inside.
#pragma once
#include "stats/sites.hpp"
#include "stats/symbols.hpp"

#define PROBE [[gnu::visibility("default"), gnu::noinline]]

PROBE unsigned probe_capture();
PROBE cistern::Vector<cistern::FrameFigures> probe_frames(unsigned site);
PROBE cistern::SiteOwner probe_owner(unsigned site);
PROBE void probe_symbolise(cistern::Vector<cistern::LeakFigures>& leaks);
