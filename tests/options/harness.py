"""Runs a program on the simulated driver under the preloaded shim. For the tests of this folder, each of which is
started with the shim, the simulator's library path and its programs as arguments."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import report_checks  # noqa: E402

SHIM, SIMULATOR = sys.argv[1:3]
PROGRAMS = {pathlib.Path(path).name: path for path in sys.argv[3:]}
TIME_LIMIT_S = 120


class Outcome:
    def __init__(self, done, report):
        self.lines, self.errors = done.stdout.splitlines(), done.stderr
        self.code, self.report = done.returncode, report

    def kind(self, name):
        return self.report["kinds"][name]

    def unpooled(self, name):
        return self.kind(name)["unpooled"]


def environment(options, simulator=()):
    """Options of Cistern without their prefix; settings of the simulator without theirs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CISTERN_", "SIMCUDA_", "LD_"))}
    kept |= {"LD_LIBRARY_PATH": SIMULATOR, "LD_PRELOAD": SHIM}
    kept |= {f"CISTERN_{name}": str(value) for name, value in options.items()}
    return kept | {f"SIMCUDA_{name}": str(value) for name, value in simulator}


def start(program, arguments, variables):
    return subprocess.run([PROGRAMS[program], *map(str, arguments)], env=variables, capture_output=True, text=True,
                          timeout=TIME_LIMIT_S)


def run(program, *arguments, simulator=None, status=0, **options):
    """A run that ends well (or with that status), with its JSON report."""
    with tempfile.TemporaryDirectory() as directory:
        report = pathlib.Path(directory) / "report.json"
        options = {"REPORT": report, "REPORT_FORMAT": "json"} | options
        done = start(program, arguments, environment(options, (simulator or {}).items()))
        if done.returncode != status:
            raise AssertionError(f"{program} {arguments}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return Outcome(done, report_checks.read(report) if report.exists() else None)


def run_plain(program, *arguments, simulator=None):
    """The same without the shim: what the driver itself answers."""
    variables = environment({}, (simulator or {}).items())
    del variables["LD_PRELOAD"]
    return Outcome(start(program, arguments, variables), None)


def say_once(test, errors, pattern):
    """One line in all on stderr, and it is this one."""
    lines = errors.splitlines()
    test.assertEqual(len(lines), 1, errors)
    test.assertRegex(lines[0], re.compile(f"^{pattern}$"))


def driver(outcome):
    """The simulated driver's figures at each step that asked for them."""
    names = ("allocs", "frees", "live_kib", "pinned_allocs", "pinned_frees", "pinned_live", "waits")
    lines = [line for line in outcome.lines if line.startswith("driver:")]
    return [dict(zip(names, map(int, re.findall(r"\d+", line)))) for line in lines]
