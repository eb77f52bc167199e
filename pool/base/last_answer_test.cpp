// LastAnswer: when a look is saved, and that no change is missed.
#include "pool/base/last_answer.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace cistern {
namespace {

struct Counted {
  int looks = 0;
  int answer = 1;
  auto look() {
    return [this](const void*) { return ++looks, answer; };
  }
};

const int handles[2] = {};

TEST(LastAnswer, LooksOnceUntilSomethingChanges) {
  LastAnswer<int> answers;
  Counted counted;
  EXPECT_EQ(answers.of(handles, counted.look()), 1);
  counted.answer = 2;
  EXPECT_EQ(answers.of(handles, counted.look()), 1);
  EXPECT_EQ(counted.looks, 1);
  answers.changed();
  EXPECT_EQ(answers.of(handles, counted.look()), 2);
  EXPECT_EQ(counted.looks, 2);
}

TEST(LastAnswer, AnotherHandleIsAnotherQuestion) {
  LastAnswer<int> answers;
  Counted counted;
  answers.of(handles, counted.look());
  counted.answer = 2;
  EXPECT_EQ(answers.of(handles + 1, counted.look()), 2);
  EXPECT_EQ(answers.of(handles, counted.look()), 2);
  EXPECT_EQ(counted.looks, 3);
}

TEST(LastAnswer, NothingIsKnownOfNullAtFirst) {
  LastAnswer<int> answers;
  Counted counted;
  EXPECT_EQ(answers.of(nullptr, counted.look()), 1);
  EXPECT_EQ(counted.looks, 1);
}

TEST(LastAnswer, ObjectsDoNotAnswerForEachOther) {
  LastAnswer<int> one, other;
  Counted counted;
  one.of(handles, counted.look());
  counted.answer = 2;
  EXPECT_EQ(other.of(handles, counted.look()), 2);
  EXPECT_EQ(one.of(handles, counted.look()), 2);
}

TEST(LastAnswer, WhatChangesDuringALookMakesItsAnswerOld) {
  LastAnswer<int> answers;
  int answer = 1;
  const auto look_while_it_changes = [&](const void*) {
    const int seen = answer++;
    answers.changed();
    return seen;
  };
  EXPECT_EQ(answers.of(handles, look_while_it_changes), 1);
  EXPECT_EQ(answers.of(handles, [&](const void*) { return answer; }), 2);
}

// Once changed() has returned no thread that heard of it gets what was true before.
TEST(LastAnswer, AChangeReachesEveryThread) {
  constexpr int kChanges = 100'000;
  LastAnswer<int> answers;
  std::atomic<int> truth{0}, announced{0};
  const auto look = [&](const void*) { return truth.load(); };
  std::thread asks([&] {
    for (int known = 0; known < kChanges;) {
      known = announced.load();
      ASSERT_GE(answers.of(handles, look), known);
    }
  });
  for (int i = 1; i <= kChanges; ++i) {
    truth = i;
    answers.changed();
    announced = i;
  }
  asks.join();
}

}  // namespace
}  // namespace cistern
