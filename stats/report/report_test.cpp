// Reports of hand-made snapshots against the goldens in tests/reports/goldens. With CISTERN_UPDATE_GOLDENS set the
// goldens are written instead, to be read before they are committed. tests/reports validates the JSON ones.
#include "stats/report/report.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <clocale>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "pool/base/path.hpp"
#include "stats/listed_rows.hpp"
#include "stats/report/filled_snapshot.hpp"
#include "stats/report/report_examples.hpp"

namespace cistern {
namespace {

using namespace examples;

struct Case {
  const char* name;
  Snapshot (*make)();
};

constexpr Case kCases[] = {
    {"no_kinds", empty_snapshot},
    {"host_only_weird_command", host_snapshot},
    {"host_pool", host_pool_snapshot},
    {"clean", clean_snapshot},
    {"leaks", leaking_snapshot},
    {"leaks_of_libraries", library_snapshot},
    {"fifteen_leaks", many_leaks_snapshot},
    {"without_sites", without_sites_snapshot},
    {"ended_by__exit", [] { return at_moment(leaking_snapshot(), "_exit"); }},
    {"cuda", cuda_snapshot},
    {"cuda_on_many_devices", many_devices_snapshot},
    {"newer_toolkit", newer_toolkit_snapshot},
    {"ended_by_a_signal", [] { return at_moment(leaking_snapshot(), "SIGTERM"); }},
    {"judged", judged_snapshot},
    {"python", python_snapshot},
    {"unjudged", unjudged_snapshot},
    {"suppressed", suppressed_snapshot},
    {"undecided", undecided_snapshot},
    {"while_running", [] { return at_moment(leaking_snapshot(), "call"); }},
};

void PrintTo(const Case& example, std::ostream* out) { *out << example.name; }

std::string rendered(void (*render)(const Snapshot&, Sink&), const Snapshot& snapshot) {
  StringSink sink;
  render(snapshot, sink);
  return std::string(sink.text());
}

void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = REPORTS_FOLDER "/" + name;
  if (std::getenv("CISTERN_UPDATE_GOLDENS")) std::ofstream(path) << text;
  std::ifstream file(path);
  ASSERT_TRUE(file) << "cannot read " << path << "; with CISTERN_UPDATE_GOLDENS=1 this test writes it";
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str()) << "in " << path << "; if this is meant, CISTERN_UPDATE_GOLDENS=1 writes it";
}

class Report : public testing::TestWithParam<Case> {};

TEST_P(Report, Text) {
  expect_golden("goldens/" + std::string(GetParam().name) + ".txt", rendered(render_text, GetParam().make()));
}
TEST_P(Report, Json) {
  expect_golden("goldens/" + std::string(GetParam().name) + ".json", rendered(render_json, GetParam().make()));
}
// Its figures contradict each other: tests/reports/validate.py looks at its shape alone.
TEST(ReportFields, EachHasAnExample) { expect_golden("every_field.json", rendered(render_json, filled_snapshot())); }

template <class Enum, std::size_t count>
void expect_names(const char* const (&listed)[count], std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < end; ++i)
    EXPECT_NE(std::find(listed, listed + count, std::string_view(name_of(static_cast<Enum>(i)))), listed + count)
        << name_of(static_cast<Enum>(i));
  EXPECT_EQ(count, end - first);
}

TEST(ReportFields, TheTableHasTheNamesThatTheCodeHas) {
  expect_names<LeakClass>(filled::leak_class, 0, kLeakClasses);
  expect_names<Outcome>(filled::outcome, 0, kOutcomes);
  expect_names<TrendKind>(filled::trend, 1, static_cast<std::size_t>(TrendKind::growing) + 1);
}

TEST_P(Report, TextFitsATerminal) {
  const std::string text = rendered(render_text, GetParam().make());
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 70);
  for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
}

INSTANTIATE_TEST_SUITE_P(Snapshots, Report, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Figures that are derived from the snapshot's, computed by hand here: the program itself writes the goldens.
TEST(ReportFigures, AreThoseWorkedOutByHand) {
  const std::string text = rendered(render_text, cuda_snapshot());
  const std::string json = rendered(render_json, cuda_snapshot());
  const auto expect = [](const std::string& in, const char* wanted) {
    EXPECT_NE(in.find(wanted), std::string::npos) << wanted << " in\n" << in;
  };
  // 9,960 of 10,000 hit; 40 allocs + 8 frees + 1,200 syncs; 20 MiB of 900 MiB.
  expect(text,
         "  device:0    20.0 MiB in 2           900.0 MiB (3.25 s)           10,000         1,248    99.6       -\n");
  // 2,490 of 2,500; 1 - 1.5/2.
  expect(text, "  1-2 MiB                 2,500         1            20.0 MiB in 10    99.6           9    25.0\n");
  // 1,240 of 1,250; 1 - 17.5/18 = 1/36.
  expect(text, "  16-32 MiB               1,250         1             64.0 MiB in 4    99.2           5     2.8\n");
  // 1 - 19/20; 800/900. Whole blocks have no holes between them.
  expect(text, "internal 5.0 %  high-water 800.0 MiB (0.89x the live peak)\n");
  expect(json, "\"reserved_per_live\": 0.8889");
  EXPECT_EQ(json.find("\"external\":"), std::string::npos) << json;
  // 80 GiB are 81,920 MiB: less 80,000 free, less 720 of ours, 1,200 are the driver's; 80,000 / 1,024 = 78.125.
  expect(text,
         "  device 0: this process 720.0 MiB, driver and other processes 1.2 GiB (at 11.9 s), free 78.1 GiB of "
         "80.0 GiB\n");
  expect(json, "\"driver_owned_bytes\": 1258291200");
  // 6,000 / 1,024 = 5.859 GiB, in 2.5 s.
  expect(text,
         "  host to device    pageable               3,000     5.9 GiB        2.50 s    2.34    2.00    3.50"
         "   67.0 %\n");
  // 19 + 1 MiB of 2 + 1 blocks.
  expect(text, "VERDICT  3 blocks, 20.0 MiB never freed at 2 sites      (exit code unchanged)\n");
}

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
    const auto judging = example.make().judging;
    const bool judged = judging && !judging->why_not;
    EXPECT_EQ(text.find(" lost ") != std::string::npos, judged) << example.name;
    if (example.make().ended_by_itself()) continue;
    EXPECT_EQ(text.find("never freed"), std::string::npos);
    EXPECT_EQ(text.find("LEAK"), std::string::npos);
  }
}

TEST(ReportLeaks, OnlyOpenclHasReferences) {
  const std::string text = rendered(render_text, cuda_snapshot());
  const std::string json = rendered(render_json, cuda_snapshot());
  EXPECT_EQ(text.find("created "), std::string::npos) << text;
  EXPECT_EQ(json.find("retained"), std::string::npos) << json;
  EXPECT_NE(rendered(render_json, leaking_snapshot()).find("\"retained\": 1"), std::string::npos);
}

TEST(ReportLeaks, NameTheCallOnce) {
  const std::string text = rendered(render_text, cuda_snapshot());
  EXPECT_NE(text.find("2 blocks (cudaMalloc block)  never freed"), std::string::npos) << text;
  EXPECT_NE(text.find("1 block (pool block, cudaMallocAsync)  never freed"), std::string::npos) << text;
}

// No sample was drawn of any: a little is what every program has.
TEST(ReportLeaks, OfHostMemoryWithoutAnySiteAreNamedFromAMegabyteOn) {
  Snapshot snapshot = cuda_snapshot();
  snapshot.host_sites.clear();
  snapshot.host_without_site = BlocksAndBytes{7, 1 << 20};
  EXPECT_EQ(rendered(render_text, snapshot).find("LIVE HOST MEMORY"), std::string::npos);
  snapshot.host_without_site = BlocksAndBytes{7, 2 << 20};
  EXPECT_NE(rendered(render_text, snapshot).find("and 2.0 MiB in 7 blocks without a call site: no sample has"),
            std::string::npos);
}

TEST(ReportTransfers, NameTheSiteWithMostPageableBytes) {
  Snapshot snapshot = cuda_snapshot();
  TransferFigures asynchronous = transfer("device to host", true, true, 5000 * kMiB);
  asynchronous.api = "cudaMemcpyAsync";
  asynchronous.site_bytes = 4001 * kMiB;
  snapshot.transfers.push_back(asynchronous);
  const std::string text = rendered(render_text, snapshot);
  EXPECT_NE(text.find("most pageable bytes: 3.9 GiB device to host (cudaMemcpyAsync)\n"), std::string::npos) << text;
}

TEST(ReportStaging, ThatWasAskedForAndDidNothingSaysWhy) {
  Snapshot snapshot = empty_snapshot();
  snapshot.staging.push_back({"cuda", 0, "host to device", "memory", 0, 0, 4096, {{"small", 3}}, {}});
  EXPECT_EQ(rendered(render_text, snapshot).find("STAGING"), std::string::npos);
  snapshot.staging.back().asked_for = true;
  const std::string text = rendered(render_text, snapshot);
  EXPECT_NE(text.find("0 B in 0 copies through bounce buffers; left to the driver: small 3\n"), std::string::npos)
      << text;
}

TEST(ReportStaging, NamesTheHostsMemoryWhereItIsNotPlain) {
  for (const auto& [source, text] : {std::pair{"memory", "STAGING cuda device 0  host to device  1.0 MiB in 1 copy"},
                                     {"file", "  host to device, file  1.0 MiB in 1 copy"},
                                     {"network-file", "  host to device, network file  1.0 MiB in 1 copy"},
                                     {"cold-file", "  host to device, cold file  1.0 MiB in 1 copy"},
                                     {"shared-memory", "  host to device, shared memory  1.0 MiB in 1 copy"}}) {
    Snapshot snapshot = empty_snapshot();
    snapshot.staging.push_back({"cuda", 0, "host to device", source, 1, kMiB, 0, {}, {}});
    const std::string report = rendered(render_text, snapshot);
    EXPECT_NE(report.find(text), std::string::npos) << report;
    EXPECT_NE(rendered(render_json, snapshot).find(std::string("\"source\": \"") + source + "\""), std::string::npos);
  }
}

TEST(ReportLeaks, WhatADriverStillHoldsStandsBehindWhatIsLost) {
  Vector<LeakFigures> leaks;
  for (const auto& [standing, bytes] : {std::pair{Standing::possibly_lost, 9 * kMiB},
                                        {Standing::reachable, 8 * kMiB},
                                        {Standing::held_by_driver, 5 * kMiB},
                                        {Standing::held_by_driver, 6 * kMiB},
                                        {Standing::indirectly_lost, 2 * kMiB},
                                        {Standing::lost, 1 * kMiB}}) {
    leaks.push_back(leak("make_one", 1, bytes));
    leaks.back().leak_class = class_of(standing);
  }
  sort_worst_first(leaks);
  Vector<std::uint64_t> order;
  for (const LeakFigures& one : leaks) order.push_back(one.bytes / kMiB);
  EXPECT_EQ(order, (Vector<std::uint64_t>{2, 1, 6, 5, 9, 8}));
}

TEST(ReportLeaks, AreSuppressedByWhoCalledTheWrapper) {
  Snapshot snapshot = leaking_snapshot();
  snapshot.leaks = {leak("xmalloc", 1, kMiB)};
  snapshot.leaks[0].frames.insert(snapshot.leaks[0].frames.begin() + 1, frame("load_names", "src/w.cpp", 50));
  snapshot.leaks[0].owner = basename_of(snapshot.leaks[0].frames[0].module);
  const std::string text = rendered(render_text, snapshot);
  EXPECT_NE(text.find("with lines such as leak:load_names)"), std::string::npos) << text;
}

TEST(ReportSuppressions, OfThoseThatDidNothingAFewAreNamed) {
  Snapshot snapshot = leaking_snapshot();
  for (int i = 0; i < 12; ++i)
    snapshot.suppressions.push_back({String("leak:nobody_") + std::to_string(i).c_str(), false});
  const std::string text = rendered(render_text, snapshot);
  EXPECT_NE(text.find(", leak:nobody_9 and 2 others\n"), std::string::npos) << text;
}

// Four callers of one function far out: the text shows three frames of so many leaks, and JSON all.
TEST(ReportLeaks, ThatLookAlikeAreOneEntryOfTheText) {
  Snapshot snapshot = leaking_snapshot();
  snapshot.leaks.clear();
  for (const unsigned caller : {1, 2, 3, 4}) {
    LeakFigures one = leak("make_one", 1, caller * kMiB);
    one.frames.insert(one.frames.begin() + 1, 2, frame("pass_on", "src/w.cpp", 50));
    one.frames.insert(one.frames.begin() + 3, frame("caller", "src/callers.cpp", caller));
    one.first_s = caller;
    snapshot.leaks.push_back(one);
  }
  snapshot.leaks.push_back(leak("other", 1, 7 * kMiB));
  snapshot.leaks.push_back(leak("another", 1, 6 * kMiB));
  snapshot.leaks.push_back(leak("a_third", 1, 5 * kMiB));
  merge_alike(snapshot);
  EXPECT_EQ(snapshot.leaks.size(), 7u);
  const std::string text = rendered(render_text, snapshot);
  EXPECT_NE(
      text.find(" 1  opencl  10.0 MiB in 4 blocks (buffer, clCreateBuffer)  never freed  first 1.00 s  last 11.8 s\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("src/w.cpp:50\n     ... 4 stacks, which differ only in frames that are not shown\n"
                      " 2  opencl  7.0 MiB"),
            std::string::npos)
      << text;
}

TEST(ReportPools, OfTheLibraryHaveALineEach) {
  Snapshot snapshot = empty_snapshot();
  snapshot.library_pools.push_back({"nodes", "host", false, 1234, 1230, 5, 4, 6 * kMiB, 8 * kMiB, 90 * kMiB, 0});
  snapshot.library_pools.push_back({"textures", "opencl", true, 7, 7, 0, 0, 0, kMiB, kMiB, 2 * kMiB});
  const std::string text = rendered(render_text, snapshot);
  EXPECT_NE(
      text.find(
          "POOLS MADE BY THE PROGRAM\n"
          "  name                      kind                        live        peak       limit       allocs  failed\n"
          "  nodes                     host                6.0 MiB in 4     8.0 MiB           -        1,234       5\n"
          "  textures                  opencl                 destroyed     1.0 MiB     2.0 MiB            7       "
          "0\n"),
      std::string::npos)
      << text;
}

TEST(ReportTransfers, OfTwoKindsAreTwoTables) {
  Snapshot snapshot = cuda_snapshot();
  TransferFigures timed = transfer("host to device", true, true, 4 * kMiB * 1024);
  timed.kind = "opencl";
  timed.timed_bytes = 2 * kMiB * 1024;
  timed.seconds = 0.5;  // the time of half of the bytes, and no thread waited
  snapshot.transfers.push_back(timed);
  for (int site = 0; site < 4; ++site) snapshot.copy_sites.push_back(tiny_copies("opencl", 1000, false));
  const std::string text = rendered(render_text, snapshot);
  EXPECT_NE(text.find("TRANSFERS cuda "), std::string::npos) << text;
  EXPECT_NE(text.find("TRANSFERS opencl "), std::string::npos) << text;
  EXPECT_NE(text.find("  host to device    pageable, async        3,000     4.0 GiB             -    4.00       -"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  tiny copies: 1,000 host to device of 4.0 KiB on average (cudaMemcpy)\n"), std::string::npos);
  EXPECT_NE(text.find("  (3 of 5 call sites with such copies)\n"), std::string::npos) << text;
}

TEST(ReportTransfers, SitesOfCopiesThatCouldDoBetter) {
  Snapshot snapshot = cuda_snapshot();
  CopySite site = tiny_copies("cuda", 4000, false);
  site.bytes = 4000 * kMiB;  // not tiny
  site.waited_for = 4000;
  site.unaligned = 3999;
  snapshot.copy_sites = {site};
  CopySite back = site;
  back.direction = "device to host";
  back.unaligned = back.waited_for = 999;  // not worth a line
  back.returns_sampled = 10;
  back.returned_unchanged = 9;
  snapshot.copy_sites.push_back(back);
  CopySite fine = back;
  fine.returned_unchanged = 4;
  snapshot.copy_sites.push_back(fine);
  const std::string text = rendered(render_text, snapshot);
  const auto lines = [&](const std::string& wanted) { return text.find("\n  " + wanted + "\n") != std::string::npos; };
  EXPECT_TRUE(
      lines("copies in lock step: 4,000 host to device (cudaMemcpy), each waited for by the next call of its thread"));
  EXPECT_TRUE(
      lines("unaligned copies: 3,999 host to device (cudaMemcpy), an address or pitch is not a multiple of 16 bytes"));
  EXPECT_TRUE(lines("copied back unchanged: 9 of 10 checked, out of 4,000 device to host (cudaMemcpy)"));
  EXPECT_EQ(text.find("tiny copies"), std::string::npos) << text;
  EXPECT_EQ(text.find("4 of 10"), std::string::npos) << text;
}

TEST(ReportTransfers, TheSiteThatLosesMostTimeIsNamed) {
  Snapshot snapshot = cuda_snapshot();
  const auto lines = [&] {
    const std::string text = rendered(render_text, snapshot);
    const std::size_t at = text.find("  most time lost");
    return at == text.npos ? "none" : text.substr(at, text.find('\n', text.find('\n', at) + 1) - at);
  };
  EXPECT_EQ(lines(), "none") << "less than a tenth of a second";
  CopySite more = tiny_copies("opencl", 10, true);
  more.lost_seconds = 0.5;
  more.frames = {frame("send_all", "src/batch.cpp", 40)};
  snapshot.copy_sites.push_back(more);
  EXPECT_EQ(lines(),
            "  most time lost: 0.50 s of 1.25 s beside the best rate, host to device (cudaMemcpy)\n"
            "     send_all      src/batch.cpp:40");
}

TEST(ReportTransfers, WithoutSitesNameNone) {
  Snapshot snapshot = cuda_snapshot();
  snapshot.copy_sites.clear();
  for (TransferFigures& figures : snapshot.transfers) {
    figures.api = nullptr;
    figures.site_bytes = 0;
    figures.frames.clear();
  }
  EXPECT_EQ(rendered(render_text, snapshot).find("most pageable"), std::string::npos);
  EXPECT_EQ(rendered(render_json, snapshot).find("worst_site"), std::string::npos);
}

TEST(ReportDeviceMemory, OwnedByTheDriverIsNeverNegative) {
  EXPECT_EQ((DeviceMemoryFigures{0, 100, 70, 20, 0}).driver_owned_bytes(), 10u);
  EXPECT_EQ((DeviceMemoryFigures{0, 100, 70, 40, 0}).driver_owned_bytes(), 0u);
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
    sink.print("<{:>{}}>", "x", length);
    EXPECT_EQ(sink.text().size(), static_cast<std::size_t>(length) + 2);
    EXPECT_TRUE(sink.text().ends_with("x>"));
  }
}

}  // namespace
}  // namespace cistern
