// Pages are small, complete and harmless; gzip gives back what it took.
#include "stats/formats/page.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include <map>
#include <nlohmann/json.hpp>

#include "stats/formats/gzip.hpp"

namespace cistern::formats {
namespace {

using Json = nlohmann::json;

std::string gunzip(std::string_view packed) {
  z_stream stream = {};
  EXPECT_EQ(inflateInit2(&stream, 16 + 15), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string text;
  int state = Z_OK;
  while (state == Z_OK) {
    char part[4096];
    stream.next_out = reinterpret_cast<Bytef*>(part);
    stream.avail_out = sizeof part;
    state = inflate(&stream, Z_NO_FLUSH);
    text.append(part, sizeof part - stream.avail_out);
  }
  EXPECT_EQ(state, Z_STREAM_END);
  inflateEnd(&stream);
  return text;
}

std::string from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  EXPECT_EQ(text.size() % 4, 0u);
  std::string bytes;
  for (std::size_t at = 0; at < text.size(); at += 4) {
    unsigned group = 0, digits = 0;
    for (const char c : text.substr(at, 4)) {
      group <<= 6;
      if (c != '=') group |= static_cast<unsigned>(kDigits.find(c)), ++digits;
    }
    for (unsigned i = 0; i + 1 < digits; ++i) bytes += static_cast<char>(group >> (16 - 8 * i));
  }
  return bytes;
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t from = text.find(begin) + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

std::string title_of(const std::string& html) { return between(html, "<title>", "</title>"); }

Json data_of(const std::string& html) {
  return Json::parse(gunzip(from_base64(between(html, "<script id=\"data\" type=\"text/plain\">", "</script>"))));
}

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

Report with_leaks(std::size_t rows, const std::string& kind) {
  Report report;
  report.cistern.command = "./app";
  Kind figures;
  for (std::size_t i = 1; i <= rows; ++i) {
    LiveRow row;
    row.kind = kind, row.leak_class = i % 2 ? "lost" : "reachable", row.blocks = 2, row.bytes = 10 * i, row.frames = 1;
    figures.live_bytes += row.bytes;
    report.leaks.push_back(row);
  }
  report.kinds.emplace_back(kind, figures);
  return report;
}

Run run_of(std::vector<Report> reports) {
  Run run;
  Frame unused, inner, outer;
  unused.function = "unused", inner.function = "inner \"quoted\"\n", inner.line = 3, outer.address = 99;
  run.frames = {unused, inner, outer};
  run.stacks = {{}, {1, 2}, {0}};
  run.reports = std::move(reports);
  return run;
}

TEST(Gzip, GivesBackWhatItTook) {
  std::string long_text;
  for (int i = 0; i < 100'000; ++i) long_text += std::to_string(i * 7919 % 1000);
  for (const std::string& text : {std::string(), std::string("a"), std::string(3, '\0'), long_text}) {
    EXPECT_EQ(gunzip(gzip(text)), text);
    EXPECT_EQ(gzip(text), gzip(text));
  }
  EXPECT_LT(gzip(long_text).size(), long_text.size() / 2);
}

TEST(Page, HasTheContractsNamesAndEachStackThatIsUsed) {
  Report report = with_leaks(2, "device:0");
  report.cistern.rank = 0;
  report.text = "VERDICT";
  report.kinds[0].second.unpooled = {{"too large", 3}};
  const Json data = data_of(page(run_of({report}), {}));
  EXPECT_EQ(data["processes"], 1);
  EXPECT_EQ(data["frames"], Json::parse(R"([{"function": "inner \"quoted\"\n", "line": 3, "offset": 0, "address": 0},
                                            {"line": 0, "offset": 0, "address": 99}])"));
  EXPECT_EQ(data["stacks"], Json::parse("[[0, 1]]"));
  const Json& shown = data["reports"][0];
  EXPECT_EQ(shown["cistern"]["rank"], 0);
  EXPECT_FALSE(shown["cistern"].contains("ranks"));
  EXPECT_EQ(shown["kinds"]["device:0"]["unpooled"]["too large"], 3);
  EXPECT_EQ(shown["leaks"].size(), 2u);
  EXPECT_EQ(shown["leaks"][1]["class"], "reachable");
  EXPECT_EQ(shown["leaks"][1]["frames"], 0);
  EXPECT_FALSE(shown["leaks"][1].contains("owner"));
  EXPECT_FALSE(shown.contains("others"));
  EXPECT_FALSE(shown.contains("text"));
}

TEST(Page, TheSmallestRowsBecomeSumsByKindAndClass) {
  Report report = with_leaks(10, "host");
  const Report of_gpu = with_leaks(1, "device:0");
  report.leaks.push_back(of_gpu.leaks[0]);
  const Json shown = data_of(page(run_of({report}), {.rows_max = 3}))["reports"][0];
  ASSERT_EQ(shown["leaks"].size(), 3u);
  EXPECT_EQ(shown["leaks"][0]["bytes"], 90);
  EXPECT_EQ(shown["leaks"][1]["bytes"], 100);
  EXPECT_EQ(shown["leaks"][2]["kind"], "device:0");
  EXPECT_EQ(shown["others"], Json::parse(R"([
    {"list": "leaks", "kind": "host", "class": "lost", "rows": 4, "blocks": 8, "bytes": 160},
    {"list": "leaks", "kind": "host", "class": "reachable", "rows": 4, "blocks": 8, "bytes": 200}])"));
}

TEST(Page, FitsAndLosesNothing) {
  const auto run = run_of({with_leaks(30'000, "device:0"), with_leaks(10'000, "host")});
  Count all = 0;
  for (const Report& report : run.reports)
    for (const LiveRow& row : report.leaks) all += row.bytes;
  const std::size_t empty = page(run, {.rows_max = 0}).size();
  for (const std::size_t bytes_max : {empty * 2, empty + 2000, std::size_t{5'000'000}}) {
    const std::string html = page(run, {.bytes_max = bytes_max});
    EXPECT_LE(html.size(), bytes_max);
    Count shown = 0;
    const Json data = data_of(html);
    for (const Json& report : data["reports"])
      for (const char* list : {"leaks", "others"})
        for (const Json& row : report.value(list, Json::array())) shown += row["bytes"].get<Count>();
    EXPECT_EQ(shown, all);
  }
  EXPECT_THROW(page(run, {.bytes_max = empty / 2}), PageTooLarge);
}

TEST(Page, OfTooManyProcessesThoseWithMostMemoryStay) {
  std::vector<Report> reports(3000, with_leaks(1, "host"));
  for (std::size_t i = 0; i < reports.size(); ++i) {
    reports[i].cistern.pid = i * 7919;
    reports[i].kinds[0].second.live_bytes = i;
  }
  const std::size_t of_one = page(run_of({reports[0]}), {}).size();
  const Json data = data_of(page(run_of(reports), {.bytes_max = of_one + 20'000}));
  EXPECT_EQ(data["processes"], 3000);
  const Json& shown = data["reports"];
  EXPECT_GT(shown.size(), 10u);
  EXPECT_LT(shown.size(), 3000u);
  EXPECT_EQ(shown.back()["cistern"]["pid"], 2999 * 7919);
  EXPECT_EQ(shown.front()["cistern"]["pid"], (3000 - shown.size()) * 7919);
}

TEST(Page, NoTextOfAReportIsMarkup) {
  Report report = with_leaks(1, "host");
  report.cistern.command = "./app </title><script>alert(1)</script>&\n";
  report.leaks[0].owner = "</script><script>alert(1)</script>";
  const std::string html = page(run_of({report}), {}), harmless = page(run_of({with_leaks(1, "host")}), {});
  EXPECT_EQ(count_of(html, "<script"), count_of(harmless, "<script"));
  EXPECT_EQ(title_of(html), "./app &lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;  - Cistern");
}

Comparison comparison_of(std::size_t sites) {
  Run before = run_of({Report()}), after = before;
  for (std::size_t i = 0; i < sites; ++i) {
    Frame frame;
    frame.function = "site_" + std::to_string(i * 7919);
    after.frames.push_back(frame);
    after.stacks.push_back({static_cast<FrameId>(after.frames.size() - 1)});
    LiveRow row;
    row.kind = i % 2 ? "host" : "device:0", row.leak_class = "lost", row.blocks = 1, row.bytes = i + 1;
    row.frames = static_cast<StackId>(after.stacks.size() - 1);
    (i % 3 ? before : after).reports[0].leaks.push_back(row);
  }
  before.frames = after.frames, before.stacks = after.stacks;
  return compared(before, "</title><script>", after, "new/");
}

TEST(Page, OfTwoRunsFitsAndLosesNothing) {
  constexpr Count kSites = 30'000;
  const Comparison comparison = comparison_of(kSites);
  const std::size_t empty = page(comparison, {.rows_max = 0}).size();
  for (const std::size_t bytes_max : {empty + 2000, std::size_t{5'000'000}}) {
    const std::string html = page(comparison, {.bytes_max = bytes_max});
    EXPECT_LE(html.size(), bytes_max);
    EXPECT_EQ(title_of(html), "&lt;/title&gt;&lt;script&gt; -&gt; new/ - Cistern");
    const Json data = data_of(html);
    EXPECT_LE(data["sites"].size(), 20'000u);
    Count bytes = 0, rows = data["sites"].size();
    for (const char* list : {"sites", "others"})
      for (const Json& site : data[list])
        for (const char* side : {"before", "after"}) bytes += site[side]["lost_bytes"].get<Count>();
    for (const Json& other : data["others"]) rows += other["rows"].get<Count>();
    EXPECT_EQ(bytes, kSites * (kSites + 1) / 2);
    EXPECT_EQ(rows, kSites);
    EXPECT_EQ(data["sites"][0]["kind"], "device:0");
  }
  EXPECT_THROW(page(comparison, {.bytes_max = empty / 2}), PageTooLarge);
}

TEST(Page, OfTwoRunsHasEachSiteOnceWithItsStack) {
  const Json data = data_of(page(comparison_of(2), {}));
  EXPECT_EQ(data["sites"], Json::parse(R"([
    {"kind": "device:0", "frames": 0,
     "before": {"blocks": 0, "bytes": 0, "lost_blocks": 0, "lost_bytes": 0, "peak_blocks": 0, "peak_bytes": 0},
     "after": {"blocks": 1, "bytes": 1, "lost_blocks": 1, "lost_bytes": 1, "peak_blocks": 0, "peak_bytes": 0}},
    {"kind": "host", "frames": 1,
     "before": {"blocks": 1, "bytes": 2, "lost_blocks": 1, "lost_bytes": 2, "peak_blocks": 0, "peak_bytes": 0},
     "after": {"blocks": 0, "bytes": 0, "lost_blocks": 0, "lost_bytes": 0, "peak_blocks": 0, "peak_bytes": 0}}])"));
  EXPECT_FALSE(data.contains("others"));
  EXPECT_EQ(data["frames"][1]["function"], "site_7919");
  EXPECT_EQ(data["growth"]["host_lost"]["shrunk_bytes"], 2);
}

TEST(Page, ATitleIsCutBetweenCharacters) {
  Report report = with_leaks(0, "host");
  report.cistern.command = std::string(99, 'a') + "\xC3\xA4z";
  EXPECT_EQ(title_of(page(run_of({report}), {})), std::string(99, 'a') + "... - Cistern");
  EXPECT_EQ(title_of(page(run_of({report, report}), {})), "2 processes - Cistern");
}

TEST(Page, MomentsOfARecordingKeepTheirSums) {
  constexpr std::uint32_t kSites = 5000;
  Report report = with_leaks(1, "device:0");
  Recorded& recorded = report.recorded.emplace();
  Moment moment;
  for (std::uint32_t i = 0; i < kSites; ++i) {
    recorded.sites.push_back({i % 2 ? "host" : "device:0", "", 1, false});
    moment.uses.push_back({i, 1, i * 7919 % 1000 + 1, 0, 0});
  }
  for (int i = 1; i <= 20; ++i) moment.at_s = i, recorded.moments.push_back(moment);
  recorded.moments[10].peak_of = "host";
  const auto run = run_of({report});
  const auto shown = [&](std::size_t bytes_max) {
    return data_of(page(run, {.bytes_max = bytes_max}))["reports"][0]["recording"];
  };
  const auto sums = [](const Json& recording, const Json& of) {
    std::map<std::string, std::pair<Count, Count>> all;
    for (std::size_t i = 0; i < of["uses"].size(); i += 3) {
      auto& [blocks, bytes] = all[recording["sites"][of["uses"][i].get<std::size_t>()]["kind"]];
      blocks += of["uses"][i + 1].get<Count>(), bytes += of["uses"][i + 2].get<Count>();
    }
    return all;
  };
  const Json most = shown(5'000'000), less = shown(120'000);
  EXPECT_EQ(most["sites"].size(), 4097u);  // those of the GPU, most of the host's, and the sum of the others
  EXPECT_EQ(most["others"], kSites - 4096);
  EXPECT_EQ(most["moments"].size(), 20u);
  EXPECT_LT(less["sites"].size(), 4097u);
  for (const Json* recording : {&most, &less}) {
    ASSERT_FALSE((*recording)["moments"].empty());
    for (const Json& one : (*recording)["moments"]) EXPECT_EQ(sums(*recording, one), sums(most, most["moments"][0]));
    EXPECT_EQ((*recording)["moments"].back()["at_s"], 20);
  }
}

}  // namespace
}  // namespace cistern::formats
