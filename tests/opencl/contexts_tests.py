#!/usr/bin/python3
"""The report says which device's contexts have how much memory, by the devices' names: of PoCL's two, in a process that
uses both, each and together (programs/by_device.cpp)."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import report_checks  # noqa: E402

ARGUMENTS = argparse.ArgumentParser(description=__doc__)
ARGUMENTS.add_argument("--shim", required=True)
ARGUMENTS.add_argument("--program", required=True)
OPTIONS = ARGUMENTS.parse_args()
MIB = 1 << 20


def run(**more):
    kept = {name: value for name, value in os.environ.items()
            if name not in ("LD_PRELOAD", "OPENCL_LAYERS", "POCL_DEVICES") and not name.startswith("CISTERN_")}
    done = subprocess.run([OPTIONS.program], env=kept | more, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


class Contexts(unittest.TestCase):
    def report(self, **way):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.json"
            out, _ = run(POCL_DEVICES="pthread basic", CISTERN_REPORT=str(path), CISTERN_REPORT_FORMAT="json", **way)
            self.names = re.findall(r"^device: (.*)$", out, re.M)
            return report_checks.read(path)

    def check(self, report):
        self.assertEqual(len(self.names), 2)
        self.assertNotEqual(*self.names)
        first, second, both = report["contexts"]
        self.assertEqual([[device["name"] for device in part["devices"]] for part in report["contexts"]],
                         [[self.names[0]], [self.names[1]], self.names])
        self.assertTrue(all(device["total_bytes"] > MIB for device in both["devices"]))
        figures = ("created", "alive", "allocations", "live_blocks", "live_bytes", "peak_bytes", "pooled_blocks",
                   "pooled_bytes")
        self.assertEqual([first[name] for name in figures], [2, 2, 2, 2, 9 * MIB, 9 * MIB, 0, 0])
        self.assertEqual([second[name] for name in figures], [1, 1, 2, 1, MIB, 2 * MIB, 1, MIB])
        self.assertEqual([both[name] for name in figures], [1, 0, 1, 0, 0, 4 * MIB, 0, 0])
        self.assertEqual([(one["context"], one["live_bytes"]) for one in first["contexts"]], [(4, 8 * MIB), (1, MIB)])
        self.assertEqual([(one["context"], one["live_bytes"], one["pooled_bytes"]) for one in second["contexts"]],
                         [(2, MIB, MIB)])
        self.assertEqual(both["contexts"], [])

    def test_preloaded(self):
        self.check(self.report(LD_PRELOAD=OPTIONS.shim))

    def test_as_a_layer(self):
        self.check(self.report(OPENCL_LAYERS=OPTIONS.shim))

    def test_the_text_says_the_same(self):
        out, err = run(POCL_DEVICES="pthread basic", LD_PRELOAD=OPTIONS.shim)
        first, second = re.findall(r"^device: (.*)$", out, re.M)
        self.assertRegex(err, rf"\n  opencl on {re.escape(first)} with [\d.]+ GiB: live 9\.0 MiB in 2 blocks, "
                              r"peak 9\.0 MiB \([\d.]+ s\); 2 of 2 contexts live\n"
                              r"      context 4: live 8\.0 MiB in 1 block; context 1: live 1\.0 MiB in 1 block\n")
        self.assertRegex(err, rf"\n  opencl on {re.escape(second)} with [\d.]+ GiB: live 1\.0 MiB in 1 block, "
                              r"peak 2\.0 MiB \([\d.]+ s\), retained 1\.0 MiB in 1 block; 1 of 1 context live\n")
        self.assertRegex(err, rf"\n  opencl on {re.escape(first)} with [\d.]+ GiB, {re.escape(second)} with "
                              r"[\d.]+ GiB: live 0 B, peak 4\.0 MiB \([\d.]+ s\); 0 of 1 context live\n")


unittest.main(argv=["contexts_tests.py"], verbosity=2)
