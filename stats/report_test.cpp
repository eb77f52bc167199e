// Reports of hand-made snapshots against the goldens in tests/reports/goldens. With CISTERN_UPDATE_GOLDENS set the
// goldens are written instead, to be read before they are committed. tests/reports validates the JSON ones.
#include "stats/report.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <clocale>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace cistern {
namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;

Snapshot empty_snapshot() {
  Snapshot snapshot{};
  snapshot.version = "1.2.3";
  snapshot.pid = 4242;
  snapshot.command = "./train --epochs 3";
  snapshot.wall_s = 12.3456789;
  snapshot.moment = "exit";
  snapshot.sites = "gpu:all,host:off";
  snapshot.tables_bytes = 256 * 1024;
  return snapshot;
}

KindFigures host_figures() {
  KindFigures host{};
  host.name = "host";
  host.allocations = 1234567;
  host.frees = 1234000;
  host.live_blocks = 567;
  host.live_bytes = 3 * kMiB / 2;
  host.peak_bytes = 9 * kMiB;
  host.peak_at_s = 1.5;
  return host;
}

KindFigures opencl_figures() {
  KindFigures opencl{};
  opencl.name = "opencl";
  opencl.pooled_kind = true;
  opencl.allocations = 1000;
  opencl.frees = 997;
  opencl.pool_hits = 960;
  opencl.pool_misses = 30;
  opencl.driver_allocs = 40;
  opencl.driver_frees = 25;
  opencl.driver_queries = 3;
  opencl.live_blocks = 3;
  opencl.live_bytes = 48 * kMiB;
  opencl.peak_bytes = 96 * kMiB;
  opencl.peak_at_s = 10.25;
  opencl.pooled_blocks = 12;
  opencl.pooled_bytes = 128 * kMiB;
  opencl.unpooled.push_back({"host pointer", 7});
  opencl.unpooled.push_back({"sub-buffer", 3});
  opencl.classes.push_back({0, 10, 4, 0, 2, 4096, 3});
  opencl.classes.push_back({14, 990, 956, 3, 10, 128 * kMiB - 4096, 6});
  return opencl;
}

FrameFigures frame(const char* function, const char* file, unsigned line, const char* module = "/opt/app/train") {
  FrameFigures figures{};
  figures.address = 0x555500001234;
  figures.offset = 0x1234;
  figures.module = module;
  figures.function = function;
  figures.file = file;
  figures.line = line;
  return figures;
}

LeakFigures leak(const char* function, std::uint64_t blocks, std::uint64_t bytes) {
  LeakFigures figures{};
  figures.kind = "opencl";
  figures.leak_class = "never freed";
  figures.object = "buffer";
  figures.blocks = blocks;
  figures.bytes = bytes;
  figures.created = blocks;
  figures.first_s = 0.5;
  figures.last_s = 11.75;
  figures.api = "clCreateBuffer";
  figures.owner = "train";
  figures.owned_by_program = true;
  figures.frames.push_back(frame(function, "src/w.cpp", 42));
  figures.frames.push_back(frame("main", "src/main.cpp", 10));
  figures.frames.push_back(frame("__libc_start_call_main", "", 0, "/lib/x86_64-linux-gnu/libc.so.6"));
  return figures;
}

Snapshot leaking_snapshot() {
  Snapshot snapshot = empty_snapshot();
  snapshot.kinds.push_back(opencl_figures());
  snapshot.kinds.push_back(host_figures());
  snapshot.leaks.push_back(leak("load_weights", 2, 32 * kMiB));
  LeakFigures retained = leak("keep_weights", 1, 16 * kMiB);
  retained.retained = 1;
  retained.released = 1;
  FrameFigures inlined = frame("share<float>", "src/share.hpp", 7);
  inlined.inlined = true;
  retained.frames.insert(retained.frames.begin(), inlined);
  snapshot.leaks.push_back(retained);
  LeakFigures child = leak("view", 1, 64 * kMiB);
  child.object = "sub-buffer";
  child.api = "clCreateSubBuffer";
  child.kept_parent_bytes = 64 * kMiB;
  snapshot.leaks.push_back(child);
  child.kept_parent_bytes.reset();  // its parent is live on its own account
  child.bytes = 0;
  snapshot.leaks.push_back(child);
  snapshot.objects.push_back({"contexts", 1, 1});
  snapshot.objects.push_back({"queues", 4, 2});
  snapshot.objects.push_back({"kernels", 9, 0});
  snapshot.fragmentation.push_back({"opencl", 176 * kMiB, 48 * kMiB, 48 * kMiB, 128 * kMiB, 64 * kMiB});
  snapshot.capture_mean_ns = 183.4;
  snapshot.sites_count = 12;
  snapshot.estimated.push_back("self.capture_mean_ns");
  return snapshot;
}

Snapshot library_snapshot() {
  Snapshot snapshot = empty_snapshot();
  snapshot.kinds.push_back(opencl_figures());
  for (const char* owner : {"libblas_cl.so.2", "_cl.cpython-311.so"}) {
    LeakFigures figures = leak("cache_kernel", 1, 4096);
    figures.owner = owner;
    figures.owned_by_program = false;
    FrameFigures bare = frame("", "", 0, "/usr/lib/libblas_cl.so.2");
    bare.build_id = "deadbeef00112233";
    bare.address = 0;
    figures.frames.assign(3, bare);
    figures.frames[1] = frame("blas_init", "", 0, "/usr/lib/libblas_cl.so.2");
    figures.frames[2] = FrameFigures{};
    figures.frames[2].address = 0x7f0000001000;
    snapshot.leaks.push_back(figures);
  }
  return snapshot;
}

Snapshot many_leaks_snapshot() {
  Snapshot snapshot = leaking_snapshot();
  snapshot.rank = 3;
  snapshot.ranks = 8;
  snapshot.leaks.clear();
  for (unsigned i = 0; i < 15; ++i) {
    LeakFigures figures = leak("load", 15 - i, (15 - i) * kMiB);
    for (unsigned depth = 0; depth < 9; ++depth)
      figures.frames.insert(figures.frames.begin(), frame("nested", "src/nested.cpp", depth + 1));
    figures.frames[0].line = 100 + i;
    snapshot.leaks.push_back(figures);
  }
  return snapshot;
}

Snapshot without_sites_snapshot() {
  Snapshot snapshot = empty_snapshot();
  snapshot.sites = "gpu:off,host:off";
  snapshot.kinds.push_back(opencl_figures());
  LeakFigures figures = leak("", 3, 48 * kMiB);
  figures.api = nullptr;
  figures.owner.clear();
  figures.owned_by_program = false;
  figures.frames.clear();
  snapshot.leaks.push_back(figures);
  return snapshot;
}

Snapshot clean_snapshot() {
  Snapshot snapshot = empty_snapshot();
  KindFigures opencl = opencl_figures();
  opencl.live_blocks = opencl.live_bytes = opencl.pooled_blocks = opencl.pooled_bytes = 0;
  opencl.failed = 1;
  opencl.unpooled.clear();
  opencl.classes.clear();
  snapshot.kinds.push_back(opencl);
  snapshot.dropped_events = 2;
  return snapshot;
}

Snapshot host_snapshot() {
  Snapshot snapshot = empty_snapshot();
  snapshot.command = "sh -c \"echo \\ \x1b[31mred\n\xff\xc3\xb6\"";
  snapshot.kinds.push_back(host_figures());
  return snapshot;
}

Snapshot at_moment(Snapshot snapshot, const char* moment) {
  snapshot.moment = moment;
  return snapshot;
}

struct Case {
  const char* name;
  Snapshot (*make)();
};

constexpr Case kCases[] = {
    {"no_kinds", empty_snapshot},
    {"host_only_weird_command", host_snapshot},
    {"clean", clean_snapshot},
    {"leaks", leaking_snapshot},
    {"leaks_of_libraries", library_snapshot},
    {"fifteen_leaks", many_leaks_snapshot},
    {"without_sites", without_sites_snapshot},
    {"ended_by__exit", [] { return at_moment(leaking_snapshot(), "_exit"); }},
    {"while_running", [] { return at_moment(leaking_snapshot(), "call"); }},
};

void PrintTo(const Case& example, std::ostream* out) { *out << example.name; }

std::string rendered(void (*render)(const Snapshot&, Sink&), const Snapshot& snapshot) {
  StringSink sink;
  render(snapshot, sink);
  return std::string(sink.text());
}

void expect_golden(const std::string& name, const std::string& text) {
  const std::string source = __FILE__;
  const std::string path = source.substr(0, source.rfind("stats/")) + "tests/reports/goldens/" + name;
  if (std::getenv("CISTERN_UPDATE_GOLDENS")) std::ofstream(path) << text;
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str()) << path;
}

class Report : public testing::TestWithParam<Case> {};

TEST_P(Report, Text) { expect_golden(GetParam().name + std::string(".txt"), rendered(render_text, GetParam().make())); }
TEST_P(Report, Json) {
  expect_golden(GetParam().name + std::string(".json"), rendered(render_json, GetParam().make()));
}

TEST_P(Report, TextFitsATerminal) {
  const std::string text = rendered(render_text, GetParam().make());
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 70);
  for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
}

INSTANTIATE_TEST_SUITE_P(Snapshots, Report, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ReportVerdict, CountsProgramAndLibrariesApart) {
  Snapshot snapshot = library_snapshot();
  snapshot.leaks.push_back(leak("load_weights", 3, 48 * kMiB));
  const std::string text = rendered(render_text, snapshot);
  EXPECT_NE(
      text.find("VERDICT  3 blocks, 48.0 MiB never freed at 1 site; by libraries: 2 blocks, 8.0 KiB never freed at "
                "2 sites (libblas_cl.so.2, _cl.cpython-311.so)      (exit code unchanged)\n"),
      std::string::npos)
      << text;
}

TEST(ReportVerdict, NeverClaimsMoreThanIsKnown) {
  for (const Case& example : kCases) {
    const std::string text = rendered(render_text, example.make());
    EXPECT_EQ(text.find("lost"), std::string::npos) << example.name;
    if (std::string_view(example.make().moment) != "call") continue;
    EXPECT_EQ(text.find("never freed"), std::string::npos);
    EXPECT_EQ(text.find("LEAK"), std::string::npos);
  }
}

TEST(ReportNumbers, DoNotFollowTheLocale) {
  const std::string before = rendered(render_json, leaking_snapshot());
  const char* comma_locale = nullptr;
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "C.UTF-8"})
    if (!comma_locale) comma_locale = std::setlocale(LC_ALL, name);
  const std::string under_locale = rendered(render_json, leaking_snapshot());
  std::setlocale(LC_ALL, "C");
  ASSERT_NE(comma_locale, nullptr);
  EXPECT_EQ(under_locale, before);
}

TEST(Sink, PrintsTextOfAnyLength) {
  for (const int length : {1, 510, 511, 512, 513, 5000}) {
    StringSink sink;
    sink.print("<%*s>", length, "x");
    EXPECT_EQ(sink.text().size(), static_cast<std::size_t>(length) + 2);
    EXPECT_TRUE(sink.text().ends_with("x>"));
  }
}

}  // namespace
}  // namespace cistern
