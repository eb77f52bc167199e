"""The allocators in the real packages from PyPI (scripts/python-packages), on the simulated driver and the substitute
runtime. What cannot run there, for NVIDIA's runtime is inside of a package and does not start, is asserted to be so."""
import argparse
import pathlib
import re
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
import package_tests  # noqa: E402
from snippets import snippets_of  # noqa: E402

PACKAGES = ROOT / "build" / "python-packages"
ARGUMENTS = None


class FrameworkTest(package_tests.PackageTest):
    name = None  # of the virtual environment

    def setUp(self):
        super().setUp()
        if not (PACKAGES / self.name / "complete").exists():
            self.skipTest(f"no {PACKAGES.name}/{self.name} (scripts/python-packages)")
        self.interpreter = PACKAGES / self.name / "bin/python"

    def environment(self, preload=True, driver=True, **more):
        """PyTorch finds its runtime by a path of its own: the substitute stands before it."""
        made = super().environment(preload, driver, **(dict(ARGUMENTS.option) if preload else {}) | more)
        libraries = [made["LD_PRELOAD"]] if "LD_PRELOAD" in made else []
        return made | {"LD_PRELOAD": ":".join([*libraries, str(ARGUMENTS.runtime)])}

    def job(self, program, *cases, **options):
        for case in cases:
            with self.subTest(case=case):
                done = self.execute(self.interpreter, HERE / "programs" / program, case, **options)
                self.assertEqual(done.stdout.splitlines()[-1:], ["done"])

    def check_as_plain(self, case, **options):
        """Without Cistern in the program: the same under the preloaded library."""
        program = HERE / "programs/without_cistern.py"
        plain, preloaded = (self.execute(self.interpreter, program, case, preload=preload, **options).stdout
                            for preload in (False, True))
        self.assertEqual(preloaded, plain)
        self.assertEqual(plain.splitlines()[-1], "done")

    def run_snippets(self, framework):
        """Those of the page."""
        ran = 0
        for snippet in snippets_of(ROOT / "shim/doc/plugins.md"):
            if framework in snippet.uses and snippet.language == "python":
                with self.subTest(line=snippet.line):
                    self.execute(self.interpreter, "-c", snippet.text)
                    ran += 1
        self.assertGreater(ran, 0)


class Torch(FrameworkTest):
    name = "torch"

    def test_own_allocator(self):
        self.check_as_plain("torch")

    def test_own_expandable_segments(self):
        self.execute("cc", "-shared", "-fPIC", HERE / "nvml.c", "-o", self.folder / "libnvidia-ml.so.1", preload=False)
        self.check_as_plain("torch", PYTORCH_ALLOC_CONF="expandable_segments:True",
                            LD_LIBRARY_PATH=f"{ARGUMENTS.driver}:{self.folder}")

    def test_figures_are_the_drivers(self):
        self.job("torch_job.py", "figures_are_what_the_script_asked_for")
        self.job("torch_job.py", "figures_are_the_drivers", CISTERN_DEVICE_POOL="off")

    def test_streams_memory_and_snapshots(self):
        self.job("torch_job.py", "in_the_order_of_streams", "without_memory", "snapshots", "snapshots_of_whole_blocks",
                 "under_torchs_own_allocator", "graphs_do_not_allocate", "too_late", "leaks_of_tensors")
        self.job("torch_job.py", "a_pool_that_runs_out", SIMCUDA_MEMORY=str(200 << 20))

    def test_without_the_preloaded_library(self):
        self.job("torch_job.py", "unseen", preload=False)

    def test_snippets(self):
        self.run_snippets("torch")

    def test_pytest_names_the_line_of_a_tensor(self):
        suite = ("import torch\n\nkept = []\n\n\n"
                 "def test_keeps():\n    kept.append(torch.empty(1 << 20, device='cuda'))\n\n\n"
                 "def test_drops():\n    torch.empty(1 << 20, device='cuda')\n")
        uses = "import libcistern\n\nlibcistern.torch.use()\n"
        for conftest in ("", uses):
            with self.subTest(conftest=conftest):
                (self.folder / "test_suite.py").write_text(suite)
                (self.folder / "conftest.py").write_text(conftest)
                done = self.execute(self.interpreter, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p",
                                    "libcistern.pytest_plugin", "--cistern", status=1)
                self.assertIn("2 passed, 1 error", done.stdout)
                self.assertRegex(done.stdout, r"test_suite\.py:7: leaked \d+ bytes of device memory in 1 block")

    def test_the_report_names_the_pool(self):
        report = self.folder / "report"
        self.job("torch_job.py", "in_the_order_of_streams", CISTERN_REPORT=str(report))
        self.assertRegex(report.read_text(), r"(?m)^  torch +device +- ")
        self.assertNotIn("PyTorch has a memory cache of its own", report.read_text())


class Cuda(FrameworkTest):
    name = "cuda"

    def test_own_allocators(self):
        """CuPy has NVIDIA's runtime inside, which does not start here: its error is compared."""
        for case in ("bindings", "core", "numba", "cupy"):
            with self.subTest(case):
                self.check_as_plain(case)

    def test_numba(self):
        self.job("numba_job.py", "by_name", NUMBA_CUDA_MEMORY_MANAGER="libcistern.numba")
        self.job("numba_job.py", "by_call")

    def test_cuda_python(self):
        self.job("cuda_python_job.py", "bindings", "core")

    def test_cupy_takes_the_allocator(self):
        """No more: NVIDIA's runtime is inside it."""
        code = ("import cupy, libcistern\nmade = libcistern.cupy.use()\n"
                "assert cupy.cuda.get_allocator() == made.malloc\n"
                "try:\n    cupy.empty(100)\nexcept cupy.cuda.runtime.CUDARuntimeError as error:\n    print(error)")
        self.assertIn("cudaErrorNotSupported", self.execute(self.interpreter, "-c", code).stdout)

    def test_snippets(self):
        self.run_snippets("cupy")


class Rmm(FrameworkTest):
    name = "rmm-26.10"
    cases = ("of_a_resource", "as_upstream", "as_the_current_one", "beyond_reach")

    def test_resources(self):
        self.job("rmm_job.py", *self.cases)

    def test_snippets(self):
        self.run_snippets("rmm")


class RmmOfHeaders(Rmm):
    """The last release whose pool is a header."""
    name = "rmm-25.10"

    def test_in_cxx(self):
        packages, = (PACKAGES / self.name / "lib").glob("python*/site-packages")
        headers = packages / "librmm/include"
        libraries = [packages / "librmm/lib64", packages / "rapids_logger/lib64"]
        program = self.folder / "rmm_runs"
        self.execute("g++", "-std=c++20", "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE", "-I",
                     ROOT / "shim/include", "-isystem", headers, "-isystem", headers / "rapids", "-isystem",
                     packages / "rapids_logger/include", "-isystem", ARGUMENTS.cuda_include, HERE / "rmm_runs.cpp",
                     "-o", program, ARGUMENTS.runtime, ARGUMENTS.driver / "libcuda.so.1", ARGUMENTS.library,
                     libraries[0] / "librmm.so", libraries[1] / "librapids_logger.so", preload=False, driver=False)
        search = ":".join(map(str, [ARGUMENTS.driver, ARGUMENTS.runtime.parent, ARGUMENTS.library.parent, *libraries]))
        for preload in (True, False):
            done = self.execute(program, preload=preload, LD_LIBRARY_PATH=search)
            found = re.fullmatch(r"rmm (\d+) bytes, cistern (\d+) bytes in 2 blocks\n", done.stdout)
            self.assertTrue(found and found[1] == found[2], done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("shim", "driver", "runtime", "library", "command", "cuda-include"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--option", type=lambda text: text.split("=", 1), action="append", default=[],
                        help="NAME=VALUE: of the preloaded library, in every run")
    ARGUMENTS, rest = parser.parse_known_args()
    package_tests.ARGUMENTS = ARGUMENTS
    subprocess.run([ROOT / "scripts/python-packages"], check=True)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
