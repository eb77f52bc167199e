// How often, and for how long, each call site waits for a device: one kind's calls that synchronise. Thread-safe.
#pragma once
#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "stats/counters.hpp"
#include "stats/sites.hpp"

namespace cistern {

class Waits {
 public:
  // `ns`: how long the caller was blocked.
  void add(SiteId site, const char* api, std::uint64_t ns);
  // Around a call that waits; `site()` is asked afterwards.
  template <class Pass, class Site>
  auto timed(const char* api, Pass pass, Site site) {
    const std::uint64_t begin_ns = nanoseconds_since_start();
    const auto answer = pass();
    const std::uint64_t blocked_ns = nanoseconds_since_start() - begin_ns;
    add(site(), api, blocked_ns);
    return answer;
  }
  // The three sites that wait most often. `kind`: a literal.
  void add_to(Snapshot& snapshot, const char* kind);
  void clear();
  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }

 private:
  struct Key {
    SiteId site;
    const char* api;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return (key.site ^ reinterpret_cast<std::uintptr_t>(key.api)) * 0x9E3779B97F4A7C15ull >> 16;
    }
  };
  struct Row {
    std::uint64_t count = 0, ns = 0;
  };
  Lock lock_;
  Map<Key, Row, KeyHash> rows_;
};

}  // namespace cistern
