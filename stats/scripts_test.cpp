// Paths of Python files.
#include "stats/scripts.hpp"

#include <gtest/gtest.h>

namespace cistern {
namespace {

TEST(Scripts, ThoseOfPackagesAndOfPythonAreInstalled) {
  for (const char* file :
       {"/usr/lib/python3/dist-packages/numpy/core.py", "/home/u/venv/lib/python3.12/site-packages/torch/nn/linear.py",
        "/usr/lib/python3.11/threading.py", "/root/.pyenv/versions/3.8.18/lib/python3.8/json/decoder.py",
        "<frozen importlib._bootstrap>"})
    EXPECT_TRUE(is_installed(file)) << file;
  for (const char* file : {"train.py", "/home/u/lib/python/train.py", "/home/u/lib/pythonic/train.py", "<stdin>",
                           "<string>", "", "/srv/lib/python3"})
    EXPECT_FALSE(is_installed(file)) << file;
}

TEST(Scripts, AreShownWithoutTheFolderOfTheirPackages) {
  EXPECT_EQ(short_file("/venv/lib/python3.12/site-packages/torch/nn/linear.py"), "torch/nn/linear.py");
  EXPECT_EQ(short_file("/usr/lib/python3/dist-packages/numpy/core.py"), "numpy/core.py");
  EXPECT_EQ(short_file("/usr/lib/python3.11/threading.py"), "threading.py");
  EXPECT_EQ(short_file("src/train.py"), "src/train.py");
}

}  // namespace
}  // namespace cistern
