#!/usr/bin/python3
"""The C API under the preloaded shim: checked by the program itself, and the report that it asks for."""
import json
import pathlib
import tempfile
import unittest

from harness import run
from report_rows import gpu_rows


class CApi(unittest.TestCase):
    def test_it_speaks_of_the_pools_of_the_program(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "on_demand.json"
            outcome = run("c_api", path)
            report = json.loads(path.read_text())
        self.assertEqual(outcome.lines, ["all right"])
        self.assertEqual(outcome.errors, "")
        self.assertEqual(report["cistern"]["moment"], "call")
        self.assertEqual([(leak["kind"], leak["bytes"], leak["frames"][0]["function"]) for leak in gpu_rows(report)],
                         [("device:0", 3 << 20, "reports")])
        self.assertEqual(gpu_rows(outcome.report), [], "freed after that report")


unittest.main(argv=["c_api_tests.py"], verbosity=2)
