// See rmm.hpp. A replay needs the size of what is freed, and knows no block that was there before: frees of such blocks
// are left out.
#include "stats/formats/rmm.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "stats/formats/recorded_memory.hpp"

namespace cistern::formats {
namespace {

class Log {
 public:
  Log(const Recording& recording, const std::function<void(std::string_view)>& write)
      : recording_(recording), write_(write) {}

  void write() {
    write_("Thread,Time,Action,Pointer,Size,Stream\n");
    recording_.for_each_event([this](const RecordedEvent& event) {
      if (event.type <= RecordedType::failed && is_of_device(event.kind)) add(event);
    });
    write_(part_);
  }

 private:
  bool is_of_device(Count kind) {
    const auto [at, is_new] = of_device_.try_emplace(kind, false);
    if (is_new) {
      const std::string name = recording_.kind_name(kind);
      at->second = name.starts_with("device:") || name.starts_with("async:");
    }
    return at->second;
  }

  void add(const RecordedEvent& event) {
    const RecordedMemory::Block* const before = memory_.block_at(event.kind, event.address);
    if (event.type == RecordedType::failed) {
      line(event, "allocate failure", event.bytes);
    } else {
      if (before) line(event, "free", before->bytes);
      if (event.type == RecordedType::allocation || (event.type == RecordedType::resized && before))
        line(event, "allocate", event.bytes);
    }
    memory_.apply(event);
  }

  void line(const RecordedEvent& event, const char* action, Count bytes) {
    constexpr Count kDay = 86'400'000'000;
    const Count since = static_cast<Count>(std::max(recording_.seconds_at(event.time), 0.0) * 1e6);
    const Count us = (recording_.head().start_unix_ns / 1000 + since) % kDay;  // since midnight, UTC
    const auto part = [us](Count unit, Count count) { return static_cast<unsigned>(us / unit % count); };
    char text[160];
    const int length = std::snprintf(
        text, sizeof text, "%llu,%02u:%02u:%02u.%06u,%s,0x%llx,%llu,0x%llx\n",
        static_cast<unsigned long long>(recording_.thread(event.thread)), part(3'600'000'000, 24), part(60'000'000, 60),
        part(1'000'000, 60), part(1, 1'000'000), action, static_cast<unsigned long long>(event.address),
        static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(event.has_stream ? event.stream : 0));
    part_.append(text, static_cast<std::size_t>(length));
    if (part_.size() < kPartBytes) return;
    write_(part_);
    part_.clear();
  }

  static constexpr std::size_t kPartBytes = std::size_t{1} << 20;
  const Recording& recording_;
  const std::function<void(std::string_view)>& write_;
  RecordedMemory memory_;
  std::map<Count, bool> of_device_;
  std::string part_;
};

}  // namespace

void rmm(const Recording& recording, const std::function<void(std::string_view)>& write) {
  Log(recording, write).write();
}

}  // namespace cistern::formats
