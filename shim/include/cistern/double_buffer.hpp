// Buffers in turn: one is filled or read on the host while work on the others runs. For batches of any number.
//
//   auto turns = cistern::double_buffer<float>::make(batch, cistern::on_device()).value();
//   for (...) {
//     auto turn = turns.acquire().value();         // waits until the device has done with this one
//     fill(turn->host_overwrite().value());
//     kernel<<<..., stream>>>(turn->device_mut(stream).value());
//   }                                              // given back here
//
// Each is a unified buffer: what work of an earlier turn made of it can be read when it is acquired again. One thread
// acquires; a turn may be given back by any. Errors: result.hpp.
#ifndef CISTERN_DOUBLE_BUFFER_HPP
#define CISTERN_DOUBLE_BUFFER_HPP

#include <cistern/unified_buffer.hpp>

#include <memory>

namespace cistern {

template <element T>
class double_buffer {
  struct slot {
    unified_buffer<T> memory;
    std::atomic<bool> acquired{false};
  };

 public:
  // One of the buffers, until it is given back. It does not outlive them.
  class turn {
   public:
    turn(turn&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    turn& operator=(turn&& other) noexcept {
      release();
      of_ = std::exchange(other.of_, nullptr);
      return *this;
    }
    ~turn() { release(); }
    void release() noexcept {
      if (of_) std::exchange(of_, nullptr)->acquired.store(false, std::memory_order_release);
    }
    unified_buffer<T>& operator*() const noexcept { return of_->memory; }
    unified_buffer<T>* operator->() const noexcept { return &of_->memory; }

   private:
    friend class double_buffer;
    explicit turn(slot* of) noexcept : of_(of) {}
    slot* of_;
  };

  double_buffer(double_buffer&&) noexcept = default;
  double_buffer& operator=(double_buffer&&) noexcept = default;

  // `buffers` of `count` elements each. CISTERN_INVALID: fewer than two.
  static result<double_buffer> make(std::size_t count, place where = on_device(), unsigned buffers = 2,
                                    unified_options options = {.pin = CISTERN_PIN_AT_ONCE}) noexcept {
    constexpr const char* kCall = "double_buffer::make";
    if (buffers < 2 || options.host) return failure{CISTERN_INVALID, kCall};
    double_buffer made(buffers);
    if (!made.slots_) return failure{CISTERN_NO_MEMORY, kCall};
    for (unsigned i = 0; i < buffers; ++i) {
      auto memory = unified_buffer<T>::make(count, where, options);
      if (!memory) return failure{memory.status(), kCall, memory.why().native};
      made.slots_[i].memory = std::move(*memory);
    }
    return made;
  }

  // The next one in turn, when all work is done that was enqueued on streams it was given for. CISTERN_BUSY: it is
  // acquired still.
  result<turn> acquire() noexcept {
    constexpr const char* kCall = "double_buffer::acquire";
    if (!slots_) return failure{CISTERN_EMPTY, kCall};
    slot& next = slots_[next_];
    if (next.acquired.load(std::memory_order_acquire)) return failure{CISTERN_BUSY, kCall};
    if (const auto done = next.memory.wait(); !done) return failure{done.status(), kCall, done.why().native};
    next.acquired.store(true, std::memory_order_relaxed);
    next_ = (next_ + 1) % count_;
    return turn(&next);
  }
  unsigned buffers() const noexcept { return slots_ ? count_ : 0; }

 private:
  explicit double_buffer(unsigned count) noexcept : slots_(new (std::nothrow) slot[count]), count_(count) {}

  std::unique_ptr<slot[]> slots_;
  unsigned count_ = 0, next_ = 0;
};

}  // namespace cistern
#endif
