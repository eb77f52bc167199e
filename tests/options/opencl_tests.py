#!/usr/bin/python3
"""The pool's options on a whole process: on and off, cap, object limits, trim by time and by call, sites off."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import report_checks  # noqa: E402

SHIM, PROGRAM = sys.argv[1:3]


def run(*steps, **options):
    """The program's lines and its JSON report."""
    with tempfile.TemporaryDirectory() as directory:
        report = pathlib.Path(directory) / "report.json"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CISTERN_")}
        environment |= {"LD_PRELOAD": SHIM, "CISTERN_REPORT": str(report), "CISTERN_REPORT_FORMAT": "json"}
        environment |= {f"CISTERN_{name}": value for name, value in options.items()}
        done = subprocess.run([PROGRAM, *map(str, steps)], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.splitlines(), report_checks.read(report), done.stderr


class AsAProgram(unittest.TestCase):
    def test_it_says_what_it_is_and_all_options(self):
        done = subprocess.run([SHIM], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^cistern \d+\.\d+\.\d+: .*\nusage: LD_PRELOAD=")
        shown = re.findall(r"^  (CISTERN\w*) \((.*)\)$", done.stdout, re.M)
        rows = (pathlib.Path(__file__).resolve().parents[2] / "shim" / "options.def").read_text()
        self.assertEqual(shown, re.findall(r'^OPTION\(\w+, \w+, (CISTERN\w*),\s*"([^"]*)"', rows, re.M))


class PoolOptions(unittest.TestCase):
    def test_kept_by_default(self):
        lines, report, errors = run(4096, 4096, 100000)
        self.assertEqual(lines, ["4096: kept 4096 in 1, largest 4096", "4096: kept 4096 in 1, largest 4096",
                                 "100000: kept 104096 in 2, largest 100000"])
        self.assertEqual(report["kinds"]["opencl"]["pool_hits"], 1)
        self.assertEqual(report["kinds"]["opencl"]["pool_misses"], 2)
        self.assertEqual(errors, "")

    def test_off(self):
        lines, report, _ = run(4096, 4096, OPENCL_POOL="off")
        self.assertEqual(lines[-1], "4096: kept 0 in 0, largest 0")
        self.assertEqual(report["kinds"]["opencl"]["unpooled"], {"pool off": 2})
        self.assertEqual(report["kinds"]["opencl"]["driver_allocs"], 2)

    def test_object_limits(self):
        lines, report, _ = run(100, 5000, 50000, OPENCL_OBJECT_MIN="4KiB", OPENCL_OBJECT_MAX="32KiB")
        self.assertEqual(lines[-1], "50000: kept 5000 in 1, largest 5000")
        self.assertEqual(report["kinds"]["opencl"]["unpooled"], {"below object min": 1, "above object max": 1})

    def test_the_cap_drops_the_oldest(self):
        lines, report, _ = run(1000, 1001, 1002, 1000, OPENCL_POOL_MAX="2100")
        self.assertEqual(lines[2], "1002: kept 2003 in 2, largest 1002")
        self.assertEqual(report["kinds"]["opencl"]["pool_hits"], 0, "the oldest was 1000")

    def test_kept_buffers_go_before_others_are_made(self):
        sizes = [40 << 20, 50 << 20]
        lines, _, _ = run(*sizes)
        self.assertEqual(lines[1], f"{sizes[1]}: kept {sizes[1]} in 1, largest {sizes[1]}")
        lines, _, _ = run(*sizes, OPENCL_POOL_PERCENT="0")
        self.assertEqual(lines[1], f"{sizes[1]}: kept {sum(sizes)} in 2, largest {sizes[1]}")

    def test_unused_memory_goes_back_after_the_interval_but_for_the_minimum(self):
        lines, _, _ = run(1000, 1001, 1002, "sleep", 64, TRIM_INTERVAL="100ms", OPENCL_POOL_MIN="1500")
        self.assertEqual(lines[2], "1002: kept 3003 in 3, largest 1002")
        self.assertEqual(lines[4], "64: kept 1066 in 2, largest 1002")

    def test_what_waits_for_pending_commands_is_bounded(self):
        lines, report, _ = run("pending=100", "pending=20")
        figures = report["kinds"]["opencl"]
        self.assertEqual(lines[0], f"behind the gate: {34 << 20}", "32 MiB and twice the peak of 1 MiB")
        self.assertEqual(figures["unpooled"], {"too many in flight": 66})
        self.assertEqual(figures["pool_hits"], 20)
        self.assertEqual(figures["live_blocks"], 0)

    def test_trim_by_call(self):
        lines, _, _ = run(1000, 2000, "trim=2000", "trim=0")
        self.assertEqual(lines[2:], ["trimmed 1000", "trim=2000: kept 2000 in 1, largest 2000",
                                     "trimmed 2000", "trim=0: kept 0 in 0, largest 0"])

    def test_sites_off(self):
        _, report, _ = run(4096, SITES="off")
        self.assertEqual(report["sites"]["mode"], "off")

    def test_a_bad_value_is_said_once_and_the_default_holds(self):
        lines, _, errors = run(4096, OPENCL_POOL_MAX="plenty")
        self.assertEqual(lines, ["4096: kept 4096 in 1, largest 4096"])
        self.assertEqual(errors.count("CISTERN_OPENCL_POOL_MAX"), 1)
        self.assertEqual(len(errors.splitlines()), 1)


unittest.main(argv=sys.argv[:1], verbosity=2)
