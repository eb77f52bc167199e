// Whole blocks that are recycled, as the preload does by default: the pool's own tiers and proportion, with the rules
// of the hooks around them (shim/cuda/hooks/allocate.cpp and free.cpp), for one context and no capture.
#pragma once
#include <unordered_map>

#include "bench/policies/policy.hpp"
#include "pool/proportion.hpp"
#include "pool/tiered_pool.hpp"

namespace bench {

class WholeBlocks final : public Policy {
 public:
  WholeBlocks(Device& device, Order order) : device_(device), order_(order), source_(device), pool_(source_) {
    pool_.set_limits({.bytes_max = kPoolMax, .bytes_min = 0, .interval_ns = 0});
    source_.proportion.set_limits(cistern::Proportion::limits(kPoolPercent, kTrimInterval, 0));
  }
  ~WholeBlocks() override {
    for (const auto& [address, block] : live_) source_.release(block);
    pool_.trim({.keep_bytes = 0, .unused_for_ns = 0}, now_ns());
  }

  std::optional<std::uint64_t> allocate(std::uint64_t bytes, unsigned stream) override {
    const std::uint64_t rounded = rounded_up(bytes, kGranule);
    std::optional<Block*> block;
    if (order_ == Order::stream) block = take_kept(key(rounded, traits(stream)));
    if (!block) block = take_kept(key(rounded));
    const bool hit = block.has_value();
    if (!hit) block = acquire_new(rounded);
    if (!block) return std::nullopt;
    (*block)->recycled |= hit;
    live_bytes_ += rounded;
    waste_bytes_ += (*block)->bytes - rounded;
    allocated_bytes_ += bytes;
    source_.proportion.note_live(live_bytes_);
    live_[(*block)->address] = *block;
    return (*block)->address;
  }

  void deallocate(std::uint64_t address, std::uint64_t bytes, unsigned stream) override {
    Block* const block = live_.extract(address).mapped();
    const bool has_waited = order_ == Order::strict || (order_ == Order::deferred && too_much_waits(*block));
    if (has_waited) device_.synchronise();
    const bool stays = !has_waited || keeps(*block, bytes);
    live_bytes_ -= rounded_up(bytes, kGranule);
    waste_bytes_ -= block->bytes - rounded_up(bytes, kGranule);
    const std::uint64_t reserved = device_.reserved();
    if (!stays)
      source_.release(block);
    else if (order_ == Order::stream)
      pool_.give(key(block->bytes, traits(stream)), block, now_ns());
    else if (has_waited)
      pool_.give(key(block->bytes), block, now_ns());
    else
      pool_.give_waiting(key(block->bytes), block, {device_.now()}, now_ns());
    if (order_ != Order::stream || reserved - std::min(reserved, used_bytes()) > kMuchKept) keep_in_proportion();
  }

 private:
  struct Block {
    std::uint64_t address, bytes;
    bool recycled = false;
  };

  class BlockSource {
   public:
    using Request = std::uint64_t;
    using Chunk = Block*;
    using Error = int;
    struct Fence {
      std::uint64_t moment = 0;
    };
    explicit BlockSource(Device& device) : device_(device) {}
    cistern::Acquired<Block*, Error> acquire(std::uint64_t bytes) {
      if (!device_.take(Call::allocate, bytes)) return {nullptr, kOutOfMemory, false};
      proportion.note_there(bytes);
      return {new Block{device_.new_addresses(bytes), bytes}, 0, true};
    }
    void release(Block* block) {
      proportion.note_gone(block->bytes);
      device_.give_back(Call::free, block->bytes);
      delete block;
    }
    cistern::Settled settled(Block*, const Fence& fence) const {
      return device_.has_ended(fence.moment) ? cistern::Settled::yes : cistern::Settled::no;
    }
    void note_waiting(Block*, std::uint64_t change) { waiting_bytes += change; }
    static bool out_of_memory(Error error) { return error == kOutOfMemory; }

    cistern::Proportion proportion;
    std::uint64_t waiting_bytes = 0;

   private:
    static constexpr Error kOutOfMemory = 2;
    Device& device_;
  };
  static_assert(cistern::Source<BlockSource>);

  // The defaults of CISTERN_DEVICE_POOL_MAX, CISTERN_DEVICE_POOL_PERCENT and CISTERN_TRIM_INTERVAL, and of the hooks.
  static constexpr std::uint64_t kPoolMax = std::uint64_t{1} << 40, kPoolPercent = 115, kTrimInterval = 300'000'000'000;
  static constexpr std::uint64_t kNearDivisor = 4, kWasteDivisor = 64, kMuchKept = std::uint64_t{4} << 30;
  static constexpr std::uint64_t kGranule = 512, kGroup = 1;

  static std::uint64_t traits(unsigned stream) { return 1 + std::uint64_t{stream}; }
  static cistern::PoolKey key(std::uint64_t bytes, std::uint64_t traits = 0) { return {kGroup, traits, bytes}; }
  std::uint64_t now_ns() const { return 1 + 1000 * device_.now(); }
  std::uint64_t used_bytes() const { return live_bytes_ + source_.waiting_bytes; }

  std::optional<Block*> take_kept(const cistern::PoolKey& key) {
    if (const auto block = pool_.take(key, now_ns())) return block;
    const std::uint64_t bytes_max = near_bytes_max(key.bytes);
    return bytes_max > key.bytes ? pool_.take_near(key, bytes_max) : std::nullopt;
  }
  std::uint64_t near_bytes_max(std::uint64_t bytes) const {
    const std::uint64_t total = device_.memory_bytes(), waste_max = total / kWasteDivisor;
    if (device_.reserved() > total / 4 * 3 || waste_bytes_ >= waste_max) return bytes;
    return bytes + std::min(bytes / kNearDivisor, waste_max - waste_bytes_);
  }
  std::optional<Block*> acquire_new(std::uint64_t bytes) {
    auto acquired = source_.acquire(bytes);
    if (!acquired.ok && pool_.trim({.keep_bytes = 0, .unused_for_ns = 0}, now_ns())) acquired = source_.acquire(bytes);
    if (!acquired.ok) return std::nullopt;
    source_.proportion.note_new(bytes);
    return acquired.chunk;
  }

  bool too_much_waits(const Block& freed) {
    const std::uint64_t most = std::max(source_.proportion.most_live(), cistern::Proportion::kKeptAnyway);
    const auto is_over = [&] { return source_.waiting_bytes + freed.bytes > most; };
    if (!is_over()) return false;
    pool_.settle(kGroup);
    return is_over();
  }
  cistern::Proportion::Now standing() const {
    return {.reserved_bytes = device_.reserved(),
            .live_bytes = used_bytes(),
            .waste_bytes = waste_bytes_,
            .allocated_bytes = allocated_bytes_,
            .ns = now_ns()};
  }
  bool keeps(const Block& freed, std::uint64_t bytes) {
    source_.proportion.note_back(freed.bytes, freed.recycled);
    if (source_.proportion.asked_again(freed.bytes)) return true;
    cistern::Proportion::Now now = standing();
    now.live_bytes -= rounded_up(bytes, kGranule);
    now.waste_bytes -= freed.bytes - rounded_up(bytes, kGranule);
    return source_.proportion.keeps(freed.bytes, now);
  }
  void keep_in_proportion() {
    if (!source_.proportion.may_be_over(device_.reserved(), now_ns())) return;
    const std::uint64_t bytes = source_.proportion.begin(standing());
    if (!bytes) return;
    pool_.give_up_those([](const cistern::PoolKey&) { return true; }, bytes);
    source_.proportion.end(bytes);
  }

  Device& device_;
  const Order order_;
  BlockSource source_;
  cistern::TieredPool<BlockSource> pool_;
  std::unordered_map<std::uint64_t, Block*> live_;
  std::uint64_t live_bytes_ = 0, waste_bytes_ = 0, allocated_bytes_ = 0;
};

}  // namespace bench
