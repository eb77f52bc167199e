// Runs for the tests of writers, made by hand.
#pragma once
#include <algorithm>

#include "stats/formats/model.hpp"

namespace cistern::formats {

inline const Run kNoReports;

class HandMade {
 public:
  HandMade() { add_process(1); }

  Report& add_process(Count pid) {
    Report& report = run.reports.emplace_back();
    report.cistern = {.version = "0.1.0",
                      .command = "/usr/bin/app --fast",
                      .moment = "exit",
                      .schema = 4,
                      .pid = pid,
                      .gpu_memory_used = true,
                      .rank = {},
                      .ranks = {},
                      .exit_code = {},
                      .start_unix_s = {},
                      .wall_s = 2,
                      .gate = {}};
    return report;
  }

  static Frame frame(const char* function, const char* module = "/usr/bin/app", Count offset = 16) {
    Frame frame;
    frame.function = function, frame.module = module, frame.offset = offset;
    frame.build_id = "ab01";
    return frame;
  }

  StackId stack(const std::vector<Frame>& innermost_first) {
    Stack stack;
    for (const Frame& frame : innermost_first) {
      const auto known = std::ranges::find(run.frames, frame);
      stack.push_back(static_cast<FrameId>(known - run.frames.begin()));
      if (known == run.frames.end()) run.frames.push_back(frame);
    }
    run.stacks.push_back(stack);
    return static_cast<StackId>(run.stacks.size() - 1);
  }

  LiveRow& leak(const char* kind, const char* leak_class, Count blocks, Count bytes, StackId stack) {
    LiveRow& row = run.reports.back().leaks.emplace_back();
    row.kind = kind, row.leak_class = leak_class, row.blocks = blocks, row.bytes = bytes, row.frames = stack;
    row.first_s = 0.5, row.last_s = 1.5;
    return row;
  }
  UseRow& at_peak(const char* kind, Count blocks, Count bytes, StackId stack) {
    UseRow& row = run.reports.back().at_peak.emplace_back();
    row.kind = kind, row.peak_blocks = blocks, row.peak_bytes = bytes, row.frames = stack;
    return row;
  }

  Run run;
};

}  // namespace cistern::formats
