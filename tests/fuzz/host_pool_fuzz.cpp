// Fuzzer of the host pool: the input is a program of calls, run by two threads against a model of what lives.
//
// Each operation is a byte, then the bytes it wants; input that has ended reads as zeros. A block keeps what was
// written into it, wrong frees are refused, and the pool's counts are the model's, now and then and when all is freed.
#include <array>
#include <cstdio>
#include <memory>

#include "tests/support/host_pool.hpp"
#include "tests/support/worker.hpp"

namespace {

using namespace cistern;
using host_pool::Freed;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "host_pool_fuzz: %s\n", what);
  std::abort();
}

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t bytes) : at_(data), end_(data + bytes) {}
  bool is_empty() const { return at_ == end_; }
  unsigned byte() { return is_empty() ? 0 : *at_++; }
  // Two bytes: a few sizes around the edges, and any up to 8 MiB.
  std::size_t size() {
    const unsigned form = byte(), detail = byte();
    if (form < 64) return detail;  // up to 255
    if (form < 128) return host_pool::class_bytes(detail % host_pool::kClasses) + form % 3 - 1;
    if (form < 192) return (form % 64) * 256 + detail;  // up to 16 KiB
    if (form < 224) return host_pool::kSmallMax - 4 + detail % 8;
    if (form < 240) return host_pool::kSliceBytes * (1 + detail % 8) + form % 3 - 1;
    if (form < 254) return (std::size_t{detail} + 1) << 15;             // up to 8 MiB
    return SIZE_MAX - (std::size_t{detail} << (form == 255 ? 0 : 40));  // too much
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

struct Held {
  void* block = nullptr;
  std::size_t bytes = 0;
  std::uint64_t tag = 0;
};

class Program {
 public:
  void run(Input input) {
    here_->run([&] {
      for (unsigned steps = 1; !input.is_empty(); ++steps) {
        step(input);
        if (steps % 64 == 0) check_counts();
      }
    });
    check_counts();
    for (Held& held : held_) drop(held);
    here_->end();
    other_->end();
    check_counts();
    require(test::region_fault().empty(), "the region's descriptors do not fit together");
  }

 private:
  enum Operation {
    kAllocate,
    kAllocateMany,
    kAllocateZeroed,
    kAllocateAligned,
    kReallocate,
    kFree,
    kFreeMany,
    kUsable,
    kRemoteFree,
    kRemoteAllocate,
    kRemoteFreeMany,
    kTrim,
    kFreeTwice,
    kFreeInside,
    kEndOther,
    kOperations
  };

  void step(Input& input) {
    const unsigned operation = input.byte() % kOperations;
    const unsigned place = input.byte() % held_.size();
    Held& held = held_[place];
    switch (operation) {
      case kAllocate:
        return make(held, input.size(), [](std::size_t bytes) { return test::get(bytes); });
      case kAllocateMany: {
        const std::size_t bytes = input.size();
        for (unsigned i = 0; i < 32 && bytes <= host_pool::kSmallMax; ++i)
          make(held_[(place + i) % held_.size()], bytes, [](std::size_t wanted) { return test::get(wanted); });
        return;
      }
      case kAllocateZeroed:
        return make(held, input.size(), [](std::size_t bytes) {
          void* const block = host_pool::allocate_zeroed(bytes);
          require(!block || test::is_zero(block, bytes), "zeroed memory is not zero");
          return block;
        });
      case kAllocateAligned: {
        const std::size_t alignment = std::size_t{1} << input.byte() % 22;
        return make(held, input.size(), [alignment](std::size_t bytes) {
          void* const block = host_pool::allocate_aligned(alignment, bytes);
          require(host_pool::address_of(block) % alignment == 0, "a block is not aligned");
          return block;
        });
      }
      case kReallocate:
        return resize(held, input.size());
      case kFree:
        return drop(held);
      case kFreeMany:
        for (unsigned i = input.byte() % 64; i > 0; --i) drop(held_[(place + i) % held_.size()]);
        return;
      case kUsable:
        if (!held.block) return;
        check(held);
        held.bytes = host_pool::usable_bytes(held.block);
        return fill(held);
      case kRemoteFree:
        return other_->run([&] { drop(held); });
      case kRemoteAllocate: {
        const std::size_t bytes = input.size();
        return other_->run([&] { make(held, bytes, [](std::size_t wanted) { return test::get(wanted); }); });
      }
      case kRemoteFreeMany: {
        const unsigned many = input.byte() % 64;
        return other_->run([&] {
          for (unsigned i = 0; i < many; ++i) drop(held_[(place + i) % held_.size()]);
        });
      }
      case kTrim:
        host_pool::trim_region(std::uint64_t{place} << 16);
        return;
      case kFreeTwice: {
        void* const block = held.block;
        drop(held);
        if (block) require(test::put(block) != Freed::yes && !host_pool::is_live(block), "a double free was accepted");
        return;
      }
      case kFreeInside: {
        if (!held.block) return;
        const std::size_t usable = host_pool::usable_bytes(held.block);
        const std::size_t offset = 1 + input.byte() * 8191 % (usable - 1);
        char* const inside = static_cast<char*>(held.block) + offset;
        require(test::put(inside) == Freed::invalid, "a free inside a block was not refused");
        require(host_pool::whereabouts(inside).block == held.block, "an address inside a block is not found");
        return check(held);
      }
      case kEndOther:
        other_ = std::make_unique<test::Worker>();
        return;
    }
  }

  void check(const Held& held) const {
    require(host_pool::is_live(held.block), "a live block is said to be free");
    require(test::is_filled(held.block, held.bytes, held.tag), "contents have changed");
  }
  void fill(Held& held) {
    held.tag = ++tags_;
    test::fill(held.block, held.bytes, held.tag);
  }
  template <class Allocate>
  void make(Held& held, std::size_t bytes, Allocate allocate) {
    drop(held);
    held = {allocate(bytes), bytes, 0};
    if (!held.block) {
      require(bytes > std::size_t{1} << 30, "no memory");
      return;
    }
    require(bytes <= PTRDIFF_MAX, "a block larger than memory");
    require(host_pool::usable_bytes(held.block) >= bytes, "a block is too small");
    fill(held);
  }
  void drop(Held& held) {
    if (!held.block) return;
    check(held);
    require(test::put(held.block) == Freed::yes, "a block could not be freed");
    held = {};
  }
  void resize(Held& held, std::size_t bytes) {
    if (!held.block) return;
    void* const resized = host_pool::reallocate(held.block, bytes);
    if (!resized) {
      require(bytes > std::size_t{1} << 30, "no memory for a larger block");
      return check(held);
    }
    require(host_pool::usable_bytes(resized) >= bytes, "a resized block is too small");
    require(test::is_filled(resized, held.bytes, held.tag, std::min(held.bytes, bytes)), "resizing changed contents");
    held.block = resized;
    held.bytes = bytes;
    fill(held);
  }
  void check_counts() const {
    test::Live live;
    for (const Held& held : held_)
      if (held.block) test::count_block(live, held.block, 1);
    require(test::live_since(before_) == live, "the pool counts other live blocks");
  }

  const test::Live before_ = test::live_now();
  std::array<Held, 256> held_;
  std::uint64_t tags_ = 0;
  std::unique_ptr<test::Worker> here_ = std::make_unique<test::Worker>(), other_ = std::make_unique<test::Worker>();
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  Program().run(Input(data, bytes));
  return 0;
}
