// Sites whose stacks cross libraries: the one that Cistern is in, OpenCL's loader, and plugins that come and go.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/reports/site_probe.hpp"

namespace {

using Callback = unsigned (*)();
using Plugin = unsigned (*)(Callback);

volatile int keep_frame = 0;

[[gnu::noinline]] unsigned call_of_the_program() {
  const unsigned site = probe_capture();
  keep_frame = keep_frame + 1;
  return site;
}

// A library that is open for as long as the object lives.
class Library {
 public:
  explicit Library(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) ADD_FAILURE() << dlerror();
  }
  ~Library() { EXPECT_EQ(handle_ ? dlclose(handle_) : -1, 0); }
  Plugin function(const char* name) { return reinterpret_cast<Plugin>(dlsym(handle_, name)); }

 private:
  void* handle_;
};

class SiteModules : public testing::Test {};

std::string module_name(const cistern::FrameFigures& frame) {
  return std::string(frame.module.substr(frame.module.rfind('/') + 1));
}

cistern::Vector<cistern::FrameFigures> named_frames(unsigned site) {
  cistern::Vector<cistern::LeakFigures> leaks(1);
  leaks[0].frames = probe_frames(site);
  probe_symbolise(leaks);
  return leaks[0].frames;
}

TEST_F(SiteModules, LeaveOutCisternsOwn) {
  const unsigned site = call_of_the_program();
  const auto frames = probe_frames(site);
  ASSERT_FALSE(frames.empty());
  EXPECT_EQ(module_name(frames[0]), "cistern_site_modules_test");
  EXPECT_EQ(probe_owner(site).name, "cistern_site_modules_test");
  EXPECT_TRUE(probe_owner(site).is_program);
}

// OpenCL's loader, and the CUDA runtime above the driver that is hooked.
TEST_F(SiteModules, LeaveOutTheLibraryThatPassesTheCallOn) {
  for (const char* path : {LOADER, CUDA_RUNTIME}) {
    Library loader(path);
    const Plugin pass_on = loader.function("loader_call");
    ASSERT_NE(pass_on, nullptr) << path;
    const unsigned site = pass_on(probe_capture);
    keep_frame = keep_frame + 1;
    const auto frames = probe_frames(site);
    ASSERT_FALSE(frames.empty()) << path;
    EXPECT_EQ(module_name(frames[0]), "cistern_site_modules_test") << path;
    EXPECT_TRUE(probe_owner(site).is_program) << path;
  }
}

TEST_F(SiteModules, BelongToTheLibraryThatCalled) {
  Library plugin(PLUGIN_ALPHA);
  const Plugin alpha = plugin.function("plugin_alpha");
  ASSERT_NE(alpha, nullptr);
  const unsigned site = alpha(probe_capture);
  keep_frame = keep_frame + 1;
  EXPECT_EQ(probe_owner(site).name, "libplugin_alpha.so");
  EXPECT_FALSE(probe_owner(site).is_program);
  const unsigned further_in = alpha(call_of_the_program);
  keep_frame = keep_frame + 1;
  EXPECT_TRUE(probe_owner(further_in).is_program);
}

// GLib allocates for whoever calls it, unless nobody does: on a thread of its own. Its frames stay.
TEST_F(SiteModules, BelongToWhoCalledALibraryThatAllocatesForOthers) {
  Library glib(GLIB);
  const Plugin allocate = glib.function("allocating_call");
  ASSERT_NE(allocate, nullptr);
  const unsigned site = allocate(probe_capture);
  keep_frame = keep_frame + 1;
  EXPECT_EQ(module_name(probe_frames(site)[0]), "libglib-2.0.so.0");
  EXPECT_EQ(probe_owner(site).name, "cistern_site_modules_test");
  EXPECT_TRUE(probe_owner(site).is_program);
  pthread_t thread;
  const auto start = reinterpret_cast<void* (*)(void*)>(reinterpret_cast<void (*)()>(allocate));
  ASSERT_EQ(pthread_create(&thread, nullptr, start, reinterpret_cast<void*>(probe_capture)), 0);
  void* alone;
  pthread_join(thread, &alone);
  EXPECT_EQ(probe_owner(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(alone))).name, "libglib-2.0.so.0");
}

// What one plugin's stack says after it is gone, and another one with the same code lies at its addresses.
TEST_F(SiteModules, TellAPluginFromItsSuccessorAtTheSameAddress) {
  struct Visit {
    const char* path;
    const char* function;
    Plugin address = nullptr;
    unsigned site = 0;
  } visits[] = {{PLUGIN_ALPHA, "plugin_alpha"}, {PLUGIN_BRAVO, "plugin_bravo"}, {PLUGIN_ALPHA, "plugin_alpha"}};
  volatile int count = 3;  // unrolled, the loop would call from several places
  for (int i = 0; i < count; ++i) {
    Library plugin(visits[i].path);
    visits[i].address = plugin.function(visits[i].function);
    ASSERT_NE(visits[i].address, nullptr);
    visits[i].site = visits[i].address(probe_capture);
    cistern::Vector<cistern::LeakFigures> leaks(1);
    leaks[0].frames = probe_frames(visits[i].site);
    probe_symbolise(leaks);
    ASSERT_FALSE(leaks[0].frames.empty());
    EXPECT_EQ(leaks[0].frames[0].function, visits[i].function);
  }
  EXPECT_NE(visits[0].site, visits[1].site);
  if (visits[0].address == visits[2].address) {
    EXPECT_EQ(visits[0].site, visits[2].site);
  }
  for (const Visit& visit : visits) {
    const auto frames = named_frames(visit.site);
    const cistern::FrameFigures& leaf = frames.at(0);
    EXPECT_EQ(module_name(leaf), "lib" + std::string(visit.function) + ".so");
    EXPECT_EQ(leaf.address, 0u);
    EXPECT_NE(leaf.offset, 0u);
    EXPECT_FALSE(leaf.build_id.empty());
    EXPECT_EQ(leaf.function, visit.function);
    EXPECT_TRUE(leaf.file.ends_with("plugin.cpp")) << leaf.file;
    EXPECT_NE(leaf.line, 0u);
    EXPECT_NE(frames.at(1).address, 0u);
  }
  if (visits[0].address != visits[1].address) GTEST_SKIP() << "the plugins were loaded at different addresses";
}

// --- A plugin that is gone is named from its file, which may be another one by then
class Copies : public SiteModules {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/cistern-plugins-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path path() const { return folder_ / "libcopied.so"; }
  // A new file, as builds and packages make them.
  void copy(const char* from) {
    std::filesystem::remove(path());
    std::filesystem::copy_file(from, path());
  }
  unsigned visit(const char* name, const char* function) {
    Library plugin(name);
    const Plugin address = plugin.function(function);
    if (!address) return 0;
    const unsigned site = address(probe_capture);
    const auto frames = named_frames(site);
    EXPECT_EQ(frames.at(0).function, function);  // while it is there
    return site;
  }
  void expect_named(unsigned site, const char* function) {
    const auto frames = named_frames(site);
    EXPECT_EQ(frames.at(0).function, function);
    EXPECT_EQ(module_name(frames.at(0)), "libcopied.so");
    EXPECT_NE(frames.at(0).offset, 0u);
    EXPECT_EQ(frames.at(0).address, 0u);
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(Copies, AreNotNamedFromAnotherFile) {
  copy(PLUGIN_ALPHA);
  const unsigned alpha = visit(path().c_str(), "plugin_alpha");
  expect_named(alpha, "plugin_alpha");
  copy(PLUGIN_LARGE);
  expect_named(alpha, "");
  std::filesystem::remove(path());
  expect_named(alpha, "");
  std::ofstream(path()).put('x');
  expect_named(alpha, "");
  copy(PLUGIN_ALPHA);  // the same again
  expect_named(alpha, "plugin_alpha");
}

TEST_F(Copies, WithoutABuildIdAreNamedFromTheFileThatWasLoaded) {
  copy(PLUGIN_WITHOUT_ID);
  const unsigned site = visit(path().c_str(), "plugin_alpha");
  EXPECT_EQ(named_frames(site).at(0).build_id, "");
  expect_named(site, "plugin_alpha");
  copy(PLUGIN_WITHOUT_ID);
  expect_named(site, "");
}

TEST_F(Copies, ThatWereBuiltAnewAreOtherSites) {
  copy(PLUGIN_ALPHA);
  const unsigned alpha = visit(path().c_str(), "plugin_alpha");
  copy(PLUGIN_BRAVO);
  const unsigned bravo = visit(path().c_str(), "plugin_bravo");
  EXPECT_NE(alpha, bravo);
  expect_named(alpha, "");
  expect_named(bravo, "plugin_bravo");
}

TEST_F(Copies, AreFoundFromAnotherDirectory) {
  copy(PLUGIN_ALPHA);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(path().parent_path());
  const unsigned alpha = visit("./libcopied.so", "plugin_alpha");
  std::filesystem::current_path(before);
  expect_named(alpha, "plugin_alpha");
}

// The unwinder remembers frame layouts by address: a plugin with another layout there must be unwound as well.
TEST_F(SiteModules, FollowAnotherFrameLayoutAtTheSameAddress) {
  volatile int rounds = 20;
  for (int i = 0; i < rounds; ++i) {
    Library plugin(i % 2 ? PLUGIN_LARGE : PLUGIN_ALPHA);
    const Plugin function = plugin.function(i % 2 ? "plugin_large" : "plugin_alpha");
    ASSERT_NE(function, nullptr);
    const unsigned site = function(probe_capture);
    const auto frames = probe_frames(site);
    ASSERT_GE(frames.size(), 2u) << i;
    EXPECT_EQ(module_name(frames[0]), i % 2 ? "libplugin_large.so" : "libplugin_alpha.so");
    EXPECT_EQ(module_name(frames[1]), "cistern_site_modules_test") << i;
  }
}

}  // namespace
