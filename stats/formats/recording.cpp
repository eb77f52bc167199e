// See recording.hpp.
#include "stats/formats/recording.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <system_error>

#include "stats/recording_merge.hpp"

namespace cistern::formats {
namespace {

using recording::Bytes;
using recording::Definition;

constexpr std::uint64_t kNever = UINT64_MAX / 2;  // no moment of a process
// More are in no file that a process writes.
constexpr Count kDefinitionsMax = Count{16} << 20, kFramesMax = 4096;

[[noreturn]] void bad(const char* why) { throw BadReport(why); }

// The words of a chunk's head, as they lie in the file.
struct Head {
  std::uint32_t kind, committed;
  std::uint64_t first_time, born_epoch, dead_epoch;
};
static_assert(sizeof(Head) == offsetof(recording::ChunkHead, unused));

Head head_at(std::span<const std::uint8_t> bytes) {
  Head head;
  std::memcpy(&head, bytes.data(), sizeof head);
  return head;
}

std::string as_text(std::span<const std::uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }
std::string next_text(Bytes& from) { return as_text(from.bytes(from.number())); }
Seconds in_seconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

// Reports of Python programs show Python's frames; so do recordings.
void prefer_python(std::vector<Frame>& frames) {
  if (std::ranges::any_of(frames, &Frame::python))
    std::erase_if(frames, [](const Frame& frame) { return !frame.python; });
}

}  // namespace

bool Recording::is_one(std::span<const std::uint8_t> bytes) {
  return bytes.size() >= sizeof recording::kMagic &&
         !std::memcmp(bytes.data(), recording::kMagic, sizeof recording::kMagic);
}

std::uint64_t Recording::word(std::size_t at) const {
  std::uint64_t value;
  std::memcpy(&value, bytes_.data() + at, sizeof value);
  return value;
}

Seconds Recording::seconds_at(Count time) const {
  return (static_cast<double>(zero_ns_) + static_cast<double>(time) * ns_per_tick_) * 1e-9;
}

std::string Recording::text(std::size_t at, std::size_t room) const {
  const auto* const first = reinterpret_cast<const char*>(bytes_.data() + at);
  return {first, strnlen(first, room)};
}

void Recording::read_head() {
  using recording::Header;
  if (!is_one(bytes_)) bad("is no recording");
  if (bytes_.size() < recording::kHeaderBytes) bad("is a recording that was cut off");
  std::uint32_t words[4];
  std::memcpy(words, bytes_.data() + offsetof(Header, version), sizeof words);
  if (words[0] > recording::kVersion) bad("was recorded by a newer version of Cistern");
  if (words[0] != recording::kVersion || words[1] != recording::kHeaderBytes || words[2] != recording::kChunkBytes)
    bad("is no recording that can be read");
  const auto moment = [&](std::size_t at) { return in_seconds(std::min(word(at), kNever)); };
  head_.pid = words[3];
  head_.version = text(offsetof(Header, library_version), sizeof(Header::library_version));
  head_.command = text(offsetof(Header, command), sizeof(Header::command));
  head_.start_unix_ns = word(offsetof(Header, start_unix_ns));
  head_.host_sample_bytes = word(offsetof(Header, host_sample_bytes));
  head_.thinned_events = word(offsetof(Header, thinned_events));
  zero_ns_ = std::min(word(offsetof(Header, zero_ns)), kNever);
  ns_per_tick_ = std::bit_cast<double>(word(offsetof(Header, ns_per_tick)));
  if (!(ns_per_tick_ >= 1e-3 && ns_per_tick_ <= 1e3)) ns_per_tick_ = 1;
  head_.thinned_until_s = seconds_at(std::min(word(offsetof(Header, thinned_until)), kNever));
  head_.lost_events = word(offsetof(Header, lost_events));
  head_.lost_since_s = moment(offsetof(Header, lost_since_ns));
  if (word(offsetof(Header, stopped_ns))) head_.stopped_s = moment(offsetof(Header, stopped_ns));
  if (word(offsetof(Header, ended_ns))) head_.ended_s = moment(offsetof(Header, ended_ns));
  head_.file_bytes = bytes_.size();
  epoch_ = word(offsetof(Header, epoch));
}

void Recording::read_chunks() {
  const std::size_t names_at = word(offsetof(recording::Header, names_at));
  const std::size_t end = names_at && names_at < bytes_.size() ? names_at : bytes_.size();
  std::vector<std::span<const std::uint8_t>> definitions;
  for (std::size_t at = recording::kHeaderBytes; at + recording::kChunkBytes <= end; at += recording::kChunkBytes) {
    const Head head = head_at(bytes_.subspan(at));
    const auto kind = static_cast<recording::ChunkKind>(head.kind);
    if (kind == recording::ChunkKind::none || head.born_epoch > epoch_ ||
        (head.dead_epoch && head.dead_epoch <= epoch_))
      continue;
    if (kind > recording::ChunkKind::definitions || head.committed > recording::kRoom || head.first_time > kNever)
      bad("is a damaged recording");
    const auto committed = bytes_.subspan(at + sizeof(recording::ChunkHead), head.committed);
    if (kind == recording::ChunkKind::definitions)
      definitions.push_back(committed);
    else
      chunks_.push_back({head.first_time, committed});
  }
  std::ranges::stable_sort(chunks_, {}, &Chunk::first_time);
  for (const auto& bytes : definitions) read_definitions(bytes);
}

void Recording::count_definition(Count more) {
  definitions_ += more;
  if (definitions_ > kDefinitionsMax) bad("defines more than a recording can");
}

// Modules and lines come before the sites that have them, but perhaps in a chunk that lies behind.
void Recording::read_definitions(std::span<const std::uint8_t> bytes) {
  for (Bytes all(bytes); !all.at_end();) {
    const auto tag = static_cast<Definition>(all.byte());
    Bytes from(all.bytes(all.number()));
    count_definition();
    if (tag == Definition::kind) {
      const Count number = from.number();
      kinds_[number] = next_text(from);
    } else if (tag == Definition::module) {
      Frame& module = modules_[from.number()];
      module.module = next_text(from);
      module.build_id = next_text(from);
    } else if (tag == Definition::python_line) {
      Frame& line = lines_[from.number()];
      line.function = next_text(from);
      line.file = next_text(from);
      line.line = from.number();
      line.python = true;
    } else if (tag == Definition::thread) {
      const Count number = from.number();
      threads_[number] = from.number();
    } else if (tag == Definition::site) {
      define_site(from);
    }
    if (!all.ok() || !from.ok()) bad("is a damaged recording");
  }
}

void Recording::define_site(Bytes& from) {
  RecordedSite& site = sites_[from.number()];
  site.call = next_text(from);
  std::vector<Frame> frames(from.number(kFramesMax));
  count_definition(frames.size());
  for (Frame& frame : frames) {
    const Count module = from.number(), number = from.number();
    const auto& defined = module ? modules_ : lines_;
    if (const auto found = defined.find(module ? module - 1 : number); found != defined.end()) frame = found->second;
    if (module) (module == 1 ? frame.address : frame.offset) = number;
  }
  if (!from.ok()) return;
  prefer_python(frames);
  site.stack = names_.stack_of(frames);
}

// Names that were found at the end replace the modules and offsets that were noted before.
void Recording::read_names() {
  const std::uint64_t at = word(offsetof(recording::Header, names_at));
  const std::uint64_t count = word(offsetof(recording::Header, names_bytes));
  if (!count) return;
  if (at > bytes_.size() || count > bytes_.size() - at) bad("is a recording that was cut off");
  std::vector<std::string> texts(1);
  std::vector<Frame> frames(1);
  for (Bytes all(bytes_.subspan(at, count)); !all.at_end();) {
    const auto tag = static_cast<Definition>(all.byte());
    const auto part = all.bytes(all.number());
    Bytes from(part);
    const auto text = [&] { return texts[from.number(texts.size() - 1)]; };
    count_definition();
    if (tag == Definition::text) {
      texts.push_back(as_text(part));
    } else if (tag == Definition::frame) {
      Frame& frame = frames.emplace_back();
      frame.function = text(), frame.file = text(), frame.line = from.number();
      frame.module = text(), frame.build_id = text(), frame.offset = from.number();
      const Count traits = from.number();
      frame.inlined = traits & 1, frame.python = traits & 2;
    } else if (tag == Definition::names_of_site) {
      const auto found = sites_.find(from.number());
      std::vector<Frame> stack(from.number(kFramesMax));
      count_definition(stack.size());
      for (Frame& frame : stack) frame = frames[from.number(frames.size() - 1)];
      if (from.ok() && found != sites_.end()) found->second.stack = names_.stack_of(stack);
    }
    if (!all.ok() || !from.ok()) bad("is a damaged recording");
  }
}

Recording::Recording(std::span<const std::uint8_t> bytes) : bytes_(bytes) {
  read_head();
  read_chunks();
  read_names();
}

std::string Recording::kind_name(Count kind) const {
  const auto found = kinds_.find(kind);
  return found == kinds_.end() ? "kind " + std::to_string(kind) : found->second;
}

const RecordedSite* Recording::site(std::uint32_t site) const {
  const auto found = sites_.find(site);
  return found == sites_.end() ? nullptr : &found->second;
}

Count Recording::thread(std::uint32_t thread) const {
  const auto found = threads_.find(thread);
  return found == threads_.end() ? 0 : found->second;
}

void Recording::for_each_event(const std::function<void(const RecordedEvent&)>& visit) const {
  std::vector<recording::ChunkEvents> chunks;
  chunks.reserve(chunks_.size());
  for (const Chunk& chunk : chunks_) chunks.emplace_back(chunk.first_time, chunk.committed);
  std::vector<recording::ChunkEvents*> waiting(chunks.size());
  recording::Merge merge(chunks, waiting.data());
  while (const RecordedEvent* const event = merge.next()) visit(*event);
  if (!merge.ok()) bad("is a damaged recording");
  if (word(offsetof(recording::Header, epoch)) != epoch_)
    bad("was thinned by its process while it was read; try again");
}

// --- The file
namespace {
[[noreturn]] void fail() { throw std::system_error(errno, std::generic_category()); }

class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : number_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (number_ < 0) fail();
  }
  ~Descriptor() { close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  std::size_t bytes() const {
    struct stat status;
    if (fstat(number_, &status)) fail();
    return static_cast<std::size_t>(status.st_size);
  }
  // Fewer at the end of the file.
  std::size_t read(std::size_t at, void* to, std::size_t bytes) const {
    const ssize_t got = pread(number_, to, bytes, static_cast<off_t>(at));
    if (got < 0) fail();
    return static_cast<std::size_t>(got);
  }
  int number() const { return number_; }

 private:
  const int number_;
};

// A process that ends cuts off the chunks that it has not used: they are not mapped.
std::size_t used_bytes(const Descriptor& file) {
  const std::size_t bytes = file.bytes();
  std::uint64_t names = 0;
  file.read(offsetof(recording::Header, names_bytes), &names, sizeof names);
  if (names) return bytes;
  std::size_t used = std::min(bytes, recording::kHeaderBytes);
  for (std::size_t at = recording::kHeaderBytes; at + recording::kChunkBytes <= bytes; at += recording::kChunkBytes) {
    std::uint32_t kind = 0;
    if (file.read(at, &kind, sizeof kind) == sizeof kind && kind) used = at + recording::kChunkBytes;
  }
  return used;
}
}  // namespace

RecordingFile::RecordingFile(const std::string& path) {
  const Descriptor file(path);
  bytes_ = used_bytes(file);
  if (!bytes_) bad("is no recording");
  first_ = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file.number(), 0);
  if (first_ == MAP_FAILED) fail();
}

RecordingFile::~RecordingFile() { munmap(first_, bytes_); }

}  // namespace cistern::formats
