// Heads of reports as they are written, and files that are not reports.
#include "stats/report/head.hpp"

#include <gtest/gtest.h>

#include <string>

#include "stats/report/report.hpp"

namespace cistern {
namespace {

Snapshot snapshot_of(int pid, const char* command, bool used_gpu_memory) {
  Snapshot snapshot{};
  snapshot.version = "1.2.3";
  snapshot.pid = pid;
  snapshot.command = command;
  snapshot.moment = "exit";
  snapshot.sites = "off";
  KindFigures kind{};
  kind.name = used_gpu_memory ? "opencl" : "host";
  kind.is_host = !used_gpu_memory;
  kind.allocations = 3;
  snapshot.kinds.push_back(kind);
  return snapshot;
}

std::optional<ReportHead> head_of(void (*render)(const Snapshot&, Sink&), const Snapshot& snapshot) {
  StringSink sink;
  render(snapshot, sink);
  return read_report_head(std::string(sink.text()).substr(0, kReportHeadBytes));
}

TEST(ReportHeads, AreReadBack) {
  for (const auto render : {render_text, render_json})
    for (const bool used : {false, true})
      for (const char* command :
           {"./app", "./app  pid 12  wall 3 s", "a \"pid\": 5,\n    \"gpu_memory_used\": true", ""}) {
        const auto head = head_of(render, snapshot_of(4242, command, used));
        ASSERT_TRUE(head) << command;
        EXPECT_EQ(head->pid, 4242) << command;
        EXPECT_EQ(head->used_gpu_memory, used) << command;
      }
}

TEST(ReportHeads, EndBeforeALongCommandLineDoes) {
  const std::string command(5000, '\1');
  for (const auto render : {render_text, render_json})
    EXPECT_TRUE(head_of(render, snapshot_of(1, command.c_str(), true))) << (render == render_json);
}

TEST(ReportHeads, OtherFilesHaveNone) {
  for (const char* text :
       {"", "mine", "{}", "{\"cistern\": 1}", "cistern", "cistern notes\nVERDICT  good\n",
        "cistern 1.2.3  ./app  pid 12\nVERDICT  \n", "cistern 1.2.3  ./app  pid 0  wall 1 s\nVERDICT  \n",
        "cistern 1.2.3  ./app  pid 12  wall 1 s\nnotes\n",
        "{\n  \"cistern\": {\n    \"version\": \"1\",\n    \"pid\": \"x\"\n"})
    EXPECT_FALSE(read_report_head(text)) << text;
}

}  // namespace
}  // namespace cistern
