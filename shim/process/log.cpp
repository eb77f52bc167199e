// See log.hpp. Everything under the lock is fixed-size: no allocation, so the lock is a leaf.
#include "shim/process/log.hpp"

#include <spdlog/sinks/sink.h>
#include <string.h>

#include <atomic>
#include <memory>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "shim/process/standard_error.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/sink.hpp"

namespace cistern {
namespace {

constexpr int kDeferredMax = 32;
constexpr int kKindsMax = 64;
constexpr std::size_t kLineMax = 400;
constexpr std::uint64_t kSaidOfOneKind = 10;

struct Line {
  char text[kLineMax];
  std::size_t length;
  void assign(std::string_view line) {
    length = line.size() < kLineMax ? line.size() : kLineMax;
    memcpy(text, line.data(), length);
  }
  std::string_view view() const { return {text, length}; }
};

// Lines that differ only in their numbers. The last slot is shared by all kinds that found no slot of their own.
struct LineKind {
  std::uint64_t hash, count;
  Line first;
};

constinit Lock log_lock;
constinit Line deferred[kDeferredMax] = {};
constinit int deferred_count = 0;
constinit std::atomic<bool> has_deferred{false};
constinit LineKind kinds[kKindsMax] = {};
constinit int kind_count = 0;

bool is_hex_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// FNV-1a over the text with each number as one mark.
std::uint64_t hash_without_numbers(std::string_view text) {
  std::uint64_t hash = 14695981039346656037u;
  const auto mix = [&](char c) { hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u; };
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] < '0' || text[i] > '9') {
      mix(text[i++]);
      continue;
    }
    const bool hex = text.substr(i).starts_with("0x");
    if (hex) i += 2;
    while (i < text.size() && (hex ? is_hex_digit(text[i]) : (text[i] >= '0' && text[i] <= '9'))) ++i;
    mix('#');
  }
  return hash;
}

LineKind& kind_of(std::string_view text, std::string_view alike) {
  const std::uint64_t hash = hash_without_numbers(alike.empty() ? text : alike);
  for (int i = 0; i < kind_count; ++i)
    if (kinds[i].hash == hash) return kinds[i];
  if (kind_count == kKindsMax) return kinds[kKindsMax - 1];
  LineKind& kind = kinds[kind_count++];
  kind.hash = hash;
  kind.first.assign(text);
  return kind;
}

bool within_limit(std::string_view text, std::string_view alike) {
  const LockedUnlessForking hold(log_lock);
  return !hold || ++kind_of(text, alike).count <= kSaidOfOneKind;
}

// One line, one write: lines of several threads and processes do not mix. It is used without an spdlog::logger, which
// allocates by `new`: the line may be about memory that ran out.
class DescriptorSink final : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    const int descriptor = standard_error();
    if (descriptor == -1) return;
    String line("cistern: ");
    for (char c : message.payload) line.push_back(static_cast<unsigned char>(c) < ' ' ? ' ' : c);
    line.push_back('\n');
    write_whole(descriptor, line);
  }
  void flush() override {}
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}
};

void say(std::string_view text) {
  assert_no_lock_held();
  Uncounted uncounted;
  const spdlog::string_view_t line(text.data(), text.size());
  DescriptorSink().log(spdlog::details::log_msg("cistern", spdlog::level::warn, line));
}

}  // namespace

void warn_line(std::string_view text, std::string_view alike) {
  say_deferred_lines();
  if (within_limit(text, alike)) say(text);
}

void warn_later(std::string_view text) {
  const LockedUnlessForking hold(log_lock);
  if (!hold || deferred_count == kDeferredMax) return;
  deferred[deferred_count++].assign(text);
  has_deferred.store(true, std::memory_order_relaxed);
}

[[gnu::hot]] bool has_deferred_lines() { return has_deferred.load(std::memory_order_relaxed); }

void say_deferred_lines() {
  while (has_deferred.load(std::memory_order_relaxed)) {
    Line lines[4];
    int taken = 0;
    {
      Locked hold(log_lock);
      while (taken < 4 && taken < deferred_count) {
        lines[taken] = deferred[taken];
        ++taken;
      }
      memmove(deferred, deferred + taken, static_cast<std::size_t>(deferred_count - taken) * sizeof(Line));
      deferred_count -= taken;
      has_deferred.store(deferred_count > 0, std::memory_order_relaxed);
    }
    for (int i = 0; i < taken; ++i) say(lines[i].view());
  }
}

void say_limited_lines() {
  for (int i = 0; i < kKindsMax; ++i) {
    std::uint64_t more = 0;
    Line first;
    {
      Locked hold(log_lock);
      if (i >= kind_count) return;
      if (kinds[i].count <= kSaidOfOneKind) continue;
      more = kinds[i].count - kSaidOfOneKind;
      kinds[i].count = kSaidOfOneKind;
      first = kinds[i].first;
    }
    StringSink line;
    line.print("{} more lines like: {}", more, first.view());
    say(line.text());
  }
}

void log_before_fork() { log_lock.lock_for_fork(); }
void log_after_fork_in_parent() { log_lock.unlock_after_fork(); }
void log_after_fork_in_child() {
  for (int i = 0; i < kind_count; ++i) kinds[i].count = 0;
  log_after_fork_in_parent();
}

}  // namespace cistern
