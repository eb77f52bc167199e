#!/usr/bin/python3
"""The report at the exit of a program that links the library: only where it is asked for, and with its own frames."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import report_checks  # noqa: E402
from report_rows import gpu_rows  # noqa: E402

PROGRAM = sys.argv[1]


class Report(unittest.TestCase):
    def run_with(self, folder, *arguments, **options):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CISTERN_")}
        settings = {f"CISTERN_{name}": value for name, value in options.items()}
        # A sanitizer would speak of what the program leaves behind.
        settings["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        return subprocess.run([PROGRAM, *arguments], env=clean | settings, cwd=folder, capture_output=True, text=True,
                              timeout=120)

    def test_in_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_with(folder, REPORT="report.json", REPORT_FORMAT="json")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            report = json.loads((pathlib.Path(folder) / "report.json").read_text())
        self.assertEqual(report["cistern"]["moment"], "exit")
        self.assertEqual(report_checks.complaints(report), [])
        self.assertEqual(report["library_pools"], [
            {"name": "weights", "kind": "host", "destroyed": False, "allocations": 1, "frees": 0, "failed": 1,
             "live_blocks": 1, "live_bytes": 700000, "peak_bytes": 700000, "allocated_bytes": 700000,
             "bytes_max": 1 << 20},
            {"name": "scratch\n", "kind": "host", "destroyed": True, "allocations": 1, "frees": 1, "failed": 0,
             "live_blocks": 0, "live_bytes": 0, "peak_bytes": 5000, "allocated_bytes": 5000}])
        leak, = gpu_rows(report)
        self.assertEqual((leak["blocks"], leak["bytes"], leak["program"]), (1, 1 << 20, True))
        self.assertEqual([frame["function"] for frame in leak["frames"][:2]], ["leave_buffer", "main"])

    def test_options_by_call(self):
        reports = []
        by_call = ("CISTERN_REPORT_FORMAT", "json", "CISTERN_REPORT", "report.json")
        for arguments, options in (((), {"REPORT": "report.json", "REPORT_FORMAT": "json"}), (by_call, {})):
            with tempfile.TemporaryDirectory() as folder:
                done = self.run_with(folder, *arguments, **options)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
                reports.append(json.loads((pathlib.Path(folder) / "report.json").read_text()))
        by_environment, called = reports
        self.assertEqual(called["library_pools"], by_environment["library_pools"])
        self.assertEqual([(row["blocks"], row["class"]) for row in gpu_rows(called)],
                         [(row["blocks"], row["class"]) for row in gpu_rows(by_environment)])
        self.assertEqual("judging" in called, "judging" in by_environment)

    def test_pools_in_the_text(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_with(folder, REPORT="report.txt")
            text = (pathlib.Path(folder) / "report.txt").read_text()
        lines = text[text.index("POOLS MADE BY THE PROGRAM"):].splitlines()[:4]
        self.assertEqual([line.split() for line in lines[1:]], [
            ["name", "kind", "live", "peak", "limit", "allocs", "failed"],
            ["weights", "host", "683.6", "KiB", "in", "1", "683.6", "KiB", "1.0", "MiB", "1", "1"],
            ["scratch?", "host", "destroyed", "4.9", "KiB", "-", "1", "0"]])
        self.assertEqual({len(line) for line in lines[1:]}, {len(lines[1])})

    def test_nothing_where_nobody_asks(self):
        with tempfile.TemporaryDirectory() as folder:
            for options in ({}, {"REPORT": "none"}):
                done = self.run_with(folder, **options)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_it_waits_for_no_signal_and_that_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_with(folder, WAKE="USR2", REPORT="report.json", REPORT_FORMAT="json")
            report = json.loads((pathlib.Path(folder) / "report.json").read_text())
        self.assertEqual(done.stderr, "cistern: CISTERN_WAKE: a program that is linked with Cistern waits for no "
                                      "signal: its call sites are noted\n")
        self.assertNotIn("asleep", report["sites"])

    def test_a_gate_is_not_kept_and_that_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_with(folder, FAIL_ON="any", REPORT="none")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertEqual(done.stderr, "cistern: CISTERN_FAIL_ON: a program that is linked with Cistern keeps its exit "
                                      "code\n")


unittest.main(argv=["report_tests.py"], verbosity=2)
