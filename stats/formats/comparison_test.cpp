// Call sites of two runs find each other, and no byte is lost on the way into a page.
#include "stats/formats/comparison.hpp"

#include <gtest/gtest.h>

#include "stats/formats/hand_made.hpp"

namespace cistern::formats {
namespace {

const ComparedSite& site_with(const Comparison& all, Count before, Count after) {
  for (const ComparedSite& site : all.sites)
    if (site.before.bytes == before && site.after.bytes == after) return site;
  ADD_FAILURE() << "no site has " << before << " before and " << after << " after";
  return all.sites.front();
}

TEST(Comparison, ASiteIsTheSameInTheNextBuildAndShowsTheLaterStack) {
  HandMade before, after;
  before.leak("host", "reachable", 1, 10, before.stack({HandMade::frame("make", "/old/app", 16)}));
  before.leak("host", "lost", 1, 5, before.stack({HandMade::frame("make", "/old/app", 24)}));
  after.stack({HandMade::frame("unused")});
  after.leak("host", "lost", 2, 40, after.stack({HandMade::frame("make", "/new/app", 99)}));
  after.leak("device:0", "lost", 1, 7, after.stack({HandMade::frame("make", "/new/app", 99)}));
  const Comparison all = compared(before.run, "a", after.run, "b");
  ASSERT_EQ(all.sites.size(), 2u);
  EXPECT_EQ(all.sites.front().kind, "device:0");
  const ComparedSite& site = site_with(all, 15, 40);
  EXPECT_EQ(site.before.blocks, 2u);
  EXPECT_EQ(site.before.lost_bytes, 5u);
  EXPECT_EQ(site.after.lost_blocks, 2u);
  EXPECT_EQ(all.frames[all.stacks[site.frames].front()].module, "/new/app");
}

TEST(Comparison, ASiteOfOneSideHasItsOwnStack) {
  HandMade before, after;
  before.leak("host", "lost", 1, 10, before.stack({HandMade::frame("gone")}));
  after.leak("host", "lost", 1, 20, after.stack({HandMade::frame("come"), HandMade::frame("main")}));
  after.leak("host", "lost", 1, 1, 0);
  const Comparison all = compared(before.run, "", after.run, "");
  ASSERT_EQ(all.sites.size(), 3u);
  EXPECT_EQ(all.frames[all.stacks[site_with(all, 10, 0).frames].front()].function, "gone");
  EXPECT_EQ(all.frames[all.stacks[site_with(all, 0, 20).frames].front()].function, "come");
  EXPECT_TRUE(all.stacks[site_with(all, 0, 1).frames].empty());
}

TEST(Comparison, GrowthIsNotMadeUpForBySitesThatShrank) {
  HandMade before, after;
  for (const auto& [function, was, is] :
       {std::tuple("one", 100, 300), {"two", 500, 400}, {"three", 7, 7}, {"four", 0, 50}}) {
    const auto size = [](int bytes) { return static_cast<Count>(bytes); };
    before.leak("device:0", "lost", 1, size(was), before.stack({HandMade::frame(function)}));
    after.leak("device:0", "lost", 1, size(is), after.stack({HandMade::frame(function)}));
  }
  before.leak("device:0", "lost", 1, 1000, before.stack({HandMade::frame("hidden")})).suppressed = true;
  const Comparison all = compared(before.run, "", after.run, "");
  const Growth& lost = all.growth.gpu_lost;
  EXPECT_EQ(lost.grown_sites, 2u);
  EXPECT_EQ(lost.grown_bytes, 250u);
  EXPECT_EQ(lost.shrunk_sites, 1u);
  EXPECT_EQ(lost.shrunk_bytes, 100u);
  EXPECT_EQ(lost.before_bytes, 607u);
  EXPECT_EQ(lost.after_bytes, 757u);
  EXPECT_EQ(all.growth.host_live.after_bytes, 0u);
  std::vector<Count> in_order;
  for (const ComparedSite& site : all.sites) in_order.push_back(site.after.bytes);
  EXPECT_EQ(in_order, (std::vector<Count>{300, 400, 50, 7}));
}

TEST(Comparison, KindsAndRunsAreSummedUp) {
  HandMade before, after;
  Kind kind;
  kind.live_bytes = 10, kind.live_blocks = 1, kind.peak_bytes = 90;
  before.run.reports[0].kinds = {{"pinned", kind}, {"host", kind}};
  for (const Count pid : {1, 2}) {
    Report& report = pid == 1 ? after.run.reports[0] : after.add_process(pid);
    report.kinds = {{"host", kind}};
    report.kinds[0].second.peak_bytes += pid;
    report.sites.mode = "gpu:all", report.estimated = {"leaks.host"};
  }
  after.at_peak("host", 3, 30, 0);
  const Comparison all = compared(before.run, "old", after.run, "new");
  ASSERT_EQ(all.kinds.size(), 2u);
  EXPECT_EQ(all.kinds[0].kind, "host");
  EXPECT_EQ(all.kinds[0].before.live_bytes, 10u);
  EXPECT_EQ(all.kinds[0].after.live_bytes, 20u);
  EXPECT_EQ(all.kinds[0].after.peak_bytes, 92u);
  EXPECT_EQ(all.kinds[1].after.live_bytes, 0u);
  EXPECT_EQ(all.after.processes, 2u);
  EXPECT_EQ(all.after.name, "new");
  EXPECT_EQ(all.after.site_modes, std::vector<std::string>{"gpu:all"});
  EXPECT_EQ(all.after.estimated, std::vector<std::string>{"leaks.host"});
  EXPECT_EQ(all.sites.front().after.peak_bytes, 30u);
  EXPECT_EQ(all.sites.front().before.peak_bytes, 0u);
}

}  // namespace
}  // namespace cistern::formats
