// See memory_viz.hpp. The page has its own reader of pickles, which knows few operations; only those are written. Each
// kind of memory is a device there: "device:1" is device 1, the other kinds have the numbers behind the last one. Every
// live block is a segment of its own.
#include "stats/formats/memory_viz.hpp"

#include <algorithm>
#include <deque>
#include <map>

#include "stats/formats/recorded_memory.hpp"
#include "stats/formats/samples.hpp"

namespace cistern::formats {
namespace {

// Protocol 4 of Python's pickle module.
class Pickle {
 public:
  enum Operation : unsigned char {
    kProtocol = 0x80,
    kMark = '(',
    kEnd = '.',
    kFalse = 0x89,
    kTrue = 0x88,
    kByte = 'K',
    kTwoBytes = 'M',
    kFourBytes = 'J',
    kLong = 0x8a,
    kShortText = 0x8c,
    kText = 'X',
    kMemoize = 0x94,
    kGet = 'h',
    kLongGet = 'j',
    kDictionary = '}',
    kSetItems = 'u',
    kList = ']',
    kAppends = 'e',
    kPair = 0x86
  };

  Pickle() { operation(kProtocol), byte(4); }
  void operation(Operation one) { bytes_ += static_cast<char>(one); }
  std::string end() {
    operation(kEnd);
    return std::move(bytes_);
  }

  void number(Count value) {
    if (value <= 0xff) {
      operation(kByte), little_endian(value, 1);
    } else if (value <= 0xffff) {
      operation(kTwoBytes), little_endian(value, 2);
    } else if (value <= 0x7fffffff) {
      operation(kFourBytes), little_endian(value, 4);
    } else {
      operation(kLong), byte(9), little_endian(value, 8), byte(0);  // the last is the sign
    }
  }
  void text(const std::string& value) {
    const auto [at, is_new] = texts_.try_emplace(value, memos_);
    if (!is_new) return get(at->second);
    value.size() <= 0xff ? (operation(kShortText), little_endian(value.size(), 1))
                         : (operation(kText), little_endian(value.size(), 4));
    bytes_ += value;
    memoize();
  }
  // The value that was written last, for get().
  std::size_t memoize() {
    operation(kMemoize);
    return memos_++;
  }
  void get(std::size_t memo) {
    memo <= 0xff ? (operation(kGet), little_endian(memo, 1)) : (operation(kLongGet), little_endian(memo, 4));
  }

  // `members` calls member() and what writes its value.
  template <class Members>
  void dictionary(Members&& members) {
    operation(kDictionary), operation(kMark);
    members();
    operation(kSetItems);
  }
  void member(const char* name) { text(name); }
  void member(const char* name, Count value) { text(name), number(value); }
  void member(const char* name, const char* value) { text(name), text(value); }
  void member(const char* name, bool value) { text(name), operation(value ? kTrue : kFalse); }

  // The page's reader takes a list in parts of some thousand.
  template <class Range, class Element>
  void list(const Range& elements, Element&& element) {
    constexpr std::size_t kAtOnce = 1000;
    operation(kList);
    std::size_t count = 0;
    for (const auto& one : elements) {
      if (count++ % kAtOnce == 0) {
        if (count > 1) operation(kAppends);
        operation(kMark);
      }
      element(one);
    }
    if (count) operation(kAppends);
  }

 private:
  void byte(unsigned char value) { bytes_ += static_cast<char>(value); }
  void little_endian(Count value, int bytes) {
    for (; bytes > 0; --bytes, value >>= 8) byte(static_cast<unsigned char>(value & 0xff));
  }
  std::string bytes_;
  std::size_t memos_ = 0;
  std::unordered_map<std::string, std::size_t> texts_;
};

struct Traced {
  RecordedEvent event;
  Count bytes;  // also of a free
};

class Snapshot {
 public:
  Snapshot(const Recording& recording, MemoryVizLimits limits) : recording_(recording), limits_(limits) {
    recording.for_each_event([this](const RecordedEvent& event) {
      if (event.type <= RecordedType::failed && device_of(event.kind)) add(event);
    });
  }

  std::string write() {
    number_other_kinds();
    out_.dictionary([this] {
      out_.member("segments");
      write_segments();
      out_.member("device_traces");
      write_traces();
      out_.member("allocator_settings");
      out_.dictionary([this] {
        out_.member("trace_alloc_overflowed", has_overflowed_);
        out_.member("trace_alloc_max_entries", limits_.events);
      });
      out_.member("external_annotations");
      out_.list(std::vector<int>(), [](int) {});
    });
    return out_.end();
  }

 private:
  static constexpr std::size_t kDevicesMax = 64, kLater = SIZE_MAX;

  // Null: host memory, which is not in it.
  const std::size_t* device_of(Count kind) {
    const auto [at, is_new] = devices_.try_emplace(kind, std::optional<std::size_t>(kLater));
    if (is_new) {
      const std::string name = recording_.kind_name(kind);
      if (name == "host") at->second.reset();
      for (std::size_t device = 0; device < kDevicesMax; ++device)
        if (name == "device:" + std::to_string(device)) at->second = device;
    }
    return at->second ? &*at->second : nullptr;
  }
  void number_other_kinds() {
    for (const auto& [kind, device] : devices_)
      if (device && *device != kLater) device_count_ = std::max(device_count_, *device + 1);
    for (auto& [kind, device] : devices_)
      if (device == kLater) device = device_count_++;
  }

  void add(const RecordedEvent& event) {
    const RecordedMemory::Block* const before = memory_.block_at(event.kind, event.address);
    if (event.type == RecordedType::failed || event.type == RecordedType::allocation) {
      trace(event, event.bytes);
    } else if (before && event.type == RecordedType::free) {
      trace(event, before->bytes);
    }
    memory_.apply(event);
  }
  void trace(const RecordedEvent& event, Count bytes) {
    if (traced_.size() == limits_.events) {
      traced_.pop_front();
      has_overflowed_ = true;
    }
    traced_.push_back({event, bytes});
  }

  void write_traces() {
    std::vector<std::vector<const Traced*>> by_device(device_count_);
    for (const Traced& one : traced_) by_device[*device_of(one.event.kind)].push_back(&one);
    out_.list(by_device, [this](const std::vector<const Traced*>& traced) {
      out_.list(traced, [this](const Traced* one) { write_traced(one->event, one->bytes); });
    });
  }
  void write_traced(const RecordedEvent& event, Count bytes) {
    const bool failed = event.type == RecordedType::failed;
    const double since_us = std::max(recording_.seconds_at(event.time), 0.0) * 1e6;
    out_.dictionary([&] {
      out_.member("action", failed ? "oom" : event.type == RecordedType::free ? "free_completed" : "alloc");
      out_.member(failed ? "device_free" : "addr", failed ? 0 : event.address);
      out_.member("size", bytes);
      out_.member("stream", event.has_stream ? event.stream : 0);
      out_.member("time_us", recording_.head().start_unix_ns / 1000 + static_cast<Count>(since_us));
      out_.member("frames");
      write_frames(event.site);
    });
  }

  void write_segments() {
    std::vector<const RecordedMemory::Block*> blocks;
    memory_.for_each_block([&](const RecordedMemory::Block& block) { blocks.push_back(&block); });
    std::ranges::sort(blocks, std::greater(), [](const RecordedMemory::Block* block) { return block->bytes; });
    if (blocks.size() > limits_.blocks) blocks.resize(limits_.blocks);
    out_.list(blocks, [this](const RecordedMemory::Block* block) { write_segment(*block); });
  }
  void write_segment(const RecordedMemory::Block& block) {
    const RecordedUse& use = memory_.uses()[block.use];
    const auto write_frames_member = [&] { out_.member("frames"), write_frames(use.site); };
    out_.dictionary([&] {
      out_.member("device", *device_of(use.kind));
      out_.member("address", block.address);
      for (const char* name : {"total_size", "allocated_size", "active_size", "requested_size"})
        out_.member(name, block.bytes);
      out_.member("stream", Count{0});
      out_.member("segment_type", "large");
      out_.member("segment_pool_id");
      out_.number(0), out_.number(0), out_.operation(Pickle::kPair);
      out_.member("is_expandable", false);
      write_frames_member();
      out_.member("blocks");
      out_.list(std::vector{&block}, [&](const RecordedMemory::Block* one) {
        out_.dictionary([&] {
          out_.member("address", one->address);
          out_.member("size", one->bytes), out_.member("requested_size", one->bytes);
          out_.member("state", "active_allocated");
          write_frames_member();
        });
      });
    });
  }

  void write_frames(std::uint32_t site) {
    const RecordedSite* const known = recording_.site(site);
    const StackId stack = known ? known->stack : 0;
    const auto [at, is_new] = frames_.try_emplace(stack, 0);
    if (!is_new) return out_.get(at->second);
    out_.list(recording_.run().stacks[stack], [this](FrameId id) {
      const Frame& frame = recording_.run().frames[id];
      out_.dictionary([&] {
        out_.member("name"), out_.text(function_name(frame));
        out_.member("filename"), out_.text(printable(frame.file.empty() ? frame.module : frame.file));
        out_.member("line", frame.line);
      });
    });
    at->second = out_.memoize();
  }

  const Recording& recording_;
  const MemoryVizLimits limits_;
  RecordedMemory memory_;
  std::map<Count, std::optional<std::size_t>> devices_;  // by kind
  std::size_t device_count_ = 0;
  std::deque<Traced> traced_;
  bool has_overflowed_ = false;
  Pickle out_;
  std::unordered_map<StackId, std::size_t> frames_;  // their memos
};

}  // namespace

std::string memory_viz(const Recording& recording, MemoryVizLimits limits) {
  return Snapshot(recording, limits).write();
}

}  // namespace cistern::formats
