// How long copies between host and device take. [assumed] throughout: rates do not depend on the size of a copy, and an
// engine goes from one copy to the next without a pause.
#include "tests/simcuda/driver/link.hpp"

#include <time.h>

#include <algorithm>
#include <cerrno>

#include "tests/simcuda/driver/settings.hpp"
#include "tests/simcuda/driver/stream.hpp"

namespace simcuda {
namespace {

using Clock = CopyEngine::Clock;

// A copy is moved in parts as its time goes by: its source is read, and what it writes is seen, until the end.
constexpr size_t kPartBytes = size_t{1} << 20;

Clock::duration time_for(size_t bytes, double megabytes_per_second) {
  return std::chrono::nanoseconds(static_cast<long long>(static_cast<double>(bytes) * 1000 / megabytes_per_second));
}

double rate_of_link(Direction direction) {
  return static_cast<double>(direction == Direction::kToDevice ? settings.link_to_device_mbps
                                                               : settings.link_to_host_mbps);
}

// [cited: vcruz305/vllm-exl3 #28] Where devices translate pages of a file one by one, that is what such a copy costs.
// A rate of 0 stands for no limit.
double limited_by_pages(double rate, HostMemory memory) {
  constexpr double kPageBytes = 4096;
  const auto nanoseconds = static_cast<double>(settings.file_page_ns);
  if (memory == HostMemory::kAnonymous || nanoseconds <= 0) return rate;
  const double of_pages = kPageBytes * 1000 / nanoseconds;
  return rate > 0 ? std::min(rate, of_pages) : of_pages;
}

// By the absolute time, so that lateness does not add up.
void sleep_until(Clock::time_point end) {
  if (Clock::now() >= end) return;
  const auto since = end.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  const timespec until{static_cast<time_t>(seconds.count()), static_cast<long>((since - seconds).count())};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

// The host's copy between pageable memory and the buffer.
void copy_on_host(HostMemory memory, size_t bytes, const MovePart& move) {
  const auto begin = Clock::now();
  const double rate = limited_by_pages(static_cast<double>(settings.pageable_copy_mbps), memory);
  move(0, bytes);
  if (rate > 0) sleep_until(begin + time_for(bytes, rate));
}

}  // namespace

Clock::time_point CopyEngine::reserve(Clock::duration time) {
  const std::lock_guard<std::mutex> guard(lock_);
  const auto begin = std::max(Clock::now(), free_at_);
  free_at_ = begin + time;
  return begin;
}

void Turns::lock() {
  const unsigned mine = next_++;
  for (unsigned served = served_; served != mine; served = served_) served_.wait(served);
}

void Turns::unlock() {
  ++served_;
  served_.notify_all();
}

// [documented] Where the device reads the host's page tables it reaches pageable memory as any other. [assumed] So no
// copy goes through a buffer there.
bool Link::has_buffer() { return settings.pageable_copy_mbps > 0 && !settings.coherent; }

CopyEngine& Link::engine_for(Direction direction) {
  return engines_[settings.copy_engines == 1 ? 0 : static_cast<size_t>(direction)];
}

void Link::send(Direction direction, size_t bytes, const MovePart& move) {
  occupy_engine(direction, rate_of_link(direction), bytes, move);
}

void Link::occupy_engine(Direction direction, double rate, size_t bytes, const MovePart& move) {
  if (rate <= 0) return move(0, bytes);
  const auto begin = engine_for(direction).reserve(time_for(bytes, rate));
  sleep_until(begin);
  for (size_t done = 0; done < bytes;) {
    stop_at_teardown();
    const size_t part = std::min(kPartBytes, bytes - done);
    move(done, part);
    done += part;
    sleep_until(begin + time_for(done, rate));
  }
}

// [assumed] The host's copy and the link's never overlap. The buffer is taken again for each part that fits in it, so
// several copies take turns.
void Link::send_pageable(Direction direction, HostMemory memory, size_t bytes, const MovePart& move) {
  if (!has_buffer()) {
    const bool own_rate = settings.coherent && settings.coherent_copy_mbps > 0;
    const double rate = own_rate ? static_cast<double>(settings.coherent_copy_mbps) : rate_of_link(direction);
    return occupy_engine(direction, limited_by_pages(rate, memory), bytes, move);
  }
  for (size_t done = 0; done < bytes;) {
    const size_t part = std::min(kBufferBytes, bytes - done);
    const MovePart move_this = [&](size_t begin, size_t count) { move(done + begin, count); };
    const MovePart nothing = [](size_t, size_t) {};
    const std::lock_guard<Turns> guard(buffer_);
    if (direction == Direction::kToDevice) copy_on_host(memory, part, nothing);
    send(direction, part, direction == Direction::kToDevice ? move_this : nothing);
    if (direction == Direction::kToHost) copy_on_host(memory, part, move_this);
    done += part;
  }
}

void Link::read_into_buffer(HostMemory memory, size_t bytes, const MovePart& read) {
  const std::lock_guard<Turns> guard(buffer_);
  copy_on_host(memory, bytes, read);
}

// [assumed] While its stream has other work to do first, what was read does not keep the buffer from others: no copy
// waits for a stream that is not its own.
void Link::send_from_buffer(size_t bytes, const MovePart& move) {
  const std::lock_guard<Turns> guard(buffer_);
  send(Direction::kToDevice, bytes, move);
}

}  // namespace simcuda
