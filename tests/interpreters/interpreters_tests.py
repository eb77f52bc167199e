"""Python frames in call sites, compared with what Python itself says, on every CPython at hand."""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from report_rows import host_rows  # noqa: E402

ARGUMENTS = None
PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
FRAMES_MAX = 40  # stats/sites.cpp
FIRST, STEP = 1_000_000, 16
SERVED = range(8, 15)


def interpreters():
    """Debian's, and those that a version manager keeps."""
    roots = [pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"]
    found = [pathlib.Path("/usr/bin/python3")] + [p for root in roots for p in sorted(root.glob("3.*/bin/python3"))]
    versions = {}
    for python in found:
        answer = subprocess.run([python, "-c", "import sys, ctypes; print(*sys.version_info[:2])"], text=True,
                                capture_output=True)
        if answer.returncode == 0:
            versions[python] = tuple(map(int, answer.stdout.split()))
    return versions


class PythonTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.library = ARGUMENTS.programs / "libprobe.so"

    def run_python(self, python, *arguments, status=0, **options):
        """What it printed, and its report."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("CISTERN_", "PYTHON")) and k != "LD_PRELOAD"}
        options = {"REPORT": report, "REPORT_FORMAT": "json", "SITES": "all", "LEAK_CHECK": 0} | options
        done = subprocess.run([python, *map(str, arguments)], capture_output=True, text=True, timeout=600,
                              env=clean | {"LD_PRELOAD": str(ARGUMENTS.shim), "PYTHONIOENCODING": "utf-8"} |
                              {f"CISTERN_{name}": str(value) for name, value in options.items()})
        self.assertEqual((done.returncode, done.stderr), (status, ""))
        return done.stdout, json.loads(report.read_text())

    @staticmethod
    def python_frames(row):
        return [[f["function"], f["file"], f.get("line", 0)] for f in row["frames"] if f.get("python")]

    def numbered(self, report, slack=0):
        """The rows of blocks that say their number by their size, by number. Bytearrays take a byte more."""
        rows = {}
        for row in host_rows(report):
            number, rest = divmod(row["block_bytes_min"] - FIRST, STEP)
            if number >= 0 and rest <= slack and row["block_bytes_min"] < 2 * FIRST:
                rows[number] = row
        return rows

    def on_each_interpreter(self, check):
        """In a subtest for each that is served."""
        for python, version in interpreters().items():
            if version[1] in SERVED:
                with self.subTest(python=str(python)):
                    check(python, version)

    def run_for_text(self, *command, **options):
        report = self.folder / "report.txt"
        report.unlink(missing_ok=True)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("CISTERN_", "PYTHON")) and k != "LD_PRELOAD"}
        options = {"REPORT": report} | options
        subprocess.run(command, check=True, timeout=600, env=clean | {"LD_PRELOAD": str(ARGUMENTS.shim)} |
                       {f"CISTERN_{name}": str(value) for name, value in options.items()})
        return report.read_text()


class Ends(PythonTest):
    """Programs that must end as they do without us."""

    def same(self, python, code, **options):
        plain = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=120)
        out, report = self.run_python(python, "-c", code, status=plain.returncode, **options)
        self.assertEqual(out, plain.stdout)
        return report

    def test_handlers_of_signals_allocate_where_frames_are_made(self):
        code = (f"import ctypes\nctypes.CDLL({str(self.library)!r}).interrupt_every(100)\n"
                "def f(n):\n    return n and f(n - 1)\n"
                "def g(n):\n    return sum(x for x in range(n))\n"
                "print(sum(f(20) or g(20) for _ in range(60000)))\n")
        self.on_each_interpreter(lambda python, _: self.same(python, code))

    def test_threads_that_allocate_while_the_interpreter_ends(self):
        code = (f"import ctypes, threading, time\nlibrary = ctypes.CDLL({str(self.library)!r})\n"
                "def f(n):\n    f(n - 1) if n else library.allocate_for_ever()\n"
                "for i in range(30):\n    threading.Thread(target=f, args=(200,), daemon=True).start()\n"
                "time.sleep(0.05)\nprint('end')\n")
        for _ in range(3):
            self.on_each_interpreter(lambda python, _: self.same(python, code))

    def test_code_that_is_made_again_and_again_takes_no_room(self):
        code = "for i in range(100000): eval('bytearray(1000)')"
        self.on_each_interpreter(
            lambda python, _: self.assertLess(self.same(python, code)["self"]["tables_bytes"], 12 << 20))

    def test_stacks_without_end_take_bounded_room(self):
        """Only the inner parts of further ones are told apart."""
        code = ("import random\nrandom.seed(1)\n"
                "def a(n): b(n - 1) if random.random() < 0.5 else c(n - 1)\n"
                "def b(n): c(n - 1) if n > 0 else bytearray(600)\n"
                "def c(n):\n    if n <= 0: bytearray(700)\n    else: (a if random.random() < 0.5 else b)(n - 1)\n"
                "for i in range(150000): a(30)\n")
        report = self.same("/usr/bin/python3", code)
        self.assertLess(report["self"]["tables_bytes"], 128 << 20)
        self.assertGreater(report["sites"]["count"], 1 << 16)
        self.assertLess(report["sites"]["count"], 100000)
        self.assertEqual(report["self"]["dropped_events"], 0)


class Frames(PythonTest):
    def test_frames_are_those_that_python_sees(self):
        first = random.randrange(1 << 30)
        for python, (_, minor) in interpreters().items():
            for seed in (first, first + 1):
                with self.subTest(python=str(python), seed=seed):
                    self.compare(python, minor, seed)

    def compare(self, python, minor, seed):
        count = 150  # a report lists 200 places
        out, report = self.run_python(python, PROGRAMS / "shapes.py", self.library,
                                      seed, count)
        expected = {int(number): stack for number, stack in json.loads(out).items()}
        rows = self.numbered(report)
        self.assertGreater(len(expected), count - 5)  # now and then a random shape never comes to its block
        if minor not in SERVED:
            self.assertFalse(any(self.python_frames(row) for row in rows.values()))
            return
        wrong = []
        for number, stack in expected.items():
            frames = self.python_frames(rows[number]) if number in rows else None
            if frames != stack[:FRAMES_MAX]:
                wrong.append((number, frames, stack))
        self.assertEqual(len(wrong), 0, f"of {count}; the first: {wrong[:1]}")
        self.check_order(expected, rows)

    def check_order(self, expected, rows):
        """Native frames stand between the Python frames that they did stand between: those of call_back, which a shape
        calls, between the lambda that it calls and the shape's own."""
        checked = 0
        for number, stack in expected.items():
            frames = rows[number]["frames"]
            self.assertFalse([f for f in frames if f.get("function") == "_PyEval_EvalFrameDefault"])
            called = [i for i, frame in enumerate(stack[:FRAMES_MAX])
                      if frame[1].startswith("<c_callback") and frame[0] == "shape"]
            native = [i for i, frame in enumerate(frames) if frame.get("function") == "call_back"]
            before = [sum(1 for f in frames[:i] if f.get("python")) for i in native]
            self.assertEqual(before, called[:len(before)], number)
            checked += len(before)
        self.assertGreater(checked, 0)

    def test_code_that_takes_the_place_of_other_code(self):
        def check(python, _):
            # Its blocks are all samples; each try would have sites of its own else, more than are kept.
            out, report = self.run_python(python, PROGRAMS / "reuse.py", SITES="gpu")
            rows = self.numbered(report, slack=1)
            expected = json.loads(out)
            self.assertGreater(len(expected), 0)
            self.assertEqual({number: self.python_frames(rows[int(number)])[0] for number in expected}, expected)

        self.on_each_interpreter(check)

    def test_sub_interpreters(self):
        """With the GIL, their own stack; without it before 3.12, where nobody can tell whose it is, none."""
        def check(python, version):
            out, report = self.run_python(python, PROGRAMS / "interpreters.py", self.library, status=-15)
            self.assertEqual(out, "4\n")
            rows = self.numbered(report, slack=1)
            for number in range(4):
                # Two native stacks are one row.
                names = [frame[0] for frame in self.python_frames(rows.get(number) or rows[number - 2])]
                own = ["inner", "outer", "<module>"]
                self.assertEqual(names[:3], own if number % 2 or version >= (3, 12) else [], number)

        self.on_each_interpreter(check)

    def test_interpreters_that_are_loaded_late_and_closed(self):
        """By a program that is no Python, in name spaces of their own, one after another at the same addresses."""
        libraries = [library for python, version in interpreters().items() if version[1] in SERVED
                     for library in python.parents[1].glob(f"lib/**/libpython3.{version[1]}.so.1.0")]
        if not libraries:
            self.skipTest("no libpython at hand")
        code = ("def {1}(n):\n    global kept{0}\n    kept{0} = bytearray(1000000 + 16 * n)\n"
                "def two(n):\n    {1}(n)\ntwo({0})\n")
        for library in libraries:
            with self.subTest(library=library.name):
                arguments = [library, code.format(1, "first"), library, "-", library, code.format(2, "second"),
                             libraries[0], code.format(3, "third")]
                _, report = self.run_python(ARGUMENTS.programs / "embedding", *arguments)
                rows = self.numbered(report, slack=1)
                for number, name in ((2, "second"), (3, "third")):
                    self.assertEqual(self.python_frames(rows[number]),
                                     [[name, "<string>", 3], ["two", "<string>", 5], ["<module>", "<string>", 6]])

    def test_only_native_frames_where_so_asked(self):
        code = "import os; kept = bytearray(1000000); os._exit(0)"
        _, report = self.run_python("/usr/bin/python3", "-c", code, FRAMES="native")
        frames = self.numbered(report, slack=1)[0]["frames"]
        self.assertFalse(any(f.get("python") for f in frames))
        self.assertTrue(any("python" in f.get("module", "") for f in frames))

    def test_the_text_shows_python_code_first(self):
        code = "import os\ndef make():\n    return bytearray(5000000)\nkept = make()\nos._exit(0)\n"
        for frames, first in (("python", r"     make +<string>:3\n     <module> +<string>:4\n     through "),
                              ("all", r"     (?!make).*\n(?:     .*\n)*     make +<string>:3\n")):
            with self.subTest(frames=frames):
                text = self.run_for_text("/usr/bin/python3", "-c", code, FRAMES=frames)
                self.assertRegex(text, r"host  4\.8 MiB in 1 block.*\n" + first)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--shim", type=pathlib.Path, required=True)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], "-v", *rest])
