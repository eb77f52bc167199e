// Objects that cost much to make, used again: connections, plans, decoders, buffers with registered memory.
//
//   cistern::object_pool<Plan> plans({.create = [] { return Plan(1 << 20); }, .objects_max = 8});
//   auto plan = plans.acquire().value();  // gives it back when it ends
//   plan->run();
//
// C++20, header only, with and without exceptions and RTTI. Thread-safety: any thread may acquire, and end its lease,
// which another thread made; one lease is one thread's at a time. No lock is held while a callback, or a constructor or
// destructor of an object, runs: they may use the pool.
#ifndef CISTERN_OBJECT_POOL_HPP
#define CISTERN_OBJECT_POOL_HPP

#include <cistern/result.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cistern {

// What callbacks throw goes on to whoever acquires, and the object they were about is dropped; what reset throws is
// dropped with the object.
template <class T>
struct object_pool_settings {
  std::function<result<T>()> create;   // may return a T, or a failure
  std::function<bool(T&)> reset{};     // called when one comes back; false: it is dropped
  std::function<bool(T&)> validate{};  // called before one is given again; false: it is dropped, and the next one asked
  std::size_t objects_max = 16;        // kept; any number may be in use
};

struct object_pool_statistics {
  std::uint64_t created = 0;  // == dropped + in_use + kept
  std::uint64_t reused = 0;
  std::uint64_t dropped = 0;         // ended: not valid, not kept, trimmed
  std::uint64_t failed = 0;          // calls of create that made none
  std::size_t in_use = 0, kept = 0;  // now
  double hit_rate = 0;               // reused / (reused + created)
};

template <class T>
class object_pool {
  struct State;

 public:
  // An object in somebody's hands. It may outlive the pool: the object then ends with it, and is not reset.
  class [[nodiscard]] lease {
   public:
    lease() noexcept = default;
    lease(lease&&) noexcept = default;
    lease& operator=(lease&& other) noexcept {
      lease ends(std::move(*this));
      state_ = std::move(other.state_);
      object_ = std::move(other.object_);
      is_good_ = other.is_good_;
      return *this;
    }
    ~lease() { give_back(); }

    explicit operator bool() const noexcept { return object_ != nullptr; }
    T& operator*() const noexcept { return *object_; }
    T* operator->() const noexcept { return object_.get(); }
    T* get() const noexcept { return object_.get(); }

    // Now, and not at the end. Nothing is left here.
    void give_back() noexcept {
      if (object_) state_->take_back(std::move(object_), is_good_);
      state_.reset();
    }
    // It broke: nobody shall have it again.
    void drop() noexcept {
      is_good_ = false;
      give_back();
    }

   private:
    friend object_pool;
    lease(std::shared_ptr<State> state, std::unique_ptr<T> object, bool is_good) noexcept
        : state_(std::move(state)), object_(std::move(object)), is_good_(is_good) {}

    std::shared_ptr<State> state_;
    std::unique_ptr<T> object_;
    bool is_good_ = false;
  };

  explicit object_pool(object_pool_settings<T> settings) : state_(std::make_shared<State>(std::move(settings))) {}
  ~object_pool() { state_->close(); }
  object_pool(const object_pool&) = delete;
  object_pool& operator=(const object_pool&) = delete;

  // What was kept last, if it is valid; else a new one. A failure is that of create. CISTERN_INVALID: there is none.
  result<lease> acquire() {
    for (;;) {
      std::unique_ptr<T> object = state_->take();
      if (!object) return make();
      lease held(state_, std::move(object), false);  // not good until it was found so: validate may throw
      if (state_->settings.validate && !state_->settings.validate(*held)) continue;
      held.is_good_ = true;
      state_->count_reused();
      return result<lease>(std::move(held));
    }
  }

  // Ends those that were kept longest, until `keep` are left. Returns their number.
  std::size_t trim(std::size_t keep) { return state_->trim(keep); }
  // Ends all that are kept. Those in use come back as ever.
  std::size_t clear() { return state_->trim(0); }

  object_pool_statistics statistics() const { return state_->statistics(); }

 private:
  result<lease> make() {
    if (!state_->settings.create) return failure{CISTERN_INVALID, "object_pool::acquire"};
    Attempt attempt{*state_};
    result<T> made = state_->settings.create();
    if (!made) return made.why();
    auto object = std::make_unique<T>(std::move(*made));
    attempt.succeed();
    return lease(state_, std::move(object), true);
  }

  // A failure unless it is said to be none.
  struct Attempt {
    void succeed() {
      state.count_created();
      is_done = true;
    }
    ~Attempt() {
      if (!is_done) state.count_failed();
    }
    State& state;
    bool is_done = false;
  };

  // Shared with the leases. An object is in `kept`, or counted in `in_use`.
  struct State {
    using Objects = std::vector<std::unique_ptr<T>>;

    explicit State(object_pool_settings<T> of) : settings(std::move(of)) {}

    std::unique_ptr<T> take() {
      const std::lock_guard hold(lock);
      if (kept.empty()) return nullptr;
      std::unique_ptr<T> object = std::move(kept.back());
      kept.pop_back();
      ++figures.in_use;
      return object;
    }

    void take_back(std::unique_ptr<T> object, bool is_good) noexcept {
      const bool keeps = is_good && is_open() && is_reset(*object);
      const std::lock_guard hold(lock);
      --figures.in_use;
      if (keeps && !is_closed && kept.size() < settings.objects_max)
        kept.push_back(std::move(object));  // there is room: see count_created()
      else
        ++figures.dropped;
    }  // the parameter, and with it what was dropped, ends after the lock

    bool is_reset(T& object) noexcept {
      if (!settings.reset) return true;
#if __cpp_exceptions
      try {
        return settings.reset(object);
      } catch (...) {
        return false;
      }
#else
      return settings.reset(object);
#endif
    }

    // Room for all that are in use makes that giving back needs no memory.
    void count_created() {
      const std::lock_guard hold(lock);
      const std::size_t objects = figures.in_use + kept.size() + 1;
      if (kept.capacity() < std::min(objects, settings.objects_max))
        kept.reserve(std::max(objects, 2 * kept.capacity()));
      ++figures.created;
      ++figures.in_use;
    }
    void count_reused() {
      const std::lock_guard hold(lock);
      ++figures.reused;
    }
    void count_failed() {
      const std::lock_guard hold(lock);
      ++figures.failed;
    }

    // One at a time: each ends without the lock, and none needs memory.
    std::size_t trim(std::size_t keep) noexcept {
      const std::size_t now = statistics().kept, too_many = now - std::min(now, keep);
      std::size_t ended = 0;
      while (ended < too_many && end_oldest(keep)) ++ended;
      return ended;
    }
    bool end_oldest(std::size_t keep) noexcept {
      std::unique_ptr<T> ends;
      const std::lock_guard hold(lock);
      if (kept.size() <= keep) return false;
      ends = std::move(kept.front());
      kept.erase(kept.begin());
      ++figures.dropped;
      return true;
    }

    bool is_open() {
      const std::lock_guard hold(lock);
      return !is_closed;
    }
    void close() {
      {
        const std::lock_guard hold(lock);
        is_closed = true;
      }
      trim(0);
    }

    object_pool_statistics statistics() {
      const std::lock_guard hold(lock);
      object_pool_statistics of = figures;
      of.kept = kept.size();
      const std::uint64_t given = of.reused + of.created;
      of.hit_rate = given ? static_cast<double>(of.reused) / static_cast<double>(given) : 0;
      return of;
    }

    const object_pool_settings<T> settings;
    std::mutex lock;
    Objects kept;  // the last one is given first
    object_pool_statistics figures;
    bool is_closed = false;
  };

  const std::shared_ptr<State> state_;
};

}  // namespace cistern
#endif
