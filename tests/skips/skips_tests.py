"""scripts/list-skips on a small ctest project that has a program of every kind: each skip is listed, with its reason,
and one without a reason fails. scripts/list-failures on the same: what went wrong is listed, and nothing else."""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ARGUMENTS = argparse.Namespace()
BYTES = "100000000"


def listed(project, script="list-skips"):
    """The exit code and lines of that script after a run of that project's tests."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder)
        (source / "CMakeLists.txt").write_text("# Made by a test.\ncmake_minimum_required(VERSION 3.25)\n"
                                               "project(skips NONE)\nenable_testing()\n" + project)
        build = source / "build"
        subprocess.run([ARGUMENTS.cmake, "-G", "Ninja", "-B", build, "-S", source], check=True, capture_output=True)
        results = build / "results.xml"
        subprocess.run([pathlib.Path(ARGUMENTS.cmake).with_name("ctest"), "--output-junit", results,
                        "--test-output-size-passed", BYTES, "--test-output-size-failed", BYTES],
                       cwd=build, capture_output=True)
        done = subprocess.run([ROOT / "scripts" / script, f"here={results}"], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines(), done.stderr


def test_of(name, *command):
    words = " ".join(f'"{word}"' for word in command)
    return f"add_test(NAME {name} COMMAND {words})\n"


class ListSkips(unittest.TestCase):
    def expect(self, project, code, *lines):
        self.assertEqual(listed(project), (code, list(lines), ""))

    def test_none(self):
        self.expect(test_of("quiet", "true") + test_of("failing", "false"), 0, "0 skipped")

    def test_unittest(self):
        self.expect(
            test_of("python", sys.executable, HERE / "unittest_skips.py", 2), 0,
            "  here: python: test_decorated: decorated",
            "  here: python: test_output_between: after a line",
            "  here: python: test_parts: part",
            "  here: python: test_with_a_comment: commented",
            "  here: python: test_without_a_tool: tool isn't installed",
            "  here: python: test_one: a whole class",
            "6 skipped")

    def test_unittest_that_gives_no_reasons(self):
        self.expect(test_of("python", sys.executable, HERE / "unittest_skips.py", 1), 1,
                    *["  here: python: a test: NO REASON GIVEN"] * 6, "6 skipped, 6 without a reason")

    def test_googletest(self):
        self.expect(test_of("gtest", ARGUMENTS.gtest), 1,
                    "  here: gtest: Skips.WithAReason: no such device",
                    "  here: gtest: Skips.WithoutAReason: NO REASON GIVEN",
                    "  here: gtest: InSetUp.NeverRuns: not here",
                    "  here: gtest: disabled: NO REASON GIVEN",
                    "4 skipped, 2 without a reason")

    def test_googletest_with_reasons(self):
        self.expect(test_of("gtest", ARGUMENTS.gtest, "--gtest_filter=*.Pass:*.WithAReason:*.NeverRuns"), 0,
                    "  here: gtest: Skips.WithAReason: no such device",
                    "  here: gtest: InSetUp.NeverRuns: not here",
                    "2 skipped")

    def test_scripts(self):
        self.expect(
            test_of("whole", "sh", "-c", "echo skipped: the rest: no tool; exit 77") +
            test_of("mute", "sh", "-c", "exit 77") +
            "set_tests_properties(whole mute PROPERTIES SKIP_RETURN_CODE 77)\n" +
            test_of("part", "sh", "-c", "seq 99999; echo skipped: a part: no tool; echo all well") +
            f'include("{ROOT}/tests/support/left_out.cmake")\n' + 'left_out(folder "no compiler")\n', 1,
            "  here: whole: the rest: no tool",
            "  here: mute: all of it: NO REASON GIVEN",
            "  here: part: a part: no tool",
            "  here: left_out.folder: all of it: no compiler",
            "4 skipped, 1 without a reason")

    def test_a_program_that_is_missing_is_no_skip(self):
        self.expect(test_of("missing", "/nonexistent/program"), 0, "0 skipped")


class ListFailures(unittest.TestCase):
    def lines(self, project):
        code, lines, error = listed(project, "list-failures")
        self.assertEqual((code, error), (0, ""))
        return [line.strip() for line in lines]

    def test_none(self):
        self.assertEqual(self.lines(test_of("quiet", "true")), [])

    def test_googletest(self):
        lines = self.lines(test_of("quiet", "true") +
                           test_of("gtest", ARGUMENTS.gtest, "--gtest_also_run_disabled_tests"))
        self.assertEqual(lines[0], "here: gtest: failed")
        self.assertRegex(lines[1], r"gtest_skips.cpp:\d+: Failure$")
        self.assertEqual(lines[2], "Failed")
        self.assertRegex(lines[3], r"^\[  FAILED  \] Skips.DISABLED_ForGood \(\d+ ms\)$")
        self.assertEqual(len(lines), 4)

    def test_unittest(self):
        text = ("import unittest\nclass T(unittest.TestCase):\n def test_it(self): self.assertEqual(1, 2)\n"
                "unittest.main()")
        with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
            program.write(text)
            program.flush()
            lines = self.lines(test_of("python", sys.executable, program.name))
        self.assertIn("FAIL: test_it (__main__.T", lines[1])
        self.assertIn("AssertionError: 1 != 2", lines)

    def test_others(self):
        lines = self.lines(test_of("script", "sh", "-c", "seq 1000; exit 3"))
        self.assertEqual(lines, ["here: script: failed"] + [str(number) for number in range(971, 1001)])


class Interrupted(unittest.TestCase):
    """A script that is interrupted between two steps that went well has not passed."""

    def test_the_last_status_is_not_that_of_the_script(self):
        script = (f'. "{ROOT}/scripts/common.sh"; finish() {{ say "status $?"; }}; trap finish EXIT; true; '
                  'kill -NAME $$; true; say "went on"')
        for name, status in (("HUP", 129), ("INT", 130), ("TERM", 143)):
            with self.subTest(signal=name):
                done = subprocess.run(["bash", "-c", script.replace("NAME", name)], capture_output=True, text=True)
                self.assertEqual((done.stdout, done.returncode), (f"status {status}\n", status))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--gtest", required=True, help="the built gtest_skips.cpp")
    _, rest = parser.parse_known_args(namespace=ARGUMENTS)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
