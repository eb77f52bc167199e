"""The Python package, with the system's NumPy and pytest, on the simulated driver: every program in programs/ asserts
for itself; here is what takes a process of its own to see. The page's snippets run too (shim/doc/plugins.md)."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "shim/python")]
from snippets import snippets_of  # noqa: E402

ARGUMENTS = None
TIME_LIMIT_S = 120


class PackageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def environment(self, preload=True, driver=True, **more):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("CISTERN_", "PYTHON", "LD_"))}
        clean |= {"PYTHONPATH": f"{ROOT / 'shim/python'}:{HERE / 'programs'}", "PYTHONDONTWRITEBYTECODE": "1",
                  "LIBCISTERN_LIBRARY": str(ARGUMENTS.shim), "LIBCISTERN_COMMAND": str(ARGUMENTS.command)}
        if driver:
            clean["LD_LIBRARY_PATH"] = str(ARGUMENTS.driver)
        if preload:
            clean |= {"LD_PRELOAD": str(ARGUMENTS.shim), "CISTERN_REPORT": "none"}
        return clean | more

    def execute(self, *command, status=0, **options):
        done = subprocess.run([str(part) for part in command], env=self.environment(**options), text=True,
                              capture_output=True, timeout=TIME_LIMIT_S, cwd=self.folder)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def python(self, *arguments, **options):
        return self.execute(sys.executable, *arguments, **options)

    def program(self, name, *arguments, **options):
        done = self.python(HERE / "programs" / name, *arguments, **options)
        return done.stdout.splitlines()


class Programs(PackageTest):
    """The functions of a program that are cases."""

    def cases(self, name, cases, **options):
        for case in cases:
            with self.subTest(case=case):
                self.assertEqual(self.program(name, case, **options), ["done"])

    def test_device_memory_in_the_order_of_a_stream(self):
        cases = ("same_stream_at_once", "a_larger_one_does", "another_stream_waits", "further_streams_are_waited_for",
                 "a_handle_that_comes_again_is_another_stream", "memory_that_ran_out_is_given_to_others",
                 "one_that_captures", "threads")
        self.cases("streams.py", cases)
        self.cases("streams.py", cases, POOLS_HAVE_WHOLE_BLOCKS="1")

    def test_what_is_no_block_is_refused(self):
        done = self.python(HERE / "programs/streams.py", "wrong_ones")
        self.assertIn('no live block of pool "torch"', done.stderr)

    def test_what_streams_use_that_nobody_saw(self):
        self.cases("streams.py", ("unseen_streams",), preload=False)

    PINNED = ("inside_and_outside", "zeros_of_used_memory", "nested_and_after_an_error", "as_numpys_context",
              "freed_by_another_thread", "beyond_a_limit", "a_copy_under_way", "a_copy_on_a_blocking_stream",
              "a_copy_from_a_pool_of_ones_own", "outlives_all_modules")

    def test_arrays_in_pinned_memory(self):
        self.cases("pinned.py", self.PINNED)

    def test_pinned_arrays_without_the_preloaded_library(self):
        self.cases("pinned.py", self.PINNED, preload=False)

    def test_pinned_arrays_at_exit_where_freed_memory_is_used_again_at_once(self):
        for preload in (True, False):
            self.cases("pinned.py", ("outlives_all_modules", "is_kept_by_a_module"), preload=preload,
                       PYTHONMALLOC="malloc")

    def test_leaks_name_their_lines(self):
        self.cases("leaking.py", ("names_the_line", "in_a_loop_one_site", "nothing", "after_an_error",
                                  "garbage_is_no_leak", "pinned_too"))

    def test_figures_are_the_drivers(self):
        version = re.search(r"project\(cistern VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertEqual(self.program("figures.py", self.folder), [version])


class CommandLine(PackageTest):
    def cistern(self, *arguments, **options):
        return self.python("-m", "libcistern", *arguments, preload=False, **options)

    def test_a_program_runs_under_the_library_in_front_of_others(self):
        show = "import os; print(*(os.environ[n] for n in ('LD_PRELOAD', 'CISTERN_SITES', 'CISTERN_TRIM_INTERVAL')))"
        done = self.cistern("run", "--sites", "all", "--report=none", "--set", "trim-interval=5s", "--", sys.executable,
                            "-c", show, LD_PRELOAD="libm.so.6")
        self.assertEqual(done.stdout.split(), [f"{ARGUMENTS.shim}:libm.so.6", "all", "5s"])
        self.assertEqual(done.stderr, "")

    def test_twice_is_once(self):
        done = self.cistern("run", "--", sys.executable, "-m", "libcistern", "run", "--", sys.executable, "-c",
                            "import os; print(os.environ['LD_PRELOAD'])", CISTERN_REPORT="none")
        self.assertEqual(done.stdout.strip(), str(ARGUMENTS.shim))

    def test_the_report_is_that_of_the_program(self):
        self.cistern("run", "--report", self.folder / "report", "--", sys.executable, "-c",
                     "import driver; driver.begin(); driver.allocate(12345)")
        self.assertIn("12.1 KiB in 1 block", (self.folder / "report").read_text())

    def test_the_exit_code_is_the_programs(self):
        self.cistern("run", "--", sys.executable, "-c", "import sys; sys.exit(7)", status=7)

    def test_path(self):
        self.assertEqual(self.cistern("path").stdout, f"{ARGUMENTS.shim}\n")
        self.assertEqual(self.python("-m", "libcistern", "path", LIBCISTERN_LIBRARY="/nonexistent").stdout,
                         f"{ARGUMENTS.shim}\n", "the preloaded one comes first")

    def test_doctor_is_the_librarys(self):
        library = self.folder / "library"
        library.write_text("#!/bin/sh\necho \"$@\"  # cistern_sees_program\n")
        library.chmod(0o755)
        done = self.cistern("doctor", "--", "prog", "--its", "arguments", LIBCISTERN_LIBRARY=str(library))
        self.assertEqual(done.stdout, "--doctor -- prog --its arguments\n")

    def test_a_script_without_an_interpreter_is_the_shells(self):
        script = self.folder / "script"
        script.write_text("echo $0 $1 $CISTERN_SITES\n")
        script.chmod(0o755)
        done = self.cistern("run", "--report=none", "--sites=all", "--", "./script", "a  b")
        self.assertEqual(done.stdout, "./script a b all\n")
        done = self.cistern("run", "--report=none", "--", "script", PATH=f"{self.folder}:{os.environ['PATH']}")
        self.assertEqual(done.stdout, f"{script}\n")

    def test_a_program_of_another_c_library_gets_no_preload(self):
        shutil.copy(ARGUMENTS.loader, self.folder / "ld")
        contents = pathlib.Path("/bin/true").read_bytes()
        name = re.search(rb"/[-\w./]*ld-linux[-\w.]*\0", contents)[0]
        program = self.folder / "program"
        program.write_bytes(contents.replace(name, b"./ld".ljust(len(name), b"\0"), 1))
        program.chmod(0o755)
        script, by_name = self.folder / "script", self.folder / "by_name"
        script.write_text(f"#!{program}\n")
        by_name.write_text("#!/usr/bin/env program\n")
        for path in (script, by_name):
            path.chmod(0o755)
        self.assertEqual(self.execute(program, status=5, LD_PRELOAD=str(ARGUMENTS.shim)).stdout, str(ARGUMENTS.shim))
        for command in ("./program", "program", "./script", "./by_name"):
            for before, after in ((None, "nothing"), (str(ARGUMENTS.shim), "nothing"), ("libm.so.6", "libm.so.6")):
                with self.subTest(command=command, before=before):
                    more = {"LD_PRELOAD": before} if before == "libm.so.6" else {}
                    done = self.python("-m", "libcistern", "run", "--", command, status=5, CISTERN_REPORT="none",
                                       preload=before == str(ARGUMENTS.shim),
                                       PATH=f"{self.folder}:{os.environ['PATH']}", **more)
                    self.assertEqual(done.stdout, after)
                    self.assertEqual(done.stderr, f"cistern: {command} runs with ./ld, which is not glibc's: "
                                                  "libcistern.so is not preloaded into it\n")

    def test_the_library_to_link_is_not_preloaded(self):
        text = (f"cistern: {ARGUMENTS.library.resolve()} is not a libcistern.so to preload, "
                "or is older than this command\n")
        for command in "run", "doctor":
            done = self.cistern(command, "--", "true", status=2, LIBCISTERN_LIBRARY=str(ARGUMENTS.library))
            self.assertEqual(done.stderr, text)

    def test_what_is_wrong_is_said_in_one_line(self):
        for arguments, status, text in (
                (["run", "--", "/nonexistent/prog"], 127, "cistern: /nonexistent/prog: not found\n"),
                (["run", "--", self.folder], 126, "Permission denied\n"),
                (["run", "--loud", "--", "true"], 2,
                 "The following argument was not expected: --loud; see cistern help\n"),
                (["run", "--report", "--", "true"], 2,
                 "cistern: --report: 1 required TEXT missing; see cistern help\n"),
                (["run", "--set", "SITES", "--", "true"], 2, "cistern: --set needs NAME=VALUE, not 'SITES'\n"),
                (["doctor", "--report", "x", "--", "true"], 2, "--report; see cistern help\n"),
                (["run"], 2, "cistern: no program given: cistern run [OPTION...] -- PROGRAM [ARGUMENT...]\n"),
                ([], 2, "cistern: A subcommand is required; see cistern help\n"),
                (["walk"], 2, "cistern: no such command: walk; see cistern help\n")):
            with self.subTest(arguments=arguments):
                done = self.cistern(*arguments, status=status)
                self.assertTrue(done.stderr.splitlines(keepends=True)[0].endswith(text), done.stderr)
                self.assertNotIn("Traceback", done.stderr)
        done = self.cistern("path", status=2, LIBCISTERN_LIBRARY="/nonexistent/libcistern.so")
        self.assertEqual(done.stderr,
                         "cistern: LIBCISTERN_LIBRARY=/nonexistent/libcistern.so: there is no such file\n")


class BadInput(PackageTest):
    def says(self, code, text, **options):
        """Exactly one exception of ours."""
        done = self.python("-c", f"import libcistern\ntry:\n    {code}\nexcept libcistern.CisternError as error:\n"
                                 "    print(type(error).__name__, error)", **options)
        self.assertIn(text, done.stdout)
        self.assertEqual(done.stderr, "")

    def test_not_preloaded(self):
        self.says("libcistern.leaks().__enter__()", "NotPreloadedError leaks() needs Cistern to be preloaded",
                  preload=False)

    def test_what_sees_nothing_says_so(self):
        """Else nothing would ever leak."""
        off = {"CISTERN": "off"}
        linked = {"LD_PRELOAD": str(ARGUMENTS.library), "LIBCISTERN_LIBRARY": str(ARGUMENTS.library)}
        (self.folder / "test_leaks.py").write_text("import driver\ndriver.begin()\ndef test(): driver.allocate(9)\n")
        for surroundings in off, linked:
            with self.subTest(**surroundings):
                self.says("libcistern.leaks().__enter__()",
                          "NotPreloadedError leaks() needs Cistern to see the program", **surroundings)
                self.assertEqual(self.python("-c", "import libcistern; print(libcistern.is_preloaded())",
                                             **surroundings).stdout, "False\n")
                done = self.python("-m", "pytest", "-p", "no:cacheprovider", "-p", "libcistern.pytest_plugin",
                                   "--cistern", "test_leaks.py", status=4, **surroundings)
                self.assertIn("--cistern needs Cistern to see the program", done.stderr)

    def test_loaded_for_all_is_not_preloaded(self):
        code = (f"import ctypes\nctypes.CDLL({str(ARGUMENTS.shim)!r}, ctypes.RTLD_GLOBAL)\n"
                "import libcistern\nprint(libcistern.is_preloaded())")
        self.assertEqual(self.python("-c", code, preload=False).stdout, "False\n")

    def test_kinds(self):
        code = ("import driver, libcistern\ndriver.begin()\n"
                "for kinds in ('device', 2, [2], ('pinned', 'device', 2), (k for k in ('pinned', 'device'))):\n"
                "    with libcistern.leaks(kinds) as found:\n        driver.allocate(100)\n"
                "    print(*(f'{leak.kind} {leak.bytes}' for leak in found))\n"
                "try:\n    libcistern.leaks('gpu').__enter__()\nexcept ValueError as error:\n    print(error)\n")
        self.assertEqual(self.python("-c", code).stdout.splitlines(), 5 * ["device 100"] +
                         ["unknown kind of memory: 'gpu' (known: host, opencl, device, pinned, managed)"])

    def test_what_is_no_pool_of_pinned_memory(self):
        self.says("libcistern.pinned(libcistern.Pool('device', 'big')).__enter__()",
                  "CisternError pinned() takes a pool of pinned memory, and big is one of device memory")
        self.says("libcistern.pinned('x').__enter__()",
                  "CisternError pinned() takes a libcistern.Pool of pinned memory or None, not 'x'")
        self.says("pool = libcistern.Pool('pinned', 'gone'); pool.close(); libcistern.pinned(pool).__enter__()",
                  "CisternError pinned(): the pool gone is closed")

    def test_null_bytes(self):
        for call in ("report('a\\0b')", "Pool('device', 'a\\0b')"):
            done = self.python("-c", f"import libcistern\ntry:\n    libcistern.{call}\nexcept ValueError as error:\n"
                                     "    print(error)")
            self.assertIn("must not contain null bytes: b'a\\x00b'", done.stdout)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_the_drivers_code_is_that_of_the_call(self):
        code = ("import libcistern\n"
                "for call in (lambda: libcistern.Pool().allocate(100), lambda: libcistern.figures('device', 99),\n"
                "             lambda: libcistern.Pool('device', bytes_max=100).allocate(200, device=0),\n"
                "             lambda: libcistern._pools.pool_statistics(None)):\n"
                "    try:\n        libcistern.memory_info(0)\n    except libcistern.CisternError:\n        pass\n"
                "    print(libcistern._library.library().cistern_native_error(), end=' ')\n"
                "    try:\n        call()\n    except (libcistern.CisternError, MemoryError) as error:\n"
                "        print(error)\n")
        self.assertEqual(self.python("-c", code, SIMCUDA_DEVICES="0").stdout.splitlines(), [
            "100 100 bytes of pool pool: no driver (native error 100)", "100 figures of device: invalid argument",
            "100 200 bytes of pool pool: over the limit of the pool", "100 statistics of a pool: invalid argument"])

    def test_no_library(self):
        self.says("libcistern.statistics()", "there is no such file", preload=False, LIBCISTERN_LIBRARY="/nonexistent")
        unset = {"LIBCISTERN_LIBRARY": ""}
        self.says("libcistern.statistics()", "libcistern.so is not next to this package", preload=False, **unset)

    def test_what_is_no_library(self):
        (self.folder / "text").write_text("text")
        self.says("libcistern.version()", "cannot be loaded", preload=False,
                  LIBCISTERN_LIBRARY=str(self.folder / "text"))

    def test_no_framework(self):
        for name, use in (("torch", "torch.use()"), ("rmm", "rmm.use()"), ("cupy", "cupy.use()"), ("numba", "numba")):
            (self.folder / f"{name}.py").write_text("raise ImportError('not here')")
            path = f"{self.folder}:{ROOT / 'shim/python'}"
            self.says(f"libcistern.{use}", f"libcistern.{name} needs {name}, which cannot be imported: not here",
                      PYTHONPATH=path)

    def test_no_driver(self):
        self.says("libcistern.pinned().__enter__()", "no CUDA driver or no device", driver=False)
        self.says("libcistern.Pool().allocate(100)", "no driver", driver=False)
        self.says("libcistern.pinned().__enter__()", "no CUDA driver or no device", SIMCUDA_DEVICES="0")


class OtherPythons(PackageTest):
    def test_it_runs_on_every_one_at_hand(self):
        sys.path.insert(0, str(ROOT / "tests/interpreters"))
        from interpreters_tests import SERVED, interpreters
        code = ("import driver, libcistern\ndriver.begin()\nwith libcistern.leaks() as found:\n"
                "    driver.allocate(100)\nprint(found[0].bytes, found[0].stack[-1].line, libcistern.__version__[0])")
        for python, version in interpreters().items():
            if version[1] in SERVED:
                with self.subTest(python=str(python)):
                    self.assertEqual(self.execute(python, "-c", code).stdout, "100 4 0\n")


SUITE = """
import driver
import pytest

driver.begin()


@pytest.fixture
def buffer():
    made = driver.allocate(100)
    yield made
    driver.free(made)


@pytest.fixture(scope="module")
def of_the_module():
    return driver.allocate(100)


def test_clean(buffer):
    driver.free(driver.allocate(100))


def test_of_the_module(of_the_module):
    pass


def forget():
    driver.allocate(4096)  # leaks


def test_leaks(buffer):
    forget()


def test_fails_by_itself():
    driver.allocate(100)
    assert not "fails"


def test_gives_to_its_fixture(handed):
    handed.append(driver.allocate(100))


@pytest.fixture
def handed():
    held = []
    yield held
    for block in held:
        driver.free(block)


@pytest.mark.cistern_may_leak
def test_may():
    driver.allocate(100)
"""

OUTCOMES = """
import driver
import pytest

driver.begin()


@pytest.fixture
def broken():
    driver.allocate(100)
    assert not "set up"


def test_setup_fails(broken):
    pass


@pytest.mark.parametrize("number", (1, 2))
def test_each(number):
    if number == 2:
        driver.allocate(100)


def test_skips():
    driver.allocate(100)
    pytest.skip("later")


@pytest.mark.xfail
def test_xfails():
    driver.allocate(100)
    assert not "known"


@pytest.mark.xfail
def test_xpasses():
    driver.allocate(100)


@pytest.mark.xfail(strict=True)
def test_strict():
    driver.allocate(100)
"""

STOPPED = """
import driver
import pytest

driver.begin()


@pytest.fixture(scope="module")
def of_the_module():
    yield
    print("the module's is gone")


def test_leaks(of_the_module):
    driver.allocate(100)


def test_other(of_the_module):
    pass
"""

FLAKY = """
import driver

driver.begin()
runs = []


def test_flaky():
    runs.append(1)
    assert len(runs) > 1


def test_leaks_once():
    runs.append(1)
    if len(runs) == 3:
        driver.allocate(100)
"""

AGAIN = """
import sys

from _pytest.runner import runtestprotocol


def pytest_runtest_protocol(item, nextitem):
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports):
        print("again:", item.name, file=sys.__stderr__)
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
"""


class Pytest(PackageTest):
    def pytest(self, *arguments, suite=SUITE, **options):
        (self.folder / "test_suite.py").write_text(suite)
        return self.python("-m", "pytest", "-p", "no:cacheprovider", "-p", "libcistern.pytest_plugin", "-q", *arguments,
                           **options)

    def test_a_test_that_leaks_fails_and_its_line_is_named(self):
        done = self.pytest("--cistern", "-rfE", status=1)
        line = SUITE.splitlines().index("    driver.allocate(4096)  # leaks") + 1
        leak = f"test_suite.py:{line}: leaked 4096 bytes of device memory in 1 block (cuMemAlloc_v2)"
        self.assertIn(leak, done.stdout)
        self.assertIn(f"    test_leaks ({self.folder / 'test_suite.py'}:{line + 4})", done.stdout)
        failed = re.findall(r"^FAILED test_suite.py::(\w+)", done.stdout, re.M)
        self.assertEqual(failed, ["test_fails_by_itself"], done.stdout)
        self.assertIn(f"ERROR test_suite.py::test_leaks - {self.folder}", done.stdout)
        self.assertIn("1 failed, 5 passed, 1 error", done.stdout)

    def test_what_fails_skips_or_is_expected_to_is_as_ever(self):
        done = self.pytest("--cistern", "-rA", status=1, suite=OUTCOMES)
        self.assertIn("1 failed, 2 passed, 1 skipped, 1 xfailed, 1 xpassed, 3 errors", done.stdout)
        errors = re.findall(r"^ERROR test_suite.py::([\w\[\]]+)", done.stdout, re.M)
        self.assertEqual(errors, ["test_setup_fails", "test_each[2]", "test_xpasses"], done.stdout)

    def test_fixtures_of_a_module_end_where_the_first_failure_stops(self):
        done = self.pytest("--cistern", "-x", "-s", status=1, suite=STOPPED)
        self.assertIn("the module's is gone", done.stdout)
        self.assertIn("1 passed, 1 error", done.stdout)

    def test_others_run_the_tests_as_they_like(self):
        """As plug-ins do that run a test again."""
        (self.folder / "conftest.py").write_text(AGAIN)
        done = self.pytest("--cistern", status=0, suite=FLAKY)
        self.assertIn("again: test_flaky\nagain: test_leaks_once\n", done.stderr)
        self.assertIn("2 passed", done.stdout)

    def test_nothing_happens_unasked(self):
        self.assertIn("1 failed, 5 passed", self.pytest(status=1).stdout)
        self.assertIn("1 failed, 5 passed", self.pytest(status=1, preload=False).stdout)

    def test_not_preloaded_is_a_usage_error_of_one_line(self):
        done = self.pytest("--cistern", status=4, preload=False)
        self.assertEqual(done.stderr.strip(), "ERROR: --cistern needs Cistern to be preloaded: "
                                              "python -m libcistern run -- python ...")


class Page(PackageTest):
    """The snippets of shim/doc/plugins.md that take no framework but NumPy and pytest."""

    def test_snippets(self):
        ran = 0
        for snippet in snippets_of(ROOT / "shim/doc/plugins.md"):
            if snippet.uses & {"torch", "rmm", "cupy", "numba"}:
                continue
            with self.subTest(line=snippet.line):
                ran += 1
                if snippet.language == "python":
                    self.python("-c", snippet.text)
                elif snippet.language == "c":
                    (self.folder / "snippet.c").write_text(snippet.text)
                    self.execute("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-c", "-I", ROOT / "shim/include",
                                 "snippet.c", preload=False)
                else:
                    (self.folder / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
                    (self.folder / "pytest.ini").write_text("[pytest]\naddopts = -p libcistern.pytest_plugin\n")
                    path = f"{self.folder}:{os.environ['PATH']}"
                    if not (self.folder / "python").exists():
                        (self.folder / "python").symlink_to(sys.executable)
                    self.execute("sh", "-e", "-c", snippet.text, preload=False, PATH=path)
        self.assertGreater(ran, 5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--shim", type=pathlib.Path, required=True)
    parser.add_argument("--library", type=pathlib.Path, required=True, help="the one to link")
    parser.add_argument("--driver", type=pathlib.Path, required=True, help="folder of the simulated libcuda.so.1")
    parser.add_argument("--command", type=pathlib.Path, help="the command cistern")
    parser.add_argument("--loader", type=pathlib.Path, required=True, help="one that is not glibc's")
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
