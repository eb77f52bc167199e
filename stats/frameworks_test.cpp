// Frameworks by the names of their files, as their packages install them.
#include "stats/frameworks.hpp"

#include <gtest/gtest.h>

namespace cistern {
namespace {

constexpr const char* kPackages = "/usr/lib/python3/site-packages/";

std::string framework_in_package(const char* path) {
  const char* framework = framework_of_file(std::string(kPackages) + path);
  return framework ? framework : "none";
}

TEST(Frameworks, AreRecognisedByTheirCudaPart) {
  EXPECT_EQ(framework_in_package("torch/lib/libc10_cuda.so"), "PyTorch");
  EXPECT_EQ(framework_in_package("torch/lib/libtorch_cuda.so"), "PyTorch");
  EXPECT_EQ(framework_in_package("cupy/cuda/memory.cpython-311-x86_64-linux-gnu.so"), "CuPy");
  EXPECT_EQ(framework_in_package("tensorflow/libtensorflow_cc.so.2"), "TensorFlow");
  EXPECT_EQ(framework_in_package("jax_plugins/xla_cuda12/xla_cuda_plugin.so"), "JAX");
  EXPECT_EQ(framework_in_package("jax_cuda12_pjrt/xla_cuda_plugin.so"), "JAX");
  EXPECT_EQ(framework_of_file("/usr/local/lib/librmm.so"), std::string("RMM"));
  EXPECT_EQ(framework_of_file("/usr/lib/x86_64-linux-gnu/libopencv_core.so.406"), std::string("OpenCV"));
  EXPECT_EQ(framework_in_package("cv2/cv2.abi3.so"), "OpenCV");
}

TEST(Frameworks, AreNotSeenInOtherFiles) {
  EXPECT_EQ(framework_in_package("torch/lib/libc10.so"), "none");
  EXPECT_EQ(framework_in_package("torch/lib/libtorch_cpu.so"), "none");
  EXPECT_EQ(framework_in_package("cupy/cuda/device.cpython-311-x86_64-linux-gnu.so"), "none");
  EXPECT_EQ(framework_in_package("memory.cpython-311-x86_64-linux-gnu.so"), "none");
  EXPECT_EQ(framework_of_file("/opt/app/libtorch_cuda.so.d/train"), nullptr);
  EXPECT_EQ(framework_of_file(""), nullptr);
}

TEST(Frameworks, EachHasASwitch) {
  for (const char* name : {"PyTorch", "CuPy", "TensorFlow", "JAX", "RMM", "OpenCV"})
    EXPECT_NE(framework_named(name).how, nullptr) << name;
  EXPECT_TRUE(framework_named("Blender").name.empty());
}

TEST(Frameworks, AreNotInThisTest) {
  EXPECT_TRUE(loaded_frameworks([](const char*) -> const char* { return nullptr; }).empty());
}

}  // namespace
}  // namespace cistern
