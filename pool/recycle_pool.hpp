// A pool that recycles whole chunks. It keeps a chunk that the program gave back, and gives it to the next request with
// the same key. Chunks that commands may still use wait in quarantine until their fence has settled. If the pool is
// over its cap, and after an interval, the oldest unused chunks go back to the source first.
//
//   allocate(key, request) -> take(key) -> bin of the key, newest first
//                          -> advance(group): quarantined chunks that have settled move to their bins, oldest first
//                          -> with_room(source.acquire): out of memory: release everything kept, and again
//   take_near(key, bytes_max) -> the bin with the fewest bytes that suffice
//   give(key, chunk, fence) -> bin, or quarantine until the fence has settled -> over the cap: release the oldest
//   settle(group) -> all of a group's quarantine that has settled
//   trim_those(what, now, goes) -> release the oldest of those whose key goes
//   give_up(key, bytes) -> release the largest and oldest of the key's group and traits
//   give_up_those(goes, bytes) -> the same, of every group and traits whose key goes
//   drain(group) -> release all of one group (a context that goes away); waits for chunks in other threads' hands
//   take_out(group, visit) -> the same, but visit(key, chunk, waits) decides what becomes of each
//
// The source is never called under the lock: a chunk is first taken out, or marked as being looked at, and counted as
// borrowed from its group, so that a drain can wait for it. A pool without a thread tier in front may have a spin lock,
// which costs one locked instruction for each take and give, not two.
#pragma once
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <utility>

#include "pool/acquire.hpp"
#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "pool/limits.hpp"
#include "pool/pool_key.hpp"
#include "pool/source.hpp"

namespace cistern {

struct PoolUsage {
  std::uint64_t blocks = 0, bytes = 0, largest_bytes = 0;
};

template <Source S, class L = Lock>
class RecyclePool {
 public:
  using Chunk = typename S::Chunk;
  using Fence = typename S::Fence;
  using Key = PoolKey;
  using Answer = Acquired<Chunk, typename S::Error>;

  constexpr explicit RecyclePool(S& source) : source_(source) {}
  RecyclePool(const RecyclePool&) = delete;
  RecyclePool& operator=(const RecyclePool&) = delete;

  void set_limits(const PoolLimits& limits) {
    Locked hold(lock_);
    bytes_max_ = limits.bytes_max;
    interval_.set(limits);
  }

  Allocated<Answer> allocate(const PoolKey& key, const typename S::Request& request, std::uint64_t now_ns) {
    return acquire(*this, Exactly{*this, request, key}, now_ns);
  }

  // A call that takes memory of the source: what is kept makes way for it.
  template <class Call>
  auto with_room(Call call) {
    return cistern::with_room(Room(*this), call);
  }

  // A settled chunk with this key, or nothing. Not inlined: inside of its caller a pair of CUDA blocks of 16 MiB
  // took 15 ns more.
  [[gnu::noinline]] std::optional<Chunk> take(const PoolKey& key, std::uint64_t now_ns) {
    std::optional<Chunk> chunk = take_from_bin(key);
    interval_.trim(*this, now_ns);
    if (chunk || !advance(key.group)) return chunk;
    return take_from_bin(key);
  }

  // A settled chunk of the key's group and traits, with at least its bytes and at most `bytes_max`; the smallest.
  std::optional<Chunk> take_near(const PoolKey& key, std::uint64_t bytes_max) {
    Locked hold(lock_);
    for (auto near = by_size_.lower_bound(key); near != by_size_.end(); ++near) {
      const auto& [of, bin] = *near;
      if (of.group != key.group || of.traits != key.traits || of.bytes > bytes_max) break;
      if (bin->chunks.last) return take_newest(*bin);
    }
    return std::nullopt;
  }

  // Takes a chunk out of the program's hands. `waits`: the fence has to settle first.
  void give(const PoolKey& key, Chunk chunk, Fence&& fence, bool waits, std::uint64_t now_ns) {
    if (waits) {
      // The source is asked now, so that it notes exactly the commands up to here, and none that come later.
      const Settled settled = source_.settled(chunk, fence);
      if (settled == Settled::never) {
        fence = Fence{};
        return release(chunk, true);
      }
      if (settled == Settled::yes) fence = Fence{}, waits = false;
    }
    Node* over = nullptr;
    bool kept = false;
    {
      Locked hold(lock_);
      kept = !short_of_memory_.load();
      if (kept) [[likely]]
        over = keep(key, chunk, std::move(fence), waits, now_ns);
    }
    if (!kept) [[unlikely]] {
      fence = Fence{};
      return release(chunk, waits);
    }
    if (over) release_borrowed(over);
    interval_.trim(*this, now_ns);
    if (waits) advance(key.group);
  }

  // Every quarantined chunk of the group that has settled moves to its bin, as far as the source knows now.
  void settle(std::uintptr_t group) {
    while (waiting_bytes() && advance(group)) {
    }
  }

  // Releases the oldest until `keep_bytes` are left, but none used within `unused_for_ns`. Returns the bytes released.
  std::uint64_t trim(const Trim& what, std::uint64_t now_ns) {
    return trim(what, now_ns, [this](Chunk chunk, bool unsettled) { release(chunk, unsettled); });
  }
  // release(chunk, unsettled) gives one back to the source.
  template <class Release>
  std::uint64_t trim(const Trim& what, std::uint64_t now_ns, Release release) {
    return trim(what, now_ns, release, [](const PoolKey&) { return true; });
  }
  // The same for the chunks with goes(key).
  template <class Goes>
  std::uint64_t trim_those(const Trim& what, std::uint64_t now_ns, Goes goes) {
    return trim(
        what, now_ns, [this](Chunk chunk, bool unsettled) { release(chunk, unsettled); }, goes);
  }
  template <class Release, class Goes>
  std::uint64_t trim(const Trim& what, std::uint64_t now_ns, Release release, Goes goes) {
    Node* old = nullptr;
    std::uint64_t bytes = 0;
    {
      Locked hold(lock_);
      for (Node *node = by_age_.first, *next; node; node = next) {
        next = node->age.next;
        if (usage_bytes() <= what.keep_bytes || elapsed_ns(node->given_ns, now_ns) < what.unused_for_ns) break;
        if (node->looked_at || (what.settled_only && node->waits) || !goes(node->key)) continue;
        bytes += node->key.bytes;
        borrow(node, old);
      }
      forget_empty_bins();
    }
    end_borrowed(old, [&](const Node& node) { release(node.chunk, node.waits); });
    return bytes;
  }

  // Releases settled chunks of the key's group and traits, together at least so many bytes. It prefers few chunks,
  // chunks not much larger than needed, and those that were given longest ago. release(chunk) gives one back to the
  // source.
  template <class Release>
  PoolUsage give_up(const PoolKey& key, std::uint64_t bytes, Release release) {
    return give_up_best(bytes, release, [&](Choice& choice) {
      look_at_oldest(choice, [&](const PoolKey& of) { return is_like(of, key); });
      look_at_sizes(choice, key);
    });
  }
  // The same for all chunks with goes(key), which is called under the lock and looks at group and traits only.
  template <class Goes, class Release>
  PoolUsage give_up_those(Goes goes, std::uint64_t bytes, Release release) {
    return give_up_best(bytes, release, [&](Choice& choice) {
      look_at_oldest(choice, goes);
      for (auto at = by_size_.begin(); at != by_size_.end();) {
        const PoolKey key = at->first;
        if (goes(key)) look_at_sizes(choice, key);
        at = by_size_.upper_bound({key.group, key.traits, ~std::uint64_t{0}});
      }
    });
  }

  // Releases every chunk of a group. On return none of them is in the hands of another thread either.
  void drain(std::uintptr_t group) {
    take_out(group, [this](const PoolKey&, Chunk chunk, bool) { source_.release(chunk); });
  }

  // Takes out every chunk of a group, settled or not (`waits`), and calls visit(key, chunk, waits) for it, not under
  // the lock.
  template <class Visit>
  void take_out(std::uintptr_t group, Visit visit) {
    for (;;) {
      Node* all = nullptr;
      bool others_busy = false;
      {
        Locked hold(lock_);
        auto found = groups_.find(group);
        if (found == groups_.end()) return;
        others_busy = found->second.borrowed != 0;
        for (Node *node = by_age_.first, *next; node; node = next) {
          next = node->age.next;
          if (node->key.group == group && !node->looked_at) borrow(node, all);
        }
        if (!all && !others_busy) {
          forget_empty_bins();
          groups_.erase(found);
          return;
        }
      }
      end_borrowed(all, [&](const Node& node) { visit(node.key, node.chunk, node.waits); });
      if (others_busy) sched_yield();
    }
  }

  PoolUsage usage() const {
    Locked hold(lock_);
    PoolUsage usage{0, usage_bytes(), 0};
    for (Node* node = by_age_.first; node; node = node->age.next) {
      ++usage.blocks;
      if (node->key.bytes > usage.largest_bytes) usage.largest_bytes = node->key.bytes;
    }
    return usage;
  }

  std::uint64_t usage_bytes() const { return usage_bytes_.load(std::memory_order_relaxed); }

  // Gives to the source what no pool holds.
  void release(Chunk chunk, bool unsettled) {
    if constexpr (requires { source_.release_unsettled(chunk); })
      if (unsettled) return source_.release_unsettled(chunk);
    source_.release(chunk);
  }

  // Waits for chunks that other threads are giving back to the source, or are looking at, at this moment. False: there
  // are none.
  bool wait_for_releases() {
    bool any = false;
    for (int waits = 0; waits < kWaitsForLooksMax && anyone_looks(); ++waits, any = true) sched_yield();
    const std::uint64_t begun = borrowed_.load();
    for (; releases_one_of_first(begun); any = true) sched_yield();
    return any;
  }

  // Bytes of chunks whose fence has not settled, as far as is known.
  std::uint64_t waiting_bytes() const { return waiting_bytes_.load(std::memory_order_relaxed); }

  // Calls visit(chunk) for each of them, under the lock.
  template <class Visit>
  void for_each_waiting(Visit visit) const {
    if (!waiting_bytes()) return;
    Locked hold(lock_);
    for (const Node* node = by_age_.first; node; node = node->age.next)
      if (node->waits) visit(node->chunk);
  }

  // Calls visit(key) for every chunk that is kept.
  template <class Visit>
  void for_each(Visit visit) const {
    Locked hold(lock_);
    for (Node* node = by_age_.first; node; node = node->age.next) visit(node->key);
  }

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork_in_parent() { lock_.unlock_after_fork(); }
  // The driver's threads are not in the child: what was kept is forgotten, not released. Fences may own driver objects,
  // which the child must not touch: they are abandoned with their nodes.
  void after_fork_in_child() {
    by_age_ = {};
    usage_bytes_ = 0;
    waiting_bytes_ = 0;
    nodes_ = 0;
    being_released_ = {};
    short_of_memory_ = 0;
    by_size_.clear();
    bins_.clear();
    groups_.clear();
    lock_.unlock_after_fork();
  }

 private:
  // A chunk of one size, and no other.
  struct Exactly {
    RecyclePool& pool;
    const typename S::Request& request;
    const PoolKey& key;
    std::uint64_t bytes_max() const { return key.bytes; }
    bool is_there(Chunk) const { return true; }
    Answer acquire_new() {
      return pool.with_room([&] { return pool.source_.acquire(request); });
    }
  };

  // The kept chunks as room for a call (RoomFor). From its first make() to its end the pool keeps no chunk: all that
  // the program gave back before the call goes to the source, whichever thread holds it.
  class Room {
   public:
    explicit Room(RecyclePool& pool) : pool_(pool) {}
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    ~Room() {
      if (short_) pool_.short_of_memory_.fetch_sub(1);
    }
    template <class T>
    bool out_of_memory(const Acquired<T, typename S::Error>& answer) const {
      return !answer.ok && pool_.source_.out_of_memory(answer.error);
    }
    std::uint64_t given_back() const { return pool_.released_.load(); }
    bool make() {
      if (!std::exchange(short_, true)) pool_.short_of_memory_.fetch_add(1);
      pool_.release_all();
      return false;
    }

   private:
    RecyclePool& pool_;
    bool short_ = false;
  };

  struct Node;
  struct Bin;
  struct Group;
  struct Links {
    Node* previous = nullptr;
    Node* next = nullptr;
  };
  struct Node {
    PoolKey key;
    Chunk chunk;
    Fence fence;
    std::uint64_t given_ns;
    bool waits;
    bool looked_at;  // by a thread that asks the source about it: stays where it is until that thread comes back
    Bin* bin;        // where it lies, or will lie when its fence has settled
    Links home;      // in its bin, or in the quarantine of its group
    Links age;       // among all, oldest first; or among those that are being released, by number
    std::uint64_t release_number = 0;
    std::uint64_t given_number = 0;  // counts all chunks that were given
  };

  // Doubly linked through one of the two Links of a node.
  template <Links Node::*Member>
  struct List {
    Node* first = nullptr;
    Node* last = nullptr;
    void push_back(Node* node) {
      (node->*Member) = {last, nullptr};
      (last ? (last->*Member).next : first) = node;
      last = node;
    }
    void remove(Node* node) {
      Links& links = node->*Member;
      (links.previous ? (links.previous->*Member).next : first) = links.next;
      (links.next ? (links.next->*Member).previous : last) = links.previous;
    }
  };
  using HomeList = List<&Node::home>;
  using AgeList = List<&Node::age>;

  struct Group {
    HomeList quarantine;      // oldest first
    Node* further = nullptr;  // in the quarantine: where the next look beyond its head begins
    std::uint64_t looks = 0;
    std::uint64_t borrowed = 0;
  };
  // Bins and groups stay where they are in memory; a bin goes when it is empty and unclaimed, a group when it is
  // drained.
  struct Bin {
    HomeList chunks;
    Group* group = nullptr;
    std::uint64_t nodes = 0;  // that name this bin
  };

  HomeList& home_of(Node* node) { return node->waits ? node->bin->group->quarantine : node->bin->chunks; }

  Node* new_node(const PoolKey& key, Chunk chunk, Fence&& fence, bool waits, std::uint64_t now_ns) {
    void* memory = free_nodes_;
    if (memory)
      free_nodes_ = free_nodes_->home.next;
    else
      memory = internal_allocate(sizeof(Node));
    // A program that keeps asking for new sizes leaves an empty bin for each.
    if (bins_.size() > kEmptyBinsMax + 2 * nodes_) [[unlikely]]
      forget_empty_bins();
    Bin& bin = bins_[key];
    if (!bin.group) {
      bin.group = &groups_[key.group];
      by_size_.emplace(key, &bin);
    }
    ++bin.nodes;
    ++nodes_;
    return new (memory) Node{key, chunk, std::move(fence), now_ns, waits, false, &bin, {}, {}};
  }
  // The node's fence is empty by now.
  void free_node(Node* node) {
    --node->bin->nodes;
    --nodes_;
    node->home.next = free_nodes_;
    free_nodes_ = node;
  }

  // Written under the lock, so no read-modify-write is needed; `change` wraps for less.
  void count_waiting(const Node* node, std::uint64_t change) {
    waiting_bytes_.store(waiting_bytes() + change, std::memory_order_relaxed);
    if constexpr (requires { source_.note_waiting(node->chunk, change); }) source_.note_waiting(node->chunk, change);
  }

  void count_usage(std::uint64_t change) { usage_bytes_.store(usage_bytes() + change, std::memory_order_relaxed); }

  void leave_home(Node* node) {
    Group& group = *node->bin->group;
    if (group.further == node) group.further = node->home.next;
    home_of(node).remove(node);
    if (node->waits) count_waiting(node, -node->key.bytes);
  }
  void enter_home(Node* node) {
    home_of(node).push_back(node);
    if (node->waits) count_waiting(node, node->key.bytes);
  }

  // Age order holds because every chunk that arrives is the youngest; one that only settles keeps its place.
  void link_youngest(Node* node) {
    node->given_number = ++given_;
    enter_home(node);
    by_age_.push_back(node);
    count_usage(node->key.bytes);
  }
  void unlink(Node* node) {
    leave_home(node);
    by_age_.remove(node);
    count_usage(-node->key.bytes);
  }
  void borrow(Node* node, Node*& chain) {
    unlink(node);
    ++node->bin->group->borrowed;
    begin_release(node);
    node->home = {nullptr, chain};
    chain = node;
  }

  void begin_release(Node* node) {
    node->release_number = ++borrowed_;
    being_released_.push_back(node);
  }
  bool releases_one_of_first(std::uint64_t number) const {
    Locked hold(lock_);
    return being_released_.first && being_released_.first->release_number <= number;
  }

  bool anyone_looks() const {
    Locked hold(lock_);
    const Node* node = by_age_.first;
    while (node && !node->looked_at) node = node->age.next;
    return node;
  }

  // Returns the chunks that have to go instead.
  Node* keep(const PoolKey& key, Chunk chunk, Fence&& fence, bool waits, std::uint64_t now_ns) {
    Node* over = nullptr;
    Node* node = new_node(key, chunk, std::move(fence), waits, now_ns);
    link_youngest(node);
    // A chunk larger than the cap must not push out all others before it goes itself.
    if (key.bytes > bytes_max_) [[unlikely]]
      borrow(node, over);
    else if (usage_bytes() > bytes_max_) [[unlikely]]
      over = unlink_oldest_until(bytes_max_);
    return over;
  }

  Node* unlink_oldest_until(std::uint64_t bytes) {
    Node* chain = nullptr;
    for (Node *node = by_age_.first, *next; node && usage_bytes() > bytes; node = next) {
      next = node->age.next;
      if (!node->looked_at) borrow(node, chain);
    }
    return chain;
  }

  // No chunk comes in meanwhile (short_of_memory_), so the loop ends. Then it waits for all chunks that are being
  // released.
  void release_all() {
    for (bool empty = false; !empty;) {
      Node* all = nullptr;
      {
        Locked hold(lock_);
        for (Node *node = by_age_.first, *next; node; node = next) {
          next = node->age.next;
          if (!node->looked_at) borrow(node, all);
        }
        empty = !by_age_.first;
        forget_empty_bins();
      }
      release_borrowed(all);
      if (!empty) sched_yield();
    }
    wait_for_releases();
  }

  void release_borrowed(Node* chain) {
    end_borrowed(chain, [this](const Node& node) { release(node.chunk, node.waits); });
  }
  template <class End>
  void end_borrowed(Node* chain, End end) {
    while (chain) {
      Node* node = chain;
      chain = node->home.next;
      node->fence = Fence{};  // may hold what the chunk lives in: it ends first, and not under the lock
      end(*node);
      Locked hold(lock_);
      released_ += 1;
      being_released_.remove(node);
      --node->bin->group->borrowed;
      free_node(node);
    }
  }

  std::optional<Chunk> take_from_bin(const PoolKey& key) {
    Locked hold(lock_);
    auto found = bins_.find(key);
    if (found == bins_.end() || !found->second.chunks.last) return std::nullopt;
    return take_newest(found->second);
  }

  // The newest chunk is taken: its pages are warm.
  Chunk take_newest(Bin& bin) {
    Node* node = bin.chunks.last;
    unlink(node);
    const Chunk chunk = node->chunk;
    free_node(node);  // its fence settled, and is empty
    return chunk;
  }

  // Looks at quarantined chunks of the group; true: one settled. It looks at the head as long as chunks settle there,
  // since commands of one queue end in order. Now and then it looks further on: a chunk that one queue holds up must
  // not hide chunks of other queues.
  bool advance(std::uintptr_t group) {
    bool any = false;
    for (int i = 0; i < kLooksAtHead; ++i) {
      Node* node = begin_look(group, Look::at_head);
      if (!node) break;
      const Settled settled = finish_look(node);
      if (settled == Settled::no) break;
      any |= settled == Settled::yes;
    }
    for (int i = 0; i < kLooksFurther; ++i) {
      Node* node = begin_look(group, Look::further);
      if (!node) break;
      any |= finish_look(node) == Settled::yes;
    }
    return any;
  }

  enum class Look { at_head, further };

  Node* begin_look(std::uintptr_t id, Look look) {
    Locked hold(lock_);
    auto found = groups_.find(id);
    if (found == groups_.end()) return nullptr;
    Group& group = found->second;
    Node* node = group.quarantine.first;
    if (look == Look::further) {
      if (++group.looks % kFurtherEvery >= kLooksFurther) return nullptr;
      if (group.further) node = group.further;
      if (node) group.further = node->home.next;
    }
    if (!node || node->looked_at) return nullptr;
    node->looked_at = true;
    ++group.borrowed;
    return node;
  }

  // `yes`: the chunk lies in its bin now. `never`: it was released.
  Settled finish_look(Node* node) {
    const Settled settled = source_.settled(node->chunk, node->fence);
    if (settled == Settled::yes) node->fence = Fence{};
    {
      Locked hold(lock_);
      node->looked_at = false;
      if (settled != Settled::never) {
        --node->bin->group->borrowed;
        if (settled == Settled::no) return settled;
        leave_home(node);
        node->waits = false;
        enter_home(node);
        return settled;
      }
      unlink(node);
      begin_release(node);
    }
    node->home = {};
    release_borrowed(node);
    return settled;
  }

  void forget_empty_bins() {
    std::erase_if(by_size_, [](const auto& bin) { return !bin.second->nodes; });
    std::erase_if(bins_, [](const auto& bin) { return !bin.second.nodes; });
  }

  static bool is_like(const PoolKey& a, const PoolKey& b) { return a.group == b.group && a.traits == b.traits; }

  // The best chunk to give up, among a few candidates: the oldest ones, and for each group and traits the largest ones
  // and those that just suffice. The best has most bytes, times the number of chunks given since. A chunk larger than
  // needed is worth less, since getting it again costs by its bytes.
  struct Choice {
    std::uint64_t wanted, given;
    Node* best = nullptr;
    double most = 0;
    std::size_t empty_bins = 0;
    void look_at(Node* node) {
      const auto bytes = static_cast<double>(node->key.bytes), of_use = static_cast<double>(wanted);
      const double worth = std::min(bytes, of_use * (of_use / bytes));
      const double worth_by_age = worth * static_cast<double>(given - node->given_number + 1);
      if (worth_by_age <= most) return;
      most = worth_by_age;
      best = node;
    }
  };
  template <class Goes>
  void look_at_oldest(Choice& choice, Goes goes) {
    int looks = kLooksAtOldest;
    for (Node* node = by_age_.first; node && looks > 0; node = node->age.next, --looks)
      if (!node->waits && !node->looked_at && goes(node->key)) choice.look_at(node);
  }
  void look_at_sizes(Choice& choice, const PoolKey& key) {
    int looks = kLooksAtFitting;
    for (auto at = by_size_.lower_bound({key.group, key.traits, choice.wanted}); at != by_size_.end() && looks;
         ++at, --looks) {
      const auto& [of, bin] = *at;
      if (!is_like(of, key)) break;
      if (bin->chunks.first) choice.look_at(bin->chunks.first);
    }
    looks = kLooksAtLargest;
    for (auto end = by_size_.upper_bound({key.group, key.traits, ~std::uint64_t{0}});
         end != by_size_.begin() && looks;) {
      const auto& [of, bin] = *--end;
      if (!is_like(of, key)) break;
      if (bin->chunks.first) {
        choice.look_at(bin->chunks.first);
        --looks;
      } else {
        ++choice.empty_bins;
      }
    }
  }
  // look(choice) looks at those that may go.
  template <class Release, class Look>
  PoolUsage give_up_best(std::uint64_t bytes, Release release, Look look) {
    Node *chain = nullptr, **last = &chain;
    PoolUsage taken;
    {
      Locked hold(lock_);
      while (taken.bytes < bytes) {
        Choice choice{bytes - taken.bytes, given_};
        look(choice);
        if (choice.empty_bins > kEmptyBinsMax / 16) forget_empty_bins();
        if (!choice.best) break;
        ++taken.blocks;
        taken.bytes += choice.best->key.bytes;
        borrow(choice.best, *last);
        last = &choice.best->home.next;
      }
    }
    end_borrowed(chain, [&](const Node& node) { release(node.chunk); });
    return taken;
  }

  static constexpr int kLooksAtOldest = 32, kLooksAtLargest = 8, kLooksAtFitting = 8;
  static constexpr int kWaitsForLooksMax = 1000;  // others may begin looks all the time
  static constexpr int kLooksAtHead = 8;
  static constexpr int kLooksFurther = 4;
  static constexpr int kFurtherEvery = 16;
  static constexpr std::size_t kEmptyBinsMax = 1024;

  S& source_;
  mutable L lock_;
  std::uint64_t bytes_max_ = 0;
  IntervalTrim interval_;
  std::atomic<std::uint64_t> usage_bytes_{0};
  std::atomic<std::uint64_t> waiting_bytes_{0};
  std::atomic<std::uint64_t> borrowed_{0}, released_{0};  // chunks taken out to be released, and done
  std::atomic<int> short_of_memory_{0};  // requests that want everything to go back, and nothing to be kept
  AgeList by_age_, being_released_;
  Node* free_nodes_ = nullptr;
  Map<PoolKey, Bin, PoolKeyHash> bins_;
  // Every bin, empty or not: entered and left with the bin, so that takes and gives do not touch it.
  std::map<PoolKey, Bin*, PoolKeyOrder, InternalAllocator<std::pair<const PoolKey, Bin*>>> by_size_;
  std::size_t nodes_ = 0;
  std::uint64_t given_ = 0;  // chunks, so far
  Map<std::uintptr_t, Group> groups_;
};

}  // namespace cistern
