"""The pages for users say what happens: every snippet is run, and does what the page shows behind it.

A snippet is a block ```sh; the block without a language that follows it is what a terminal shows. There a line of dots
stands for any lines, dots in a line for anything, and numbers for others of their kind. Blocks ```yaml and ```cmake are
run by what they are for. Programs of the pages (./app) are the tests' own."""
import argparse
import contextlib
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGES = ROOT / "shim/doc"
ARGUMENTS = argparse.Namespace()
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"sh", "yaml", "cmake", ""}


def snippets(page):
    """(language, text, what is shown behind it or None)"""
    found = [(match[1], match[2], match) for match in FENCE.finditer((PAGES / page).read_text())]
    for at, (language, text, match) in enumerate(found):
        if language not in LANGUAGES:
            raise AssertionError(f"{page}: nobody runs a block of {language}")
        after = found[at + 1] if at + 1 < len(found) else None
        adjoins = after and not after[0] and match.string[match.end():after[2].start()].strip() == ""
        if language:
            yield language, text, after[1] if adjoins else None


def without_numbers(text):
    # Some systems have their programs in /bin.
    return re.sub(r"\d+(?:[.,]\d+)*", "#", text).replace("(/bin/", "(/usr/bin/")


def pattern_of(shown):
    lines = []
    for line in shown.splitlines():
        if line == "...":
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(".*".join(re.escape(without_numbers(part)) for part in line.split("...")) + r"\n")
    return "".join(lines)


class Pages(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        shutil.copy(ARGUMENTS.app, self.folder / "app")
        (self.folder / "reports").mkdir()
        waiting = self.folder / "waiting_app"
        waiting.write_text(f"#!/bin/sh\nexec {ARGUMENTS.task} wait -1\n")
        waiting.chmod(0o755)
        if ARGUMENTS.mpi_task:
            shutil.copy(ARGUMENTS.mpi_task, self.folder / "mpi_app")
        tools = self.folder / ".tools"
        tools.mkdir()
        (tools / "srun").symlink_to(HERE.parent / "launchers" / "srun")
        (tools / "docker").symlink_to(HERE / "docker")
        (tools / "python3").symlink_to(sys.executable)
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("CISTERN", "LD_", "OPENCL_", "OMPI_", "SLURM_", "PMI"))}
        self.environment = clean | {
            "PATH": f"{tools}:{clean['PATH']}", "cistern": str(ARGUMENTS.shim), "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_btl": "self,vader,tcp", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}

    def on_terminal(self, script, **environment):
        """What a terminal shows of it, and its exit code."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(["sh", "-euc", script], cwd=self.folder, env=self.environment | environment,
                                   stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                part = b""
            if not part:
                break
            shown += part
        os.close(ours)
        return shown.decode(errors="replace").replace("\r\n", "\n"), process.wait(60)

    def check(self, script, shown, **environment):
        got, code = self.on_terminal(script, **environment)
        self.assertEqual(code, 0, got[-2000:])
        if shown is not None:
            self.assertRegex(without_numbers(got), rf"\A{self.preamble}{pattern_of(shown)}\Z", got[-3000:])

    preamble = ""  # what comes before all that is shown

    def run_page(self, page, at_least):
        count = 0
        for language, text, shown in snippets(page):
            with self.subTest(page=page, snippet=text):
                getattr(self, f"run_{language}")(text, shown)
                count += 1
        self.assertGreaterEqual(count, at_least)

    def run_sh(self, text, shown):
        self.check(text, shown)
        if "CISTERN_FAIL_ON" in text:
            self.check_gate(text)

    def check_gate(self, script):
        """With a leak that no example counts on, the gate says so: by the code that the script shows, or ends with."""
        with self.app_that("lose-much"):
            got, code = self.on_terminal(script)
        self.assertTrue(code == 23 or "exit code 23" in got, got)

    @contextlib.contextmanager
    def app_that(self, word):
        """./app loses 16 MiB, or frees what it uses."""
        app, kept = self.folder / "app", self.folder / ".app"
        app.rename(kept)
        app.write_text(f"#!/bin/sh\nexec {ARGUMENTS.leaky} {word}\n")
        app.chmod(0o755)
        yield
        kept.rename(app)

    def run_yaml(self, text, _):
        """The steps of a workflow, in its environment, each by a shell as the runner has it."""
        environment = dict(re.findall(r"^      (\w+): (.+)$", text, re.MULTILINE))
        steps = re.findall(r"^      - run: (.*)\n", text, re.MULTILINE)
        self.assertTrue(environment and steps)
        for word, expected in (("use", 0), ("lose", 23), ("fork lose", 23)):
            shutil.rmtree(self.folder / "reports", ignore_errors=True)
            with self.subTest(word), self.app_that(word):
                ended = [self.on_terminal(step, **environment) for step in steps]
                self.assertEqual([code for _, code in ended if code], [expected] if expected else [], ended)
                self.assertRegex(ended[-1][0], r"(?m)^reports/\d+\.json")

    def run_cmake(self, text, _):
        (self.folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.18)\nproject(page NONE)\nenable_testing()\n"
            f"add_test(NAME app COMMAND {self.folder}/app)\n{text}")
        got, code = self.on_terminal(f"{ARGUMENTS.cmake} -S . -B build >/dev/null && cd build && ctest")
        self.assertNotEqual(code, 0, got)
        self.assertIn("app (Failed)", got)


class Preload(Pages):
    def test_the_page(self):
        self.run_page("preload.md", at_least=8)


class Ci(Pages):
    def test_the_page(self):
        self.run_page("ci.md", at_least=6)


class Options(Pages):
    def test_the_page(self):
        self.run_page("options.md", at_least=2)


class Gates(unittest.TestCase):
    """Each value of CISTERN_FAIL_ON that a page shows is valid, and fails for 16 MiB that are lost."""

    def test_every_value_that_is_shown(self):
        texts = [path.read_text() for path in [*PAGES.rglob("*.md"), *PAGES.rglob("*.1"), ROOT / "README.md"]]
        shown = re.compile(r"(?:CISTERN_FAIL_ON=|^ *CISTERN_FAIL_ON: )([a-zA-Z0-9:,]+)", re.MULTILINE)
        values = {value for text in texts for value in shown.findall(text)}
        self.assertGreaterEqual(values, {"any", "lost", "lost:10MiB,growing:100MiB", "growing:100MiB"})
        for value in sorted(values - {"off"}):
            with self.subTest(value):
                done = subprocess.run([ARGUMENTS.leaky, "lose-much"], capture_output=True, text=True, env=os.environ | {
                    "LD_PRELOAD": str(ARGUMENTS.shim), "CISTERN_FAIL_ON": value})
                self.assertEqual(done.returncode, 0 if value.startswith("growing") else 23, done.stderr)
                self.assertNotIn("misconfigured", done.stderr)


class Mpi(Pages):
    # What Open MPI says of a job, and what the ranks print.
    preamble = r"(?:.*\n)*?"

    def test_the_page(self):
        self.run_page("mpi.md", at_least=4)


class Containers(Pages):
    def setUp(self):
        super().setUp()
        tried = subprocess.run(["bwrap", "--ro-bind", "/", "/", "--unshare-all", "true"], capture_output=True,
                               text=True)
        if tried.returncode != 0:
            self.skipTest(f"no containers can be made here: {tried.stderr.strip()}")

    def test_the_page(self):
        self.run_page("containers.md", at_least=4)


class Manual(unittest.TestCase):
    page = PAGES / "cistern.1"

    def test_mandoc_has_nothing_to_say(self):
        if not shutil.which("mandoc"):
            self.skipTest("no mandoc")
        done = subprocess.run(["mandoc", "-Tlint", self.page], capture_output=True, text=True)
        # Which other pages are installed here is no matter of this one.
        said = [line for line in (done.stdout + done.stderr).splitlines()
                if not re.search(r"referenced manual not found|outdated mandoc\.db", line)]
        self.assertEqual(said, [])

    def test_man_has_nothing_to_say(self):
        if not shutil.which("man") or not shutil.which("groff"):
            self.skipTest("no man with groff")
        done = subprocess.run(["man", "--warnings", "-l", self.page], capture_output=True, text=True,
                              env=os.environ | {"LC_ALL": "C.UTF-8", "MANWIDTH": "80"})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("CISTERN_REPORT", done.stdout)

    def test_it_is_installed_and_the_pages_too(self):
        with tempfile.TemporaryDirectory() as prefix:
            subprocess.run([ARGUMENTS.cmake, "--install", ARGUMENTS.build, "--prefix", prefix], check=True,
                           stdout=subprocess.DEVNULL)
            installed = {path.name: path.relative_to(prefix) for path in pathlib.Path(prefix).rglob("*")}
        self.assertEqual(str(installed.get("cistern.1")), "share/man/man1/cistern.1")
        for page in ("preload.md", "ci.md", "mpi.md", "containers.md", "options.md", "glossary.md"):
            self.assertIn(page, installed)
        self.assertNotIn("changes", installed)

    def test_its_flags_are_those_of_the_object_and_the_command(self):
        def flags_in(*command):
            usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            return set(re.findall(r"(?<=[\s,])--(\w+)", usage))
        text = self.page.read_text()
        named = set(re.findall(r"\bFl -(\w+)", text)) | set(re.findall(r"Fl -\w+ \| -(\w+)", text))
        of_object = flags_in(ARGUMENTS.shim, "--help")
        of_command = [flags_in(ARGUMENTS.command, "help", name)
                      for name in ("run", "report", "html", "diff", "merge", "export")]
        self.assertEqual(of_object - named, set())
        self.assertEqual(named - of_object.union(*of_command), set())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("shim", "app", "leaky", "task", "mpi-task", "build", "command"):
        parser.add_argument(f"--{name}", type=pathlib.Path)
    parser.add_argument("--cmake")
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
