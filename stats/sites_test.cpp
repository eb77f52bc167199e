// Sites: one per call stack, whichever thread captures it, and what is known about a site later.
// The functions that make stacks lie outside Cistern's namespace, whose frames reports leave out.
#include "stats/sites.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "pool/base/path.hpp"
#include "stats/symbols.hpp"
#include "stats/unwind/modules.hpp"
#include "stats/unwind/unwinder.hpp"

namespace sites_test {

thread_local volatile int keep_frame = 0;

[[gnu::noinline]] cistern::SiteId capture_here() {
  const cistern::SiteId site = cistern::capture_site("clCreateBuffer");
  keep_frame = keep_frame + 1;  // no tail call: the frame must be there
  return site;
}

[[gnu::noinline]] cistern::SiteId capture_there() {
  const cistern::SiteId site = cistern::capture_site("clCreateBuffer");
  keep_frame = keep_frame + 2;  // or the compiler makes it one with capture_here
  return site;
}

[[gnu::noinline]] cistern::SiteId capture_deep(int depth) {
  const cistern::SiteId site = depth ? capture_deep(depth - 1) : capture_here();
  keep_frame = keep_frame + 1;
  return site;
}

// As many stacks as `turns` has values of `bits` bits.
[[gnu::noinline]] cistern::SiteId capture_on_a_way(unsigned turns, unsigned bits) {
  cistern::SiteId site;
  if (!bits) {
    site = cistern::capture_site("malloc", cistern::Calls::frequent);
  } else if (turns & 1) {
    site = capture_on_a_way(turns >> 1, bits - 1);
    keep_frame = keep_frame + 2;
  } else {
    site = capture_on_a_way(turns >> 1, bits - 1);
  }
  keep_frame = keep_frame + 1;
  return site;
}

}  // namespace sites_test

namespace cistern {
namespace {

class Sites : public testing::Test {};

std::string program_path() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return std::string(path, length > 0 ? static_cast<std::size_t>(length) : 0);
}

// Two captures in one place are one site; a name, a place or a depth apart they are not.
TEST_F(Sites, AreOnePerStack) {
  volatile int rounds = 10;  // unrolled, a loop would call from several places
  std::set<SiteId> sites;
  for (int i = 0; i < rounds; ++i) sites.insert(sites_test::capture_here());
  EXPECT_EQ(sites.size(), 1u);
  EXPECT_EQ(sites.count(0), 0u);
  sites.insert(sites_test::capture_there());
  for (int i = 0; i < rounds; ++i) sites.insert(sites_test::capture_deep(i % 2));
  EXPECT_EQ(sites.size(), 4u);
}

TEST_F(Sites, AreOnePerApi) {
  volatile int rounds = 2;
  SiteId sites[2];
  for (int i = 0; i < rounds; ++i) sites[i] = capture_site(i ? "clSVMAlloc" : "clCreateBuffer");
  EXPECT_NE(sites[0], sites[1]);
}

TEST_F(Sites, KnowTheirFrames) {
  const Vector<FrameFigures> frames = site_frames(sites_test::capture_deep(3));
  ASSERT_GE(frames.size(), 6u);
  EXPECT_LE(frames.size(), 32u);
  const std::string program = program_path();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(frames[i].module, String(program)) << i;
    EXPECT_NE(frames[i].address, 0u);
    EXPECT_LT(frames[i].offset, std::uint64_t{1} << 32);
  }
  // The recursion returns to one address; the innermost call was made elsewhere.
  EXPECT_EQ(frames[2].address, frames[3].address);
  EXPECT_NE(frames[1].address, frames[2].address);
  EXPECT_TRUE(site_frames(0).empty());
}

TEST_F(Sites, BeginWithTheFunctionThatCaptured) {
  Vector<LeakFigures> leaks(1);
  leaks[0].frames = site_frames(sites_test::capture_deep(1));
  symbolise(leaks, 60000);
  ASSERT_GE(leaks[0].frames.size(), 3u);
  EXPECT_EQ(leaks[0].frames[0].function, "sites_test::capture_here");
  EXPECT_EQ(leaks[0].frames[1].function, "sites_test::capture_deep");
}

TEST_F(Sites, CutDeepStacksAtTheOuterEnd) {
  const Vector<FrameFigures> frames = site_frames(sites_test::capture_deep(100));
  EXPECT_EQ(frames.size(), 32u);
  EXPECT_EQ(frames[5].address, frames[31].address);
}

// With more stacks than are kept whole, inner parts of frequent calls' have one site, and the others' stay whole.
TEST_F(Sites, OfFrequentCallsLeaveRoomForOthers) {
  constexpr unsigned kBits = 18;
  const std::uint64_t known = site_statistics().sites;
  SiteId last = 0;
  for (unsigned turns = 0; turns < 1u << kBits; ++turns)
    ASSERT_NE(last = sites_test::capture_on_a_way(turns, kBits), 0);
  EXPECT_LT(site_statistics().sites - known, 3u << 15);
  EXPECT_EQ(site_statistics().dropped, 0u);
  EXPECT_LT(site_frames(last).size(), 10u);
  EXPECT_EQ(sites_test::capture_on_a_way((1u << kBits) - 1, kBits), last);
  EXPECT_EQ(site_frames(sites_test::capture_deep(27)).size(), 32u);
}

TEST_F(Sites, BelongToTheProgramThatCalled) {
  const SiteOwner owner = site_owner(sites_test::capture_here());
  const std::string program = program_path();
  EXPECT_EQ(owner.name, String(program.substr(program.rfind('/') + 1)));
  EXPECT_TRUE(owner.is_program);
  EXPECT_TRUE(site_owner(0).name.empty());
  EXPECT_FALSE(site_owner(0).is_program);
}

TEST_F(Sites, KeepErrno) {
  errno = 4711;
  sites_test::capture_deep(7);
  EXPECT_EQ(errno, 4711);
}

TEST_F(Sites, AreTheSameForAllThreads) {
  constexpr int kThreads = 8, kDepths = 25, kRounds = 40;
  std::vector<std::vector<SiteId>> seen(kThreads);
  {
    std::vector<std::jthread> threads;
    for (auto& sites : seen)
      threads.emplace_back([&sites] {
        for (int round = 0; round < kRounds; ++round)
          for (int depth = 0; depth < kDepths; ++depth) {
            const SiteId site = sites_test::capture_deep(depth);
            if (round == 0) sites.push_back(site);
            EXPECT_EQ(sites[static_cast<std::size_t>(depth)], site);
          }
      });
  }
  for (int thread = 1; thread < kThreads; ++thread) EXPECT_EQ(seen[0], seen[static_cast<std::size_t>(thread)]);
  EXPECT_EQ(std::set<SiteId>(seen[0].begin(), seen[0].end()).size(), static_cast<std::size_t>(kDepths));
}

TEST_F(Sites, AreCountedAndTimed) {
  const std::uint64_t before = site_statistics().sites;
  volatile int rounds = 1000;
  for (int i = 0; i < rounds; ++i) sites_test::capture_deep(19);
  const SiteStatistics statistics = site_statistics();
  EXPECT_EQ(statistics.sites, before + 1);
  EXPECT_EQ(statistics.dropped, 0u);
  ASSERT_TRUE(statistics.capture_mean_ns.has_value());
  EXPECT_GT(*statistics.capture_mean_ns, 0);
}

TEST_F(Sites, WorkInAForkedChild) {
  sites_before_fork();
  const pid_t child = fork();
  sites_after_fork();
  if (child == 0) {
    const SiteId site = sites_test::capture_deep(9);
    _exit(site && site_frames(site).size() > 9 && sites_test::capture_deep(10) == site + 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Modules, KnowWhatTheyAre) {
  const Module* program;
  ASSERT_TRUE(module_at(reinterpret_cast<std::uintptr_t>(&sites_test::capture_here), program));
  ASSERT_NE(program, nullptr);
  EXPECT_TRUE(program->is_program);
  EXPECT_TRUE(program->is_own);  // the library is linked in
  EXPECT_EQ(program->path, String(program_path()));
  const Module* libc;
  ASSERT_TRUE(module_at(reinterpret_cast<std::uintptr_t>(&::getppid), libc));
  ASSERT_NE(libc, nullptr);
  EXPECT_FALSE(libc->is_program);
  EXPECT_FALSE(libc->is_own);
  EXPECT_EQ(basename_of(libc->path), "libc.so.6");
  EXPECT_GE(libc->build_id.size(), 16u);
  EXPECT_TRUE(is_loaded(*libc));
  const Module* none;
  EXPECT_TRUE(module_at(16, none));
  EXPECT_EQ(none, nullptr);
}

// A library without a build id is told by its file, which is not looked at under a filter of system calls.
TEST(Modules, AreLookedAtAsFilesOnlyWhereThatIsAllowed) {
  for (const bool allowed : {false, true}) {
    modules_look_at_files = allowed;
    const std::string path = std::string(PLUGIN_WITHOUT_ID) + (allowed ? "" : "-copy");
    if (!allowed)
      std::filesystem::copy_file(PLUGIN_WITHOUT_ID, path, std::filesystem::copy_options::overwrite_existing);
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const Module* module;
    ASSERT_TRUE(module_at(reinterpret_cast<std::uintptr_t>(dlsym(library, "plugin_alpha")), module));
    ASSERT_NE(module, nullptr);
    EXPECT_TRUE(module->build_id.empty());
    EXPECT_EQ(module->file != FileIdentity{}, allowed);
    EXPECT_EQ(has_file_still(*module), allowed);
    dlclose(library);
    if (!allowed) std::filesystem::remove(path);
  }
}

TEST(Unwinder, SeesTheSameStackThroughBothLibraries) {
  std::vector<void*> stacks[2];
  for (int i = 0; i < 2; ++i) {
    void* frames[64];
    const int count = i ? unwind_stack(walk_start(), frames, 64) : unwind_stack_with_libgcc(frames, 64);
    stacks[i].assign(frames, frames + std::max(count, 0));
  }
  ASSERT_GE(stacks[0].size(), 3u);
  ASSERT_GE(stacks[1].size(), 3u);
  // The innermost lie in the unwinders, the next in different places here, and one may leave out the outermost.
  std::size_t common = 0;
  for (void* frame : stacks[0]) common += std::count(stacks[1].begin(), stacks[1].end(), frame) != 0;
  EXPECT_GE(common + 4, std::max(stacks[0].size(), stacks[1].size()));
  void* frames[2];
  EXPECT_LE(unwind_stack(walk_start(), frames, 2), 2);
}

}  // namespace
}  // namespace cistern
