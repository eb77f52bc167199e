// The verdict, the screen and the hints of hand-made runs.
#include "stats/formats/summary.hpp"

#include <gtest/gtest.h>

#include "stats/formats/hints.hpp"

namespace cistern::formats {
namespace {

Frame frame(const char* function, bool python = false) {
  Frame one;
  one.function = function, one.file = python ? "train.py" : "a.cpp", one.line = 7, one.python = python;
  one.module = python ? "" : "/lib/a.so";
  return one;
}

struct Maker {
  struct Run run;
  Report& report() {
    if (run.reports.empty()) run.reports.emplace_back();
    return run.reports.back();
  }
  StackId stack(std::vector<Frame> frames) {
    Stack ids;
    for (Frame& one : frames) {
      ids.push_back(static_cast<FrameId>(run.frames.size()));
      run.frames.push_back(std::move(one));
    }
    run.stacks.push_back(ids);
    return static_cast<StackId>(run.stacks.size() - 1);
  }
  LiveRow& leak(const char* kind, const char* leak_class, Count blocks, Count bytes, StackId stack) {
    LiveRow row;
    row.kind = kind, row.leak_class = leak_class, row.object = "block", row.api = "cudaMalloc";
    row.blocks = blocks, row.bytes = bytes, row.frames = stack;
    report().leaks.push_back(row);
    return report().leaks.back();
  }
  void next_process() { run.reports.emplace_back(); }
};

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

TEST(Summary, TheVerdictHasTheWorstFirst) {
  Maker maker;
  maker.report().cistern.gpu_memory_used = true;
  EXPECT_EQ(verdict(maker.run), "nothing leaked on the GPU");
  maker.leak("device:0", "reachable", 1, 1 << 20, maker.stack({frame("keep")}));
  maker.leak("device:0", "lost", 2, 3 << 20, maker.stack({frame("lose")}));
  maker.leak("pinned", "held only by the driver", 1, 1 << 10, maker.stack({frame("pin")}));
  maker.leak("device:0", "lost", 9, 9 << 20, maker.stack({frame("known")})).suppressed = true;
  maker.leak("host", "lost", 7, 7 << 20, maker.stack({frame("host")}));
  EXPECT_EQ(verdict(maker.run), "3 blocks, 3.0 MiB lost at 2 sites; 1 block, 1.0 MiB reachable at 1 site");
  maker.report().host_classes = {{"lost", {7, 7 << 20}}, {"reachable", {1, 1}}};
  maker.report().growing.push_back({"device:0", "", 1e6, 1, 5 << 20, false, 0});
  maker.report().kinds.emplace_back("device:0", Kind{}).second.failed = 2;
  EXPECT_EQ(verdict(maker.run),
            "3 blocks, 3.0 MiB lost at 2 sites; 1 block, 1.0 MiB reachable at 1 site; GROWING by 5.0 MiB at 1 site; "
            "2 requests for memory failed; host memory: 7.0 MiB in 7 blocks lost");
}

TEST(Summary, EntriesThatShowTheSameFramesAreOne) {
  Maker maker;
  for (int process = 0; process < 3; ++process) {
    maker.next_process();
    for (int row = 0; row < 2; ++row) maker.leak("device:0", "lost", 1, 1 << 20, maker.stack({frame("lose")}));
  }
  const std::string text = summary(maker.run, {});
  EXPECT_TRUE(has(text, " 1  device:0  6.0 MiB in 6 blocks (block, cudaMalloc)  lost  in 3 processes\n")) << text;
  EXPECT_FALSE(has(text, " 2  ")) << text;
}

TEST(Summary, NativeFramesOfPythonAreOneLine) {
  Maker maker;
  maker.report().growing.push_back(
      {"opencl", "clCreateBuffer", 2 << 20, 0.5, 5 << 20, false,
       maker.stack({frame("native_one"), frame("native_two"), frame("train_step", true)})});
  const std::string text = summary(maker.run, {});
  EXPECT_TRUE(has(text,
                  "GROWING BY SITE\n    opencl  2.0 MiB/s since 0.50 s, by 5.0 MiB (clCreateBuffer)\n"
                  "     train_step    train.py:7\n     through a.so+0x0 and 1 native frame\n"))
      << text;
}

TEST(Summary, TextOfReportsCannotSteerATerminal) {
  Maker maker;
  maker.report().cistern.command = "app \x1b[2J";
  maker.leak("device:0", "lost", 1, 1, maker.stack({frame("evil\x1b]0;name\x07")}));
  maker.report().leaks[0].object = "\x1b[31m";
  maker.report().leaks[0].api = "\x1b[32m";
  maker.report().kinds.emplace_back("host\x1b[0m", Kind{});
  for (const std::string& text :
       {summary(maker.run, {}), group_table(groups(maker.run, GroupBy::site)), verdict(maker.run)})
    EXPECT_EQ(text.find('\x1b'), text.npos) << text;
}

TEST(Summary, WhereNothingLeakedItHasThePeaksCallSites) {
  Maker maker;
  Kind host;
  host.peak_bytes = 400, host.peak_at_s = 2;
  maker.report().kinds = {{"host", host}};
  maker.report().estimated = {"kinds.host.peak_bytes"};
  UseRow use;
  use.kind = "host", use.api = "malloc", use.peak_blocks = 1, use.peak_bytes = 300;
  use.frames = maker.stack({frame("grow")});
  maker.report().at_peak = {use};
  const std::string peak =
      "LARGEST AT THE PEAK OF host  about 400 B at 2.00 s\n 1  300 B in 1 block  malloc\n     grow";
  EXPECT_NE(summary(maker.run, {}).find(peak), std::string::npos) << summary(maker.run, {});
  maker.leak("device:0", "lost", 1, 1, 0);
  EXPECT_EQ(summary(maker.run, {}).find("LARGEST"), std::string::npos);
}

TEST(Hints, EachHasItsReason) {
  Maker maker;
  maker.report();
  EXPECT_TRUE(hints(maker.run).empty());
  maker.report().kinds.emplace_back("device:0", Kind{}).second.failed = 1;
  ASSERT_EQ(hints(maker.run).size(), 1u);
  EXPECT_TRUE(has(hints(maker.run)[0], "1 request for device:0 memory failed"));
  maker.report().transfers.push_back({});
  Transfer& copies = maker.report().transfers[0];
  copies.kind = "cuda", copies.pageable = true, copies.bytes = Count{1} << 30, copies.seconds = 2.5;
  EXPECT_TRUE(has(hints(maker.run).back(),
                  "1.0 GiB were copied from and to pageable memory, which blocked callers for "
                  "2.50 s: pinned memory (cudaMallocHost)"));
  copies.kind = "opencl";
  EXPECT_TRUE(has(hints(maker.run).back(), "a mapped buffer (CL_MEM_ALLOC_HOST_PTR)"));
  maker.leak("device:0", "lost", 1, 1, maker.stack({frame("lose")}));
  EXPECT_TRUE(has(hints(maker.run).back(), "such as leak:lose"));
  maker.report().judging.emplace().why_not = "the limit of time";
  EXPECT_TRUE(has(hints(maker.run)[1], "live memory was not judged (the limit of time)"));
  EXPECT_EQ(hints(maker.run).size(), kHintsMax);
}

}  // namespace
}  // namespace cistern::formats
