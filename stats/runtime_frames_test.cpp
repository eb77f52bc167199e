// Where the program's frames begin, for the ways in which a CUDA runtime lies under them.
#include "stats/runtime_frames.hpp"

#include <gtest/gtest.h>

#include <string>

namespace cistern {
namespace {

struct Named {
  const char* function;
  const char* module = "/opt/app/train";
  const char* file = "";
  bool rust = false;
};

constexpr const char* kSharedRuntime = "/usr/local/cuda/lib64/libcudart.so.13";
constexpr Named kMain = {"main", "/opt/app/train", "src/main.cpp"};
constexpr Named kLoad = {"load_weights", "/opt/app/train", "src/w.cpp"};

// The functions that are left, leaf first: "load_weights main".
std::string left_of(std::initializer_list<Named> stack) {
  Vector<FrameFigures> frames;
  for (const Named& named : stack) {
    FrameFigures frame{};
    frame.function = named.function;
    frame.module = named.module;
    frame.file = named.file;
    frame.rust = named.rust;
    frames.push_back(frame);
  }
  cut_runtime_frames(frames);
  cut_call_wrappers(frames);
  std::string left;
  for (const FrameFigures& frame : frames) {
    if (!left.empty()) left += ' ';
    left += frame.function.empty() ? "?" : frame.function.c_str();
  }
  return left;
}

TEST(RuntimeFrames, OfASharedRuntimeGo) {
  EXPECT_EQ(left_of({{"", kSharedRuntime}, {"cudaMalloc", kSharedRuntime}, kLoad, kMain}), "load_weights main");
  EXPECT_EQ(left_of({{"", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"}, kLoad, kMain}), "load_weights main");
  EXPECT_EQ(left_of({{"", "/site-packages/nvidia/libcudart-9335f6a2.so.12"}, kLoad, kMain}), "load_weights main");
}

TEST(CallWrappers, GoButTheFirstFrame) {
  EXPECT_EQ(left_of({kLoad,
                     {"std::__invoke_impl<void, void (*)()>"},
                     {"std::thread::_Invoker<std::tuple<void (*)()> >::operator()"},
                     {"std::thread::_State_impl<std::thread::_Invoker<std::tuple<void (*)()> > >::_M_run"},
                     {"execute_native_thread_routine"},
                     {"start_thread"}}),
            "load_weights start_thread");
  EXPECT_EQ(left_of({{"std::function<void ()>::operator()"}, kMain}), "std::function<void ()>::operator() main");
  EXPECT_EQ(left_of({kLoad, {"std::vector<int>::resize"}, kMain}), "load_weights std::vector<int>::resize main");
}

// A namespace of C++ may be called alloc.
TEST(CallWrappers, OfRustGoAsThoseOfCppDo) {
  const auto rust = [](const char* function) { return Named{function, "/opt/app/train", "", true}; };
  EXPECT_EQ(left_of({rust("alloc::alloc::alloc"), rust("<alloc::raw_vec::RawVec<u8>>::with_capacity_in"),
                     rust("alloc::vec::from_elem::<u8>"), rust("names::load"), rust("names::main::{closure#0}"),
                     rust("std::sys::backtrace::__rust_begin_short_backtrace::<fn(), ()>"),
                     rust("std::rt::lang_start::<()>"), kMain}),
            "alloc::vec::from_elem::<u8> names::load names::main::{closure#0} main");
  EXPECT_EQ(left_of({{"alloc::make"}, {"alloc::pool"}, {"core::run"}, kMain}),
            "alloc::make alloc::pool core::run main");
}

TEST(CallWrappers, OfRustAreToldFromAUsersCrateByTheirFiles) {
  const auto rust = [](const char* function, const char* file = "") {
    return Named{function, "/opt/app/train", file, true};
  };
  constexpr const char* kSources = "/rustc/0123/library/alloc/src/alloc.rs";
  constexpr const char* kCrate = "/home/user/app/core/src/cache.rs";
  EXPECT_EQ(left_of({rust("alloc::alloc::alloc", kSources), rust("std::sys::init", kSources), kMain}),
            "std::sys::init main");
  EXPECT_EQ(left_of({rust("alloc::alloc::alloc", kSources), rust("alloc::vec::from_elem", kSources),
                     rust("core::cache::fill", kCrate), rust("core::run", kCrate), rust("app::main", kCrate), kMain}),
            "alloc::vec::from_elem core::cache::fill core::run app::main main");
  EXPECT_EQ(left_of({rust("core::cache::fill"), rust("core::load"), rust("core::run"), rust("std::rt::init"), kMain}),
            "core::cache::fill core::load core::run main");
}

TEST(RuntimeFrames, OfAStaticRuntimeGo) {
  EXPECT_EQ(left_of({{"libcudart_static_0123abcd"}, {"libcudart_static_4567"}, {"cudaMalloc"}, kLoad, kMain}),
            "load_weights main");
  EXPECT_EQ(left_of({{"cudart::allocate"}, {"cudaHostAlloc"}, kLoad, kMain}), "load_weights main");
}

TEST(RuntimeFrames, WithAnyNamesGoWhenAKnownEntryPointFollows) {
  EXPECT_EQ(left_of({{"allocate"}, {"in_context<int>"}, {"cudaMalloc"}, kLoad, kMain}), "load_weights main");
  EXPECT_EQ(left_of({{"allocate"}, {"cudaMallocAsync_ptsz"}, {"cudaMallocAsync"}, kLoad, kMain}),
            "cudaMallocAsync load_weights main");
}

TEST(RuntimeFrames, WithoutNamesGoWhenAnEntryPointFollows) {
  EXPECT_EQ(left_of({{""}, {""}, {"cudaMalloc"}, kLoad, kMain}), "load_weights main");
  EXPECT_EQ(left_of({{""}, {""}, kLoad, kMain}), "? ? load_weights main");
}

TEST(RuntimeFrames, OfTheHeadersWrappersGo) {
  const Named wrapper = {"cudaMallocHost<float>", "/opt/app/train", "/usr/local/cuda/include/cuda_runtime.h"};
  EXPECT_EQ(left_of({{"libcudart_static_01"}, {"cudaHostAlloc"}, wrapper, kLoad, kMain}), "load_weights main");
  EXPECT_EQ(left_of({{"libcudart_static_01"}, {"cudaMalloc"}, {"cudaMalloc<float>"}, kLoad, kMain}),
            "load_weights main");
}

TEST(RuntimeFrames, ThatTheProgramNamesAlikeStay) {
  const Named own = {"cudaAllocate", "/opt/app/train", "src/allocate.cpp"};
  EXPECT_EQ(left_of({{"libcudart_static_01"}, {"cudaMalloc"}, own, kMain}), "cudaAllocate main");
  EXPECT_EQ(left_of({{"", kSharedRuntime}, {"cudaMalloc", kSharedRuntime}, kLoad, own, kMain}),
            "load_weights cudaAllocate main");
  EXPECT_EQ(left_of({kLoad, own, kMain}), "load_weights cudaAllocate main");  // the driver called directly
  EXPECT_EQ(left_of({{"cudaPool::grow"}, kMain}), "cudaPool::grow main");
  EXPECT_EQ(left_of({{"cudaless"}, kMain}), "cudaless main");
  EXPECT_EQ(left_of({{"cuda"}, kMain}), "cuda main");
}

TEST(RuntimeFrames, OfTheProgramBehindAnEntryPointStayWithoutNames) {
  EXPECT_EQ(left_of({{"libcudart_static_01"}, {"cudaMalloc"}, {""}, {"cudaMalloc"}, kMain}), "? cudaMalloc main");
}

TEST(RuntimeFrames, AreNeverAllDropped) {
  EXPECT_EQ(left_of({{"libcudart_static_01"}, {"cudaMalloc"}}), "libcudart_static_01 cudaMalloc");
  EXPECT_EQ(left_of({}), "");
}

TEST(RuntimeFrames, FarOutAreTheProgramsWhateverTheirNames) {
  Vector<FrameFigures> frames(20);
  for (FrameFigures& frame : frames) frame.function = "libcudart_static_01";
  cut_runtime_frames(frames);
  EXPECT_EQ(frames.size(), 8u);
}

}  // namespace
}  // namespace cistern
