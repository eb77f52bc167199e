// Replays a trace through one policy, over a device that only counts:
//
//   FILE POLICY [--order strict|deferred|stream] [--delay STEPS] [--streams N] [--passes N] [--memory BYTES] [--time]
//
// FILE: see bench/trace.hpp. Work ends STEPS steps of the trace after it was put on its stream. With N streams, buffers
// use them in turn, whatever the file says. The result is one JSON object:
//   live_peak_bytes      the most that was live at one time
//   need_bytes           the most that a pool without fragmentation needs (need.hpp)
//   reserved_peak_bytes  the most that the driver had given
//   failed, hits         allocations that failed, and those that made no call of the driver
//   moved                pieces of memory that were mapped at another address
//   driver, driver_us    calls of the driver by kind, and the time that they would take
//   ns_per_call          with --time: nanoseconds of the policy for each call of the program, the least of three
//   replays
#pragma once
#include <getopt.h>

#include <chrono>
#include <cstring>
#include <span>

#include "bench/policies/need.hpp"
#include "bench/policies/policy.hpp"
#include "bench/trace.hpp"

namespace bench {

struct PolicyRow {
  const char* name;
  MadePolicy (*make)(Device& device, Order order);
};

struct ReplayOptions {
  Order order = Order::strict;
  std::uint64_t delay = 0, streams = 0, passes = 1, memory = std::uint64_t{64} << 30;
  bool is_timed = false;
};

struct Replayed {
  std::uint64_t calls = 0, failed = 0, hits = 0;
};

inline unsigned stream_of(const Event& event, const ReplayOptions& options) {
  return options.streams ? static_cast<unsigned>(event.buffer % options.streams) : event.stream;
}

// `need`: null where only the time counts. A buffer that got no memory is not freed.
inline Replayed replay(const Trace& trace, const ReplayOptions& options, Device& device, Policy& policy, Need* need) {
  Replayed replayed;
  std::vector<std::uint64_t> addresses(trace.bytes.size());
  for (std::uint64_t pass = 0; pass < options.passes; ++pass)
    for (const Event& event : trace.events) {
      const std::uint64_t bytes = trace.bytes[event.buffer];
      const unsigned stream = stream_of(event, options);
      device.step();
      ++replayed.calls;
      if (event.begins) {
        const std::uint64_t before = device.calls();
        const std::optional<std::uint64_t> block = policy.allocate(bytes, stream);
        addresses[event.buffer] = block.value_or(0);
        if (!block) {
          ++replayed.failed;
          continue;
        }
        replayed.hits += device.calls() == before;
        if (need) need->allocate(bytes, stream);
      } else if (addresses[event.buffer]) {
        policy.deallocate(addresses[event.buffer], bytes, stream);
        if (need) need->deallocate(bytes, stream);
      }
    }
  return replayed;
}

inline double least_ns_per_call(const Trace& trace, const ReplayOptions& options, const PolicyRow& row) {
  double least = 0;
  for (int round = 0; round < 3; ++round) {
    Device device(options.memory, options.delay);
    const MadePolicy policy = row.make(device, options.order);
    const auto began = std::chrono::steady_clock::now();
    const Replayed replayed = replay(trace, options, device, *policy, nullptr);
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - began;
    const double each = taken.count() / static_cast<double>(replayed.calls);
    least = round ? std::min(least, each) : each;
  }
  return least;
}

inline void print_replay(const Trace& trace, const ReplayOptions& options, const PolicyRow& row) {
  Device device(options.memory, options.delay);
  Need need(device, options.order);
  const MadePolicy policy = row.make(device, options.order);
  const Replayed replayed = replay(trace, options, device, *policy, &need);
  std::printf("{\"policy\": \"%s\", \"calls\": %ju, \"failed\": %ju, \"hits\": %ju, \"live_peak_bytes\": %ju, ",
              row.name, std::uintmax_t{replayed.calls}, std::uintmax_t{replayed.failed}, std::uintmax_t{replayed.hits},
              std::uintmax_t{need.live_peak()});
  std::printf("\"need_bytes\": %ju, \"reserved_peak_bytes\": %ju, \"moved\": %ju, \"driver_calls\": %ju, ",
              std::uintmax_t{need.in_all()}, std::uintmax_t{device.reserved_peak()}, std::uintmax_t{policy->moved()},
              std::uintmax_t{device.calls()});
  std::printf("\"driver_us\": %.1f, \"driver\": {", device.call_us());
  for (std::size_t kind = 0; kind < kCallKinds.size(); ++kind)
    std::printf("%s\"%s\": %ju", kind ? ", " : "", kCallKinds[kind].name,
                std::uintmax_t{device.calls(static_cast<Call>(kind))});
  std::printf("}");
  if (options.is_timed) std::printf(", \"ns_per_call\": %.1f", least_ns_per_call(trace, options, row));
  std::puts("}");
}

[[noreturn]] inline void replay_usage(const char* program, std::span<const PolicyRow> rows) {
  std::fprintf(stderr,
               "usage: %s FILE POLICY [--order strict|deferred|stream] [--delay STEPS] [--streams N] [--passes N] "
               "[--memory BYTES] [--time]\npolicies:",
               program);
  for (const PolicyRow& row : rows) std::fprintf(stderr, " %s", row.name);
  std::fputs("\n", stderr);
  std::exit(2);
}

inline bool read_number(const char* text, std::uint64_t most, std::uint64_t& number) {
  const char* const end = text + std::strlen(text);
  return std::from_chars(text, end, number) == std::from_chars_result{end, {}} && number <= most;
}

inline bool read_order(std::string_view name, Order& order) {
  if (name != "strict" && name != "deferred" && name != "stream") return false;
  order = name == "strict" ? Order::strict : name == "deferred" ? Order::deferred : Order::stream;
  return true;
}

inline int replay_main(int count, char** arguments, std::span<const PolicyRow> rows) {
  static constexpr option kOptions[] = {
      {"order", required_argument, nullptr, 'o'},
      {"delay", required_argument, nullptr, 'd'},
      {"streams", required_argument, nullptr, 's'},
      {"passes", required_argument, nullptr, 'p'},
      {"memory", required_argument, nullptr, 'm'},
      {"time", no_argument, nullptr, 't'},
      {},
  };
  ReplayOptions options;
  bool good = true;
  for (int chosen; good && (chosen = getopt_long(count, arguments, "", kOptions, nullptr)) != -1;) {
    good = chosen == 'o'   ? read_order(optarg, options.order)
           : chosen == 'd' ? read_number(optarg, kStepsMax, options.delay)
           : chosen == 's' ? read_number(optarg, kStreamsMax, options.streams)
           : chosen == 'p' ? read_number(optarg, kStepsMax, options.passes)
           : chosen == 'm' ? read_number(optarg, kBytesMax, options.memory)
           : chosen == 't' ? (options.is_timed = true)
                           : false;
  }
  if (!good || count - optind != 2) replay_usage(arguments[0], rows);
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const PolicyRow& at) { return !std::strcmp(at.name, arguments[optind + 1]); });
  if (row == rows.end()) replay_usage(arguments[0], rows);
  print_replay(read_trace(arguments[optind]), options, *row);
  return 0;
}

}  // namespace bench
