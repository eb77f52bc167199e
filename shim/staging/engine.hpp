// A copy between pageable memory of the host and a device. The engine decides which way it goes, by the driver's own
// copy or through the ring of bounce buffers, and learns from its time. There is one engine for all kinds of device.
// The class that derives from it, its `Driver`, has these functions, called in this order for one copy:
//
//   copy -> begin: context_of_copy        the context and the device
//                  why_not                the reason why this copy goes the driver's way, whatever was measured
//                  reads_host             says that the device reads host memory itself: then only files are measured
//                  take_in_trials         reads the times of trials that have ended, where a driver tells them later
//                  begin_trial            prepares to time the copy, if its time is wanted
//        -> is_slow_at_first: copy_part   makes the driver's own copy of some of the bytes, and waits for its end
//        -> stage: wait_for_earlier_work  waits for work that must end before the pieces of a copy begin
//                  is_idle                says that no work is ahead of the pieces
//                  pass_ring              copies the pieces through the ring (pool/staging/transfer.hpp)
//        -> end:   end_trial              takes the copy's time, or drop_trial: the copy was no measurement
//
// Beside the State there is trim_rings(State&, unused_for_ns, now_ns), found by its argument: it gives back the chunks
// of all rings that were unused for so long. The Turn has is_long(), lengthen() and shorten(), as staging::Turn has.
//
// Types names the classes of the driver: State, Copy (to_device, host, box and parts), Turn, Answer, CopyContext and
// Trial.
#pragma once
#include <optional>

#include "pool/heap/pages.hpp"
#include "pool/limits.hpp"
#include "pool/staging/turns.hpp"
#include "shim/process/process.hpp"
#include "shim/staging/copy_accounts.hpp"
#include "shim/staging/read_ahead.hpp"
#include "shim/staging/touchable.hpp"
#include "stats/counters.hpp"

namespace cistern {

template <class Driver, class Types>
class StagingEngine {
 public:
  using State = typename Types::State;
  using Copy = typename Types::Copy;
  using Turn = typename Types::Turn;
  using Answer = typename Types::Answer;

  // Copies one way or the other. `native` makes the program's own call.
  template <class Native>
  Answer copy(State& s, const Copy& what, Turn& turn, Native native) {
    Plan plan = begin(s, what);
    if (plan.way == staging::Way::staged) {
      const std::optional<Answer> answer = stage(s, what, turn, plan);
      read_ahead_.end(plan.ahead);
      return answer ? *answer : native();
    }
    if (plan.first_bytes_may && is_slow_at_first(s, what, turn, plan)) {
      const std::optional<Answer> answer =
          stage(s, what.part(staging::kFirstBytes, what.box.bytes() - staging::kFirstBytes), turn, plan);
      read_ahead_.end(plan.ahead);
      return answer ? *answer : native();
    }
    if (plan.of) plan.of->count(plan.trial_wanted ? Unstaged::trial : Unstaged::native_wins, what.box.bytes());
    plan.ahead.reads(what.host.base, what.host.base + staging::span_bytes(what.host, what.box), PagesByAddress());
    const Answer answer = native();
    read_ahead_.end(plan.ahead);
    end(s, what, plan, answer);
    return answer;
  }

  // True: the driver copies this one of a batch with the rest of the batch, which is counted.
  bool leaves(State& s, const Copy& what) { return !choose(s, what).of; }

  CopyAccounts& accounts() { return accounts_; }
  // Null: no copy is staged, and calls need no turns.
  staging::Turns* turns() { return mode_ == StagingMode::off ? nullptr : &turns_; }
  void set_limits(const PoolLimits& limits) { interval_.set(limits); }

  void before_fork() {
    lock_.lock_for_fork();
    accounts_.before_fork();
    sources_.before_fork();
    read_ahead_.before_fork();
    turns_.before_fork();
  }
  void after_fork() {
    turns_.after_fork();
    read_ahead_.after_fork();
    sources_.after_fork();
    accounts_.after_fork();
    lock_.unlock_after_fork();
  }
  void forget_in_child() {
    accounts_.forget_in_child();
    turns_.forget_in_child();
  }

 protected:
  using CopyContext = typename Types::CopyContext;
  using Trial = typename Types::Trial;

  struct Plan {
    staging::Way way = staging::Way::native;
    CopyAccount* of = nullptr;  // the account; null: the copy is passed on, which was counted
    CopyContext copy_context{};
    bool trial_wanted = false;     // the copy's time is
    bool first_bytes_may = false;  // be all that the driver copies
    Trial trial{};
    std::uint64_t begin_ns = 0;
    HostSource source{};
    ReadAhead::Copy ahead{};
  };

  // A trial that has ended, as far as the caller knows: how long it was blocked, for that many bytes, the copy's first.
  struct Tried {
    std::uint64_t blocked_ns, bytes;
  };

  // The result of a copy through the ring.
  struct Passage {
    std::optional<Unstaged> refused{};  // before anything was done
    staging::Outcome outcome{};
    bool untouched = false;  // no piece was enqueued: the program's own call makes the whole copy
    bool grew = false;       // the ring did: page-locking its memory took time, once
    Answer answer{};
  };

  StagingMode mode() const { return mode_; }
  // For why_not.
  bool is_small(State& s, const Copy& what, const CopyContext& copy_context) {
    if (what.box.bytes() >= kStagedBytesMin) return false;
    return !may_be_large(what) || phase() != Phase::running || !driver().reads_host(s, copy_context) ||
           !is_file(mapped_source(what).kind);
  }
  Lock& lock() { return lock_; }

 private:
  Driver& driver() { return static_cast<Driver&>(*this); }

  struct Rings {
    State& s;
    void trim(const Trim& how, std::uint64_t now_ns) { trim_rings(s, how.unused_for_ns, now_ns); }
  };

  // The cheap questions.
  bool may_be_large(const Copy& what) {
    const std::uint64_t bytes = what.box.bytes();
    return bytes >= kStagedBytesMin || (staging::range_of(bytes) && !host_pool::is_in_window(what.host.base));
  }

  HostSource mapped_source(const Copy& what) {
    return sources_.of(what.host.base, staging::span_bytes(what.host, what.box), coarse_now_ns());
  }

  // Looks at a few pages say whether memory is cold or new: it may be a large file, whose copies are many. A trial of
  // memory that only seems to be there would measure nothing.
  HostSource source_of_copy(const Copy& what, const CopyContext& copy_context) {
    constexpr std::size_t kLooks = 4, kLooksBeforeTrials = 32;
    HostSource source = mapped_source(what);
    const std::uint64_t bytes = what.box.bytes();
    if (bytes < kStagedBytesMin) return source;
    const SourceKind without_pages = what.to_device                         ? cold(source.kind)
                                     : source.kind == SourceKind::anonymous ? SourceKind::new_memory
                                                                            : source.kind;
    if (without_pages == source.kind) return source;
    const bool is_decided =
        mode_ == StagingMode::on ||
        accounts_.of(copy_context.device, what.to_device, source.kind).calibration.has_decided(bytes);
    if (!is_resident(what.host, what.box, is_decided ? kLooks : kLooksBeforeTrials)) source.kind = without_pages;
    return source;
  }

  Plan choose(State& s, const Copy& what) {
    Plan plan;
    const std::uint64_t bytes = what.box.bytes();
    if (mode_ != StagingMode::off && may_be_large(what)) plan.copy_context = driver().context_of_copy(s, what);
    std::optional<Unstaged> reason = driver().why_not(s, what, plan.copy_context);
    // A copy that is refused without a look at its memory counts as one of anonymous memory.
    if (!reason) plan.source = source_of_copy(what, plan.copy_context);
    if (!reason && !is_file(plan.source.kind) && driver().reads_host(s, plan.copy_context))
      reason = Unstaged::host_page_tables;
    plan.of = &accounts_.of(plan.copy_context.device, what.to_device, plan.source.kind);
    if (reason) {
      plan.of->count(*reason, bytes);
      plan.of = nullptr;
    }
    return plan;
  }

  Plan begin(State& s, const Copy& what) {
    Rings rings{s};
    if (mode_ != StagingMode::off) interval_.trim(rings, coarse_now_ns());
    Plan plan = choose(s, what);
    if (!plan.of) return plan;
    if (what.to_device && is_file(plan.source.kind))
      plan.ahead = read_ahead_.begin(what.host.base, staging::span_bytes(what.host, what.box), plan.source.mapping_end);
    if (mode_ == StagingMode::on) {
      plan.way = staging::Way::staged;
    } else {
      driver().take_in_trials(s, plan.copy_context);
      const auto choice = plan.of->calibration.choose(what.box.bytes(), nanoseconds_since_start());
      plan.way = choice.way;
      plan.trial_wanted = choice.trial;
      if (choice.trial && may_be_measured(what, plan.source.kind))
        plan.trial = driver().begin_trial(s, what, plan.copy_context);
      plan.first_bytes_may = choice.first_bytes_may && plan.trial && is_file(plan.source.kind) && what.has_parts();
    }
    plan.begin_ns = nanoseconds_since_start();
    return plan;
  }

  // The first touch of memory is no part of a copy's time, but for the kinds that have no pages yet.
  bool may_be_measured(const Copy& what, SourceKind source) const {
    constexpr std::size_t kLooks = 32;
    return is_cold(source) || source == SourceKind::new_memory || is_resident(what.host, what.box, kLooks);
  }

  // Gets the long turn that the pieces need, in which calls of other threads on this stream wait. So if there are other
  // threads, no work may be ahead of the pieces: it might wait for one of those threads.
  std::optional<Unstaged> begin_pieces(State& s, const Copy& what, Turn& turn) {
    if (const std::optional<Unstaged> reason = driver().wait_for_earlier_work(s, what)) return reason;
    if (turn.is_long()) return std::nullopt;
    if (!turn.lengthen()) return Unstaged::stream_in_use;
    if (turns_.alone() || driver().is_idle(s, what)) return std::nullopt;
    turn.shorten();
    return Unstaged::stream_in_use;
  }

  // The driver copies the first parts of a native trial. If each takes long, they were the trial. Else the program's
  // own call makes the whole copy, as a trial of its own: what it answers is the copy's answer.
  bool is_slow_at_first(State& s, const Copy& what, Turn& turn, Plan& plan) {
    if (begin_pieces(s, what, turn)) return false;
    constexpr std::uint64_t kPart = staging::kFirstBytes / 2;
    const std::uint64_t begin_ns = nanoseconds_since_start();
    std::uint64_t took_ns = 0;
    for (const std::uint64_t at : {std::uint64_t{0}, kPart}) {
      const std::uint64_t slow_ns = took_ns + staging::kFirstBytesSlowNs / 2;
      if (!driver().copy_part(s, what.part(at, kPart), plan.copy_context)) return begin_anew(s, what, plan), false;
      took_ns = nanoseconds_since_start() - begin_ns;
      if (took_ns < slow_ns) return begin_anew(s, what, plan), false;
    }
    plan.of->count(Unstaged::trial, staging::kFirstBytes);
    driver().end_trial(s, what, plan, Types::kSuccess, {.blocked_ns = took_ns, .bytes = staging::kFirstBytes});
    plan.trial = {};
    return true;
  }
  void begin_anew(State& s, const Copy& what, Plan& plan) {
    drop(s, plan);
    plan.trial = driver().begin_trial(s, what, plan.copy_context);
    plan.begin_ns = nanoseconds_since_start();
  }

  // Nothing: the program's own call has to make the copy.
  std::optional<Answer> stage(State& s, const Copy& what, Turn& turn, Plan& plan) {
    Passage passage;
    passage.refused = begin_pieces(s, what, turn);
    if (!passage.refused) passage = driver().pass_ring(s, what, plan.copy_context, plan.ahead, turn);
    if (passage.refused) {
      plan.of->count(*passage.refused, what.box.bytes());
      drop(s, plan);
      return std::nullopt;
    }
    const staging::Outcome& outcome = passage.outcome;
    if (outcome.rest != staging::Rest::none)
      plan.of->count(unstaged_of(outcome.rest), what.box.bytes() - outcome.staged_bytes);
    // A copy that went neither way as a whole is no measurement.
    if (passage.untouched || passage.grew || outcome.rest != staging::Rest::none) drop(s, plan);
    if (passage.untouched) return std::nullopt;
    plan.of->count_staged(outcome.staged_bytes);
    end(s, what, plan, passage.answer);
    return passage.answer;
  }

  void drop(State& s, Plan& plan) {
    if (plan.trial) driver().drop_trial(s, plan.copy_context, plan.trial);
    plan.trial = {};
  }

  void end(State& s, const Copy& what, Plan& plan, Answer answer) {
    if (!plan.of) return;
    const std::uint64_t took_ns = nanoseconds_since_start() - plan.begin_ns;
    if (plan.trial)
      return driver().end_trial(s, what, plan, answer, {.blocked_ns = took_ns, .bytes = what.box.bytes()});
    if (answer == Types::kSuccess && mode_ == StagingMode::automatic)
      plan.of->calibration.copied(plan.way, what.box.bytes(), took_ns);
  }

  const StagingMode mode_ = staging_mode();
  CopyAccounts accounts_;
  SourceKinds sources_;
  ReadAhead read_ahead_;
  staging::Turns turns_;
  IntervalTrim interval_;  // trims the rings
  Lock lock_;              // for the driver's own tables
};

}  // namespace cistern
