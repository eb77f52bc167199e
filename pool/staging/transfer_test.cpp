// Copies through a ring, on streams of a device that does its part as late as it may: what arrives, in what order, what
// becomes of the chunks, whatever fails and whoever stops it.
#include "pool/staging/transfer.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "tests/support/random.hpp"

namespace cistern::staging {
namespace {

// The work of a stream, in order. It is done only when the test looks at the stream.
struct Stream {
  std::deque<std::function<void()>> work;
  std::uint64_t enqueued = 0, done = 0;
  bool blocked = false;

  void enqueue(std::function<void()> step) {
    work.push_back(std::move(step));
    ++enqueued;
  }
  void run(std::uint64_t steps) {
    for (; !blocked && steps && !work.empty(); --steps, ++done) {
      work.front()();
      work.pop_front();
    }
  }
};

struct Mark {
  Stream* stream = nullptr;
  std::uint64_t number = 0;
};

class FakeDevice final : public ChunkMaker {
 public:
  bool make(Chunk& chunk) override {
    if (made == made_max) return false;
    ++made;
    chunk.memory = new char[kChunkBytes];
    chunk.event = new Mark;
    return true;
  }
  void unmake(Chunk& chunk, bool passed) override {
    --made;
    delete static_cast<Mark*>(chunk.event);
    // Copies in flight may still write there.
    if (passed)
      delete[] chunk.memory;
    else
      used_still.emplace_back(chunk.memory);
  }
  Passed passed(const Chunk& chunk) override {
    const auto* const mark = static_cast<const Mark*>(chunk.event);
    if (always_passed) return Passed::yes;
    if (--looks_until_failure == 0) return Passed::failed;
    return mark->stream->done >= mark->number ? Passed::yes : Passed::no;
  }

  unsigned made = 0, made_max = ~0u;
  std::vector<std::unique_ptr<char[]>> used_still;
  bool always_passed = false;
  int looks_until_failure = 0;
};

// A copy between `host` and the device's memory `array`, both boxes.
class FakeLane final : public Lane {
 public:
  FakeLane(Stream& stream, const Side& host, const Side& array, bool to_device)
      : stream_(stream), host_(host), array_(array), to_device_(to_device) {}

  Error enqueue(const Piece& piece, char* chunk) override {
    if (--calls_until_failure == 0) return Error{700};
    const Side middle{chunk, piece.box.row_bytes, piece.box.row_bytes * piece.box.rows}, array = piece.of(array_);
    const bool there = to_device_;
    stream_.enqueue([=] { there ? move(array, middle, piece.box) : move(middle, array, piece.box); });
    return Error::none;
  }
  Error mark(Chunk& chunk) override {
    if (--calls_until_failure == 0) return Error{700};
    *static_cast<Mark*>(chunk.event) = {&stream_, stream_.enqueued};
    return Error::none;
  }
  // The driver stages too: the source is read before the call returns, and a copy to the host is waited for.
  Error pass_on(const Piece& piece) override {
    passed_on_bytes += piece.box.bytes();
    if (native_error != Error::none) return native_error;
    const Side host = piece.of(host_), array = piece.of(array_);
    if (to_device_) {
      auto staged = std::make_shared<std::vector<char>>(piece.box.bytes());
      const Side middle{staged->data(), piece.box.row_bytes, piece.box.row_bytes * piece.box.rows};
      move(middle, host, piece.box);
      stream_.enqueue([=] { move(array, middle, piece.box), (void)staged; });
    } else {
      stream_.run(~0u);
      move(host, array, piece.box);
    }
    return Error::none;
  }
  bool may_touch(const Side&, const Box&) override { return pieces_until_untouchable-- != 0; }
  bool interrupted() override { return looks_until_interrupted-- == 0; }
  bool copy(const Side& to, const Side& from, const Box& box) override {
    if (copies_until_gone-- == 0) return false;
    copied_bytes += box.bytes();
    move(to, from, box);
    return true;
  }
  void pause(unsigned) override {
    ++pauses;
    stream_.run(1);
  }

  int calls_until_failure = 0;
  int pieces_until_untouchable = -1, copies_until_gone = -1, looks_until_interrupted = -1;
  Error native_error = Error::none;
  std::size_t passed_on_bytes = 0, copied_bytes = 0, pauses = 0;

 private:
  static void move(const Side& to, const Side& from, const Box& box) {
    for (std::size_t slice = 0; slice < box.slices; ++slice)
      for (std::size_t row = 0; row < box.rows; ++row)
        std::memcpy(to.base + slice * to.slice_pitch + row * to.row_pitch,
                    from.base + slice * from.slice_pitch + row * from.row_pitch, box.row_bytes);
  }

  Stream& stream_;
  Side host_, array_;
  bool to_device_;
};

std::mt19937& random_source() {
  static std::mt19937 random(test::new_seed());
  return random;
}
std::size_t up_to(std::size_t most) { return std::uniform_int_distribution<std::size_t>(1, most)(random_source()); }

// A box in memory of its own, each byte random.
struct Held {
  explicit Held(const Box& box, std::size_t row_gap = 0, std::size_t slice_gap = 0) : box(box) {
    const std::size_t row_pitch = box.row_bytes + row_gap, slice_pitch = row_pitch * box.rows + slice_gap;
    bytes.resize(slice_pitch * box.slices);
    side = {bytes.data(), row_pitch, slice_pitch};
    fill();
  }
  void fill() {
    std::uint32_t state = static_cast<std::uint32_t>(random_source()());
    for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  }
  std::vector<char> content() const {
    std::vector<char> all;
    for (std::size_t slice = 0; slice < box.slices; ++slice)
      for (std::size_t row = 0; row < box.rows; ++row) {
        const char* const first = side.base + slice * side.slice_pitch + row * side.row_pitch;
        all.insert(all.end(), first, first + box.row_bytes);
      }
    return all;
  }
  Box box;
  std::vector<char> bytes;
  Side side;
};

Box random_box() {
  switch (up_to(4)) {
    case 1:
      return {up_to(10 * kChunkBytes)};
    case 2:
      return {up_to(3 * kChunkBytes), up_to(3)};
    case 3:
      return {up_to(5000), up_to(2000)};
    default:
      return {up_to(3000), up_to(200), up_to(40)};
  }
}

class Transfers : public testing::Test {
 protected:
  ~Transfers() override {
    for (Stream& stream : streams) stream.blocked = false, stream.run(~0u);
    ring.trim(device);
    EXPECT_EQ(device.made, 0u) << "chunks were lost";
    EXPECT_EQ(ring.figures().chunks, 0u);
  }
  Outcome there(Held& host, Held& array, Waits waits, Stream& stream, std::function<void(FakeLane&)> prepare = {}) {
    FakeLane lane(stream, host.side, array.side, true);
    if (prepare) prepare(lane);
    const Outcome outcome = copy_to_device(ring, device, lane, host.side, host.box, waits);
    passed_on = lane.passed_on_bytes;
    pauses = lane.pauses;
    return outcome;
  }
  Outcome back(Held& host, Held& array, Stream& stream, std::function<void(FakeLane&)> prepare = {}) {
    FakeLane lane(stream, host.side, array.side, false);
    if (prepare) prepare(lane);
    const Outcome outcome = copy_to_host(ring, device, lane, host.side, host.box);
    passed_on = lane.passed_on_bytes;
    return outcome;
  }

  FakeDevice device;
  Ring ring;
  Stream streams[4];
  std::size_t passed_on = 0, pauses = 0;
};

TEST(Cutter, PiecesOfABoxAreWholeAndFollowEachOther) {
  const Box box{100, 7, 3};
  for (const std::size_t most : {std::size_t{1}, std::size_t{30}, std::size_t{100}, std::size_t{250}, std::size_t{699},
                                 std::size_t{700}, std::size_t{1500}, SIZE_MAX}) {
    std::size_t at = 0;
    for (Cutter cutter(box); cutter.left();) {
      Cutter again = cutter;
      const Piece piece = cutter.next(most);
      ASSERT_LE(piece.box.bytes(), most);
      ASSERT_EQ((piece.slice * box.rows + piece.row) * box.row_bytes + piece.byte, at);
      at += piece.box.bytes();
      ASSERT_EQ(cutter.left(), box.bytes() - at);
      again = cutter;
      again.back_to(piece);
      ASSERT_EQ(again.left(), cutter.left() + piece.box.bytes());
      ASSERT_EQ(again.next(most).box.bytes(), piece.box.bytes());
    }
    ASSERT_EQ(at, box.bytes());
  }
}

TEST_F(Transfers, OfAnyShapeArriveInBothDirections) {
  for (int round = 0; round < 30; ++round) {
    Held host(random_box(), up_to(100) - 1, up_to(100) - 1);
    Held array(host.box, up_to(100) - 1, up_to(100) - 1);
    const std::vector<char> sent = host.content();
    const Waits waits = round % 2 ? Waits::yes : Waits::no;
    const Outcome outcome = there(host, array, waits, streams[0]);
    ASSERT_EQ(outcome.error, Error::none);
    ASSERT_EQ(outcome.staged_bytes + passed_on, host.box.bytes());
    host.fill();  // the source is the program's again
    streams[0].run(~0u);
    ASSERT_TRUE(array.content() == sent);
    const Outcome returned = back(host, array, streams[0]);
    ASSERT_EQ(returned.error, Error::none);
    ASSERT_EQ(returned.staged_bytes, host.box.bytes());
    ASSERT_TRUE(host.content() == sent);
  }
}

TEST_F(Transfers, OfFourStreamsThatLagBehindDoNotMix) {
  std::vector<std::unique_ptr<Held>> hosts, arrays;
  std::vector<std::vector<char>> sent;
  for (int copy = 0; copy < 24; ++copy) {
    hosts.push_back(std::make_unique<Held>(Box{up_to(3 * kChunkBytes)}));
    arrays.push_back(std::make_unique<Held>(hosts.back()->box));
    sent.push_back(hosts.back()->content());
    there(*hosts.back(), *arrays.back(), Waits::no, streams[copy % 4]);
    hosts.back()->fill();
    streams[up_to(4) - 1].run(up_to(3));
  }
  for (Stream& stream : streams) stream.run(~0u);
  for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_TRUE(arrays[i]->content() == sent[i]) << i;
}

TEST_F(Transfers, AreStaleWhereMarksAreNotAsked) {
  device.always_passed = true;
  Held host({20 * kChunkBytes}), array(host.box);
  const std::vector<char> sent = host.content();
  there(host, array, Waits::no, streams[0]);
  streams[0].run(~0u);
  EXPECT_FALSE(array.content() == sent) << "the tests above would not see a chunk that is used too early";
}

TEST_F(Transfers, ThatMayNotWaitDoNotWaitForABlockedStream) {
  streams[0].blocked = true;
  std::size_t native = 0;
  Held host({kChunkBytes}), array(host.box);
  for (int copy = 0; copy < 100; ++copy) {
    ASSERT_EQ(there(host, array, Waits::no, streams[0]).error, Error::none);
    native += passed_on;
    EXPECT_EQ(pauses, 0u);
  }
  EXPECT_GT(native, 0u) << "more than the ring holds went through it";
  streams[0].work.clear();
  streams[0].done = streams[0].enqueued;
}

TEST_F(Transfers, GoOnNativelyWhereThereAreNoChunks) {
  device.made_max = 0;
  Held host({5 * kChunkBytes}), array(host.box);
  const std::vector<char> sent = host.content();
  EXPECT_EQ(there(host, array, Waits::yes, streams[0]).rest, Rest::no_chunk);
  EXPECT_EQ(passed_on, host.box.bytes());
  EXPECT_EQ(back(host, array, streams[0]).rest, Rest::no_chunk);
  EXPECT_TRUE(host.content() == sent);
}

TEST_F(Transfers, OneChunkIsEnough) {
  device.made_max = 1;
  Held host({5 * kChunkBytes}), array(host.box);
  const std::vector<char> sent = host.content();
  EXPECT_EQ(there(host, array, Waits::yes, streams[0]).staged_bytes, host.box.bytes());
  host.fill();
  EXPECT_EQ(back(host, array, streams[0]).staged_bytes, host.box.bytes());
  EXPECT_TRUE(host.content() == sent);
}

// A copy that is stopped at any step arrives whole: the rest goes by the driver's own call.
TEST_F(Transfers, StoppedAtAnyStepArriveAllTheSame) {
  const std::function<void(FakeLane&, int)> stops[] = {
      [](FakeLane& lane, int step) { lane.calls_until_failure = step + 1; },
      [](FakeLane& lane, int step) { lane.pieces_until_untouchable = step; },
      [](FakeLane& lane, int step) { lane.copies_until_gone = step; },
      [](FakeLane& lane, int step) { lane.looks_until_interrupted = step; },
      [this](FakeLane&, int step) { device.looks_until_failure = step + 1; }};
  for (const auto& stop : stops) {
    for (int step = 0; step < 12; ++step) {
      Held host({3000, 1500}, 7), array(host.box, 100);
      const std::vector<char> sent = host.content();
      const auto prepare = [&](FakeLane& lane) { stop(lane, step); };
      ASSERT_EQ(there(host, array, step % 2 ? Waits::yes : Waits::no, streams[0], prepare).error, Error::none);
      device.looks_until_failure = 0;
      host.fill();
      streams[0].run(~0u);
      ASSERT_TRUE(array.content() == sent) << step;
      ASSERT_EQ(back(host, array, streams[0], prepare).error, Error::none);
      device.looks_until_failure = 0;
      ASSERT_TRUE(host.content() == sent) << step;
      streams[0].run(~0u);
      ring.trim(device);
      ASSERT_EQ(device.made, 0u) << "a chunk is lost";
    }
  }
}

TEST_F(Transfers, ThatFailNativelyHaveTheDriversError) {
  Held host({4 * kChunkBytes}), array(host.box);
  const auto fail = [](FakeLane& lane) {
    lane.pieces_until_untouchable = 2;
    lane.native_error = Error{719};
  };
  EXPECT_EQ(there(host, array, Waits::yes, streams[0], fail).error, Error{719});
  EXPECT_EQ(back(host, array, streams[0], fail).error, Error{719});
}

TEST_F(Transfers, OfMemoryThatIsGoneHaveTheDriversError) {
  Held host({4 * kChunkBytes}), array(host.box);
  const auto fail = [](FakeLane& lane) {
    lane.copies_until_gone = 2;
    lane.native_error = Error{1};
  };
  for (const Outcome& outcome :
       {there(host, array, Waits::yes, streams[0], fail), back(host, array, streams[0], fail)}) {
    EXPECT_EQ(outcome.error, Error{1});
    EXPECT_EQ(outcome.rest, Rest::untouchable);
  }
  ring.trim(device);
  streams[0].run(~0u);
  ring.trim(device);
  EXPECT_EQ(device.made, 0u) << "a chunk is lost";
}

TEST(Ring, ForgetsChunksThatComeBackLater) {
  FakeDevice device;
  Ring ring;
  Chunk* const held = ring.take(device);
  Chunk* const idle = ring.take(device);
  char* const memory[] = {held->memory, idle->memory};
  Mark* const marks[] = {static_cast<Mark*>(held->event), static_cast<Mark*>(idle->event)};
  ring.give(idle);
  ring.forget();
  ring.give(held);
  EXPECT_EQ(ring.figures().chunks, 0u);
  EXPECT_EQ(ring.figures().idle, 0u);
  for (char* const each : memory) delete[] each;
  for (Mark* const each : marks) delete each;
}

TEST(Ring, HasALimit) {
  FakeDevice device;
  Ring ring;
  std::vector<Chunk*> taken;
  while (Chunk* const chunk = ring.take(device)) taken.push_back(chunk);
  EXPECT_EQ(taken.size(), kChunksMax);
  for (Chunk* const chunk : taken) ring.give(chunk);
  ring.trim(device);
  EXPECT_EQ(device.made, 0u);
}

}  // namespace
}  // namespace cistern::staging
