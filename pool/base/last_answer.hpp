// What a thread last found out about a handle: good until somebody says that answers have changed, so that what hardly
// ever changes is asked for without a lock.
//
//   of(handle, find) -> the thread's last answer, if it was about this handle and nothing has changed since
//                    -> else find(handle), under whatever lock that takes
//   changed()        -> after a change, and before anything that relies on it: no earlier answer is given again
//
// Who is asking while something changes gets the answer from before or after, as he would with a lock.
#pragma once
#include <atomic>
#include <cstdint>

namespace cistern {

template <class Answer>
class LastAnswer {
 public:
  LastAnswer() = default;
  LastAnswer(const LastAnswer&) = delete;
  LastAnswer& operator=(const LastAnswer&) = delete;

  template <class Find>
  Answer of(const void* handle, Find find) {
    // Read before the look: what changes after it makes the answer an old one.
    const std::uint64_t now = changes_.load(std::memory_order_acquire);
    if (last_.handle == handle && last_.changes == now) [[likely]]
      return last_.answer;
    const Answer answer = find(handle);
    last_ = {handle, now, answer};
    return answer;
  }

  void changed() { changes_.fetch_add(1); }

 private:
  struct Last {
    const void* handle = nullptr;
    std::uint64_t changes = 0;
    Answer answer{};
  };

  // All objects of a type share the thread's memory: no two of them ever count the same.
  static constexpr int kChangesBits = 48;
  static inline constinit std::atomic<std::uint64_t> objects_{0};
  static inline constinit thread_local Last last_{};

  std::atomic<std::uint64_t> changes_{(objects_.fetch_add(1) + 1) << kChangesBits};
};

}  // namespace cistern
