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
from report_rows import gpu_rows  # noqa: E402

PROGRAM = sys.argv[1]


class Report(unittest.TestCase):
    def run_with(self, folder, **options):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CISTERN_")}
        settings = {f"CISTERN_{name}": value for name, value in options.items()}
        # A sanitizer would speak of what the program leaves behind.
        settings["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        return subprocess.run([PROGRAM], env=clean | settings, cwd=folder, capture_output=True, text=True, timeout=120)

    def test_in_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_with(folder, REPORT="report.json", REPORT_FORMAT="json")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            report = json.loads((pathlib.Path(folder) / "report.json").read_text())
        self.assertEqual(report["cistern"]["moment"], "exit")
        leak, = gpu_rows(report)
        self.assertEqual((leak["blocks"], leak["bytes"], leak["program"]), (1, 1 << 20, True))
        self.assertEqual([frame["function"] for frame in leak["frames"][:2]], ["leave_buffer", "main"])

    def test_nothing_where_nobody_asks(self):
        with tempfile.TemporaryDirectory() as folder:
            for options in ({}, {"REPORT": "none"}):
                done = self.run_with(folder, **options)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


unittest.main(argv=["report_tests.py"], verbosity=2)
