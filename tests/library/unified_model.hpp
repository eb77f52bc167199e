// A unified buffer beside a model of it: each byte's newest value, and which sides have it. Steps are chosen by a
// source of numbers (a seeded one, or a fuzzer's input). Work on the device is enqueued and looked at later, on several
// queues, so that a missing order shows.
#pragma once
#include <cistern/cistern.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

struct UnifiedWorld {
  cistern_unified_settings settings{};  // all but bytes, pin, checked and host
  std::vector<void*> queues;
  // Memory of the host that a device may write late.
  std::function<void*(std::size_t)> take_late;
  bool may_fail = false;               // driver calls fail now and then
  std::function<void(bool)> let_fail;  // or no more
};

// Plain memory for that, which stays.
inline void* take_plain(std::size_t bytes) {
  static std::vector<std::vector<char>> kept;
  return kept.emplace_back(bytes).data();
}

class UnifiedModel {
 public:
  using Number = std::function<std::uint32_t(std::uint32_t below)>;

  UnifiedModel(UnifiedWorld world, Number number) : world_(std::move(world)), number_(std::move(number)) {
    for (Look& look : looks_) look.bytes = static_cast<unsigned char*>(world_.take_late(kBytesMax));
    make();
  }
  ~UnifiedModel() {
    end();
    if (world_.may_fail) world_.let_fail(false);
  }
  UnifiedModel(const UnifiedModel&) = delete;
  UnifiedModel& operator=(const UnifiedModel&) = delete;

  std::uint64_t refused() const { return refused_; }
  std::uint64_t failed() const { return failed_; }

  void step() {
    ++steps_;
    const unsigned what = number_(100);
    const Part part = any_part();
    void* const queue = world_.queues[number_(static_cast<std::uint32_t>(world_.queues.size()))];
    if (what < 16) return host(part, CISTERN_READ);
    if (what < 30) return host(part, CISTERN_WRITE);
    if (what < 38) return host(part, CISTERN_OVERWRITE);
    if (what < 54) return device(part, CISTERN_READ, queue);
    if (what < 68) return device(part, CISTERN_WRITE, queue);
    if (what < 76) return device(part, CISTERN_OVERWRITE, queue);
    if (what < 82) return mark(part, number_(2) ? CISTERN_HOST_SIDE : CISTERN_DEVICE_SIDE, queue);
    if (what < 88) return synchronize(part, queue);
    if (what < 91) return fill(queue);
    if (what < 94) return drop(number_(2) ? CISTERN_HOST_SIDE : CISTERN_DEVICE_SIDE);
    if (what < 96) return static_cast<void>(wait());
    if (what < 99) return wrong_parts();
    end();
    make();
  }
  // Nothing is lost, whatever failed before.
  void check_all() {
    if (state_ == CISTERN_UNINITIALISED) return;
    host({0, bytes_}, CISTERN_READ);
    look_at_all();
  }

 private:
  static constexpr std::size_t kBytesMax = 96 << 10;  // pinned where it lies from 64 KiB on
  struct Part {
    std::size_t begin, bytes;
  };
  struct Look {  // at what a device had, when the queue came to it
    unsigned char* bytes = nullptr;
    void* queue = nullptr;
    std::vector<unsigned char> expected;
    std::vector<bool> known;
  };

  [[noreturn]] void fail(const std::string& what) const {
    fprintf(stderr, "FAILED in step %llu: %s (state %d, %zu bytes)\n", static_cast<unsigned long long>(steps_),
            what.c_str(), state_, bytes_);
    std::abort();
  }
  void demand(bool is_so, const char* what) const {
    if (!is_so) fail(what);
  }
  // True: it is done. A driver that may fail is the only excuse.
  bool expect(cistern_status status, cistern_status expected, const char* call) {
    if (status == expected) {
      refused_ += status != CISTERN_OK;
      return status == CISTERN_OK;
    }
    const bool by_driver = status == CISTERN_DRIVER || status == CISTERN_NO_MEMORY;
    if (!world_.may_fail || !by_driver || expected != CISTERN_OK)
      fail(std::string(call) + ": " + std::to_string(status) + " and not " + std::to_string(expected) + ", native " +
           std::to_string(cistern_native_error()));
    ++failed_;
    adopt();
    return false;
  }

  void make() {
    constexpr std::size_t kSizes[] = {1, 7, 64, 1000, 4096, kBytesMax};
    bytes_ = kSizes[number_(number_(40) ? 5 : 6)];
    cistern_unified_settings of = world_.settings;
    of.struct_bytes = sizeof of;
    of.bytes = bytes_;
    of.pin = static_cast<cistern_pin>(number_(3));
    of.checked = number_(2) != 0;
    own_.clear();
    if (number_(4) == 0) own_.resize(bytes_);
    value_.assign(bytes_, 0);
    known_.assign(bytes_, !own_.empty());
    on_host_.assign(bytes_, !own_.empty());
    on_device_.assign(bytes_, false);
    only_ = true;
    for (std::size_t i = 0; i < own_.size(); ++i) value_[i] = own_[i] = any_byte();
    of.host = own_.empty() ? nullptr : own_.data();
    state_ = own_.empty() ? CISTERN_UNINITIALISED : CISTERN_HOST_ONLY;
    checked_ = of.checked;
    demand(cistern_unified_create(&of, &buffer_) == CISTERN_OK, "create");
  }
  void end() {
    look_at_all();
    if (world_.may_fail) world_.let_fail(false);
    demand(cistern_unified_destroy(buffer_) == CISTERN_OK, "destroy");
    if (world_.may_fail) world_.let_fail(true);
  }

  unsigned char any_byte() { return static_cast<unsigned char>(number_(256)); }
  Part any_part() {
    if (number_(3) == 0) return {0, bytes_};
    const std::size_t begin = number_(static_cast<std::uint32_t>(bytes_));
    return {begin, 1 + number_(static_cast<std::uint32_t>(bytes_ - begin))};
  }

  // --- The model's state
  bool has_all(const std::vector<bool>& side) const { return std::find(side.begin(), side.end(), false) == side.end(); }
  cistern_state derived() const {
    if (has_all(on_host_) && has_all(on_device_)) return CISTERN_SYNCHRONISED;
    if (has_all(on_host_)) return only_ ? CISTERN_HOST_ONLY : CISTERN_HOST_DIRTY;
    demand(has_all(on_device_), "each byte is somewhere");
    return only_ ? CISTERN_DEVICE_ONLY : CISTERN_DEVICE_DIRTY;
  }
  void settle() {
    state_ = derived();
    check_state();
  }
  void check_state() const {
    cistern_state seen = CISTERN_UNINITIALISED;
    demand(cistern_unified_get_state(buffer_, &seen) == CISTERN_OK, "get_state");
    if (seen != state_) fail("it is in state " + std::to_string(seen));
    const bool host_dirty = state_ == CISTERN_HOST_DIRTY, device_dirty = state_ == CISTERN_DEVICE_DIRTY;
    const std::vector<bool>* const lacking = host_dirty ? &on_device_ : device_dirty ? &on_host_ : nullptr;
    std::size_t offset = 0, count = 0, at = 0;
    while (cistern_unified_next_dirty(buffer_, &offset, &count) == CISTERN_OK) {
      demand(lacking, "dirty parts in a state that has none");
      for (; at < offset; ++at) demand((*lacking)[at], "a dirty byte is not said to be");
      for (; at < offset + count; ++at) demand(!(*lacking)[at], "a byte that is not dirty is said to be");
      offset += count;
    }
    for (; lacking && at < bytes_; ++at) demand((*lacking)[at], "a dirty byte is not said to be");
  }
  // After a failure: what is said of it, which may be less dirty than before and nothing else.
  void adopt() {
    cistern_state seen = CISTERN_UNINITIALISED;
    demand(cistern_unified_get_state(buffer_, &seen) == CISTERN_OK, "get_state");
    if (seen == state_ && seen != CISTERN_HOST_DIRTY && seen != CISTERN_DEVICE_DIRTY) return;
    demand(seen != CISTERN_UNINITIALISED && state_ != CISTERN_UNINITIALISED, "a failure leaves it uninitialised");
    std::vector<bool>& lacking = state_ == CISTERN_HOST_ONLY || state_ == CISTERN_HOST_DIRTY ? on_device_ : on_host_;
    demand(
        seen == CISTERN_SYNCHRONISED || seen == (&lacking == &on_device_ ? CISTERN_HOST_DIRTY : CISTERN_DEVICE_DIRTY),
        "a failure makes another state");
    std::vector<bool> now(bytes_, true);
    std::size_t offset = 0, count = 0;
    for (; cistern_unified_next_dirty(buffer_, &offset, &count) == CISTERN_OK; offset += count)
      std::fill_n(now.begin() + static_cast<std::ptrdiff_t>(offset), count, false);
    for (std::size_t i = 0; i < bytes_; ++i) demand(now[i] || !lacking[i], "a failure makes a byte dirty");
    lacking = now;
    only_ = false;
    state_ = seen;
    settle();
  }
  void set(std::vector<bool>& side, Part part, bool has) {
    std::fill_n(side.begin() + static_cast<std::ptrdiff_t>(part.begin), part.bytes, has);
  }
  // What the access brings to `to`, and what a write makes of the other side.
  void accessed(std::vector<bool>& to, std::vector<bool>& other, Part part, cistern_access access) {
    const bool first = state_ == CISTERN_UNINITIALISED;
    if (first) {
      to.assign(bytes_, true);
      only_ = &to == &on_host_;
    } else if (!has_all(to)) {
      only_ = false;
      if (access == CISTERN_READ)
        set(to, part, true);
      else
        to.assign(bytes_, true);
    } else if (access != CISTERN_READ && has_all(other)) {
      only_ = false;
    }
    if (access == CISTERN_READ) return;
    if (first || only_)
      other.assign(bytes_, false);
    else
      set(other, part, false);
  }

  // --- Contents
  void check_bytes(const unsigned char* seen, Part part, const char* where) const {
    for (std::size_t i = 0; i < part.bytes; ++i)
      if (known_[part.begin + i] && seen[i] != value_[part.begin + i])
        fail(std::string(where) + ": byte " + std::to_string(part.begin + i) + " is " + std::to_string(seen[i]) +
             " and not " + std::to_string(value_[part.begin + i]));
  }
  void check_look(Look& look) {
    for (std::size_t i = 0; i < look.expected.size(); ++i)
      if (look.known[i] && look.bytes[i] != look.expected[i])
        fail("on the device byte " + std::to_string(i) + " of a part was " + std::to_string(look.bytes[i]) +
             " and not " + std::to_string(look.expected[i]));
    look.expected.clear();
  }
  void look_at_all() {
    if (world_.may_fail) world_.let_fail(false);
    for (void* const queue : world_.queues)
      demand(cistern_queue_wait(world_.settings.kind, 0, queue) == CISTERN_OK, "queue_wait");
    for (Look& look : looks_) check_look(look);
    if (world_.may_fail) world_.let_fail(true);
  }
  // Enqueued: what the device has then.
  void look_at_device(void* address, Part part, void* queue) {
    Look& look = looks_[next_look_++ % std::size(looks_)];
    if (world_.may_fail) world_.let_fail(false);
    if (!look.expected.empty()) {
      demand(cistern_queue_wait(world_.settings.kind, 0, look.queue) == CISTERN_OK, "queue_wait");
      check_look(look);
    }
    look.queue = queue;
    const auto begin = static_cast<std::ptrdiff_t>(part.begin),
               end = static_cast<std::ptrdiff_t>(part.begin + part.bytes);
    look.expected.assign(value_.begin() + begin, value_.begin() + end);
    look.known.assign(known_.begin() + begin, known_.begin() + end);
    const cistern_part source = on_device(address, part), target{sizeof(cistern_part), CISTERN_HOST, look.bytes, 0};
    demand(cistern_enqueue_copy(&target, &source, part.bytes, 0, queue) == CISTERN_OK, "look");
    if (world_.may_fail) world_.let_fail(true);
  }
  cistern_part on_device(void* address, Part part) const {
    const bool by_offset = world_.settings.kind == CISTERN_OPENCL;
    return {sizeof(cistern_part), world_.settings.kind, address, by_offset ? part.begin : 0};
  }
  void write_on_device(void* address, Part part, void* queue) {
    unsigned char pattern[8];
    const unsigned pattern_bytes = 1 + number_(sizeof pattern);
    for (unsigned char& byte : pattern) byte = any_byte();
    const cistern_part target = on_device(address, part);
    if (world_.may_fail) world_.let_fail(false);
    demand(cistern_enqueue_fill(&target, pattern, pattern_bytes, part.bytes, 0, queue) == CISTERN_OK, "enqueue_fill");
    if (world_.may_fail) world_.let_fail(true);
    for (std::size_t i = 0; i < part.bytes; ++i) value_[part.begin + i] = pattern[i % pattern_bytes];
    set(known_, part, true);
  }

  // --- Steps
  void host(Part part, cistern_access access) {
    const bool is_empty = state_ == CISTERN_UNINITIALISED && access == CISTERN_READ;
    void* address = nullptr;
    const cistern_status status = cistern_unified_host(buffer_, part.begin, part.bytes, access, &address);
    demand((address != nullptr) == (status == CISTERN_OK), "an address and no success");
    if (!expect(status, is_empty ? CISTERN_EMPTY : CISTERN_OK, "host")) return;
    auto* const bytes = static_cast<unsigned char*>(address);
    if (access != CISTERN_OVERWRITE) check_bytes(bytes, part, "host");
    accessed(on_host_, on_device_, part, access);
    settle();
    if (access == CISTERN_READ) return;
    for (std::size_t i = 0; i < part.bytes; ++i) value_[part.begin + i] = bytes[i] = any_byte();
    set(known_, part, true);
    if (!checked_) return;
    if (number_(4) == 0) all_are_busy();
    demand(cistern_unified_end_write(buffer_) == CISTERN_OK, "end_write");
  }
  void all_are_busy() {
    void* address = nullptr;
    void* const queue = world_.queues[0];
    const unsigned char byte = 1;
    for (const cistern_status status :
         {cistern_unified_host(buffer_, 0, 1, CISTERN_WRITE, &address),
          cistern_unified_device(buffer_, 0, 1, CISTERN_READ, queue, &address),
          cistern_unified_mark(buffer_, CISTERN_HOST_SIDE, 0, 1), cistern_unified_synchronize(buffer_, 0, 1, queue),
          cistern_unified_fill(buffer_, &byte, 1, queue), cistern_unified_drop(buffer_, CISTERN_DEVICE_SIDE)})
      demand(status == CISTERN_BUSY, "two writers");
  }
  void device(Part part, cistern_access access, void* queue) {
    const bool is_empty = state_ == CISTERN_UNINITIALISED && access == CISTERN_READ;
    void* address = nullptr;
    const cistern_status status = cistern_unified_device(buffer_, part.begin, part.bytes, access, queue, &address);
    demand((address != nullptr) == (status == CISTERN_OK), "an address and no success");
    if (!expect(status, is_empty ? CISTERN_EMPTY : CISTERN_OK, "device")) return;
    accessed(on_device_, on_host_, part, access);
    settle();
    if (access != CISTERN_OVERWRITE) look_at_device(address, part, queue);
    if (access == CISTERN_READ) return;
    write_on_device(address, part, queue);
    if (access == CISTERN_OVERWRITE) look_at_device(address, part, queue);
  }
  // By an address from before: whoever does that waits first.
  void mark(Part part, cistern_side side, void* queue) {
    std::vector<bool>& own = side == CISTERN_HOST_SIDE ? on_host_ : on_device_;
    std::vector<bool>& other = side == CISTERN_HOST_SIDE ? on_device_ : on_host_;
    cistern_status expected = CISTERN_OK;
    if (state_ == CISTERN_UNINITIALISED)
      expected = CISTERN_EMPTY;
    else if (!has_all(own))
      expected = CISTERN_CONFLICT;
    const cistern_access read = CISTERN_READ;
    void* address = nullptr;
    if (expected == CISTERN_OK) {
      if (!wait()) return;
      const cistern_status status =
          side == CISTERN_HOST_SIDE ? cistern_unified_host(buffer_, part.begin, part.bytes, read, &address)
                                    : cistern_unified_device(buffer_, part.begin, part.bytes, read, queue, &address);
      if (!expect(status, CISTERN_OK, "before mark")) return;
      if (side == CISTERN_HOST_SIDE) {
        auto* const bytes = static_cast<unsigned char*>(address);
        for (std::size_t i = 0; i < part.bytes; ++i) value_[part.begin + i] = bytes[i] = any_byte();
        set(known_, part, true);
      } else {
        write_on_device(address, part, queue);
      }
    }
    if (!expect(cistern_unified_mark(buffer_, side, part.begin, part.bytes), expected, "mark")) return check_state();
    accessed(own, other, part, CISTERN_WRITE);
    settle();
    // The mark of a device's side says nothing of a queue.
    if (side == CISTERN_DEVICE_SIDE) look_at_all();
  }
  void synchronize(Part part, void* queue) {
    const bool is_empty = state_ == CISTERN_UNINITIALISED;
    const cistern_status status = cistern_unified_synchronize(buffer_, part.begin, part.bytes, queue);
    if (!expect(status, is_empty ? CISTERN_EMPTY : CISTERN_OK, "synchronize")) return;
    if (!has_all(on_host_) || !has_all(on_device_)) only_ = false;
    set(on_host_, part, true);
    set(on_device_, part, true);
    settle();
  }
  void fill(void* queue) {
    unsigned char pattern[4];
    const unsigned pattern_bytes = 1 + number_(sizeof pattern);
    for (unsigned char& byte : pattern) byte = any_byte();
    const cistern_status expected = state_ == CISTERN_HOST_DIRTY ? CISTERN_CONFLICT : CISTERN_OK;
    const cistern_status status = cistern_unified_fill(buffer_, pattern, pattern_bytes, queue);
    if (status != CISTERN_OK && expected == CISTERN_OK) return fill_broken_off(status);
    if (!expect(status, expected, "fill")) return check_state();
    for (std::size_t i = 0; i < bytes_; ++i) value_[i] = pattern[i % pattern_bytes];
    known_.assign(bytes_, true);
    on_device_.assign(bytes_, true);
    on_host_.assign(bytes_, false);
    only_ = true;
    settle();
  }
  // Of what the device had parts may be filled.
  void fill_broken_off(cistern_status status) {
    demand(world_.may_fail && (status == CISTERN_DRIVER || status == CISTERN_NO_MEMORY), "fill");
    ++failed_;
    if (state_ == CISTERN_UNINITIALISED) return check_state();
    cistern_state seen = CISTERN_UNINITIALISED;
    cistern_unified_get_state(buffer_, &seen);
    if (seen == state_ && !has_all(on_host_) && state_ == CISTERN_DEVICE_DIRTY) return check_state();  // not begun
    if (seen == state_ && state_ == CISTERN_SYNCHRONISED) return check_state();
    only_ = true;
    if (has_all(on_host_)) {
      on_device_.assign(bytes_, false);
    } else {
      on_host_.assign(bytes_, false);
      known_.assign(bytes_, false);
    }
    settle();
  }
  void drop(cistern_side side) {
    std::vector<bool>& own = side == CISTERN_HOST_SIDE ? on_host_ : on_device_;
    const std::vector<bool>& other = side == CISTERN_HOST_SIDE ? on_device_ : on_host_;
    const cistern_status expected = state_ == CISTERN_UNINITIALISED ? CISTERN_EMPTY
                                    : has_all(other)                ? CISTERN_OK
                                                                    : CISTERN_CONFLICT;
    if (!expect(cistern_unified_drop(buffer_, side), expected, "drop")) return check_state();
    own.assign(bytes_, false);
    only_ = true;
    settle();
  }
  bool wait() { return expect(cistern_unified_wait(buffer_), CISTERN_OK, "wait"); }
  void wrong_parts() {
    void* address = nullptr;
    void* const queue = world_.queues[0];
    const std::size_t beyond = bytes_ + 1 + number_(3), last = bytes_ - 1;
    for (const Part part : {Part{beyond, 1}, Part{last, 2}, Part{0, bytes_ + 1}, Part{1, SIZE_MAX - 1}}) {
      demand(cistern_unified_host(buffer_, part.begin, part.bytes, CISTERN_WRITE, &address) == CISTERN_BOUNDS, "host");
      demand(cistern_unified_device(buffer_, part.begin, part.bytes, CISTERN_WRITE, queue, &address) == CISTERN_BOUNDS,
             "device");
      demand(cistern_unified_mark(buffer_, CISTERN_HOST_SIDE, part.begin, part.bytes) == CISTERN_BOUNDS, "mark");
      demand(cistern_unified_synchronize(buffer_, part.begin, part.bytes, queue) == CISTERN_BOUNDS, "synchronize");
    }
    demand(cistern_unified_host(buffer_, 0, 0, CISTERN_READ, &address) == CISTERN_INVALID, "no bytes");
    demand(cistern_unified_host(buffer_, 0, 1, static_cast<cistern_access>(3), &address) == CISTERN_INVALID, "access");
    check_state();
  }

  UnifiedWorld world_;
  Number number_;
  cistern_unified* buffer_ = nullptr;
  std::size_t bytes_ = 0;
  cistern_state state_ = CISTERN_UNINITIALISED;
  bool only_ = false, checked_ = false;
  std::vector<unsigned char> value_, own_;
  std::vector<bool> known_, on_host_, on_device_;
  Look looks_[8];
  unsigned next_look_ = 0;
  std::uint64_t steps_ = 0, refused_ = 0, failed_ = 0;
};
