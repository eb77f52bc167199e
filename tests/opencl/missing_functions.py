#!/usr/bin/python3
"""The driver has nothing in a slot of its table, or the loader lacks the function: each that Cistern has a row or a
place for in turn (so each that it may call on its own account, those of tomorrow too), and the program that needs none
of them does as without Cistern, preloaded and as a layer. What needs the function is off: one line says so, and the
report counts it."""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from without_symbol import without  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHIM, PROGRAM, COMPILER = sys.argv[1:4]
WAYS = "preloaded", "layer", "loader"
OF_POOL = {"clGetMemObjectInfo", "clEnqueueMarkerWithWaitList", "clGetEventInfo", "clReleaseEvent", "clWaitForEvents",
           "clFlush", "clFinish"}
OF_STAGING = OF_POOL | {"clEnqueueMapBuffer", "clEnqueueUnmapMemObject", "clCreateCommandQueue",
                        "clEnqueueWriteBufferRect", "clEnqueueReadBufferRect"}


def slots_of_the_table():
    text = '#define OPENCL_CALL(a, slot, r, name, p, g) ROW slot name;\n#include "shim/symbols/opencl.def"\n'
    rows = subprocess.run([COMPILER, "-E", "-P", "-x", "c++", f"-I{ROOT}", "-"], input=text, check=True,
                          capture_output=True, text=True).stdout
    table = (ROOT / "shim/opencl/table.hpp").read_text()
    numbers = dict(re.findall(r"\b(kSlot\w+) = (\d+)", table))
    questions = re.findall(r"each\((\d+), (cl\w+),", table)
    own = [(numbers[slot], name) for slot, name in re.findall(r"RealFunction<.*, (kSlot\w+)> (cl\w+);", table)]
    return {name: int(slot) for slot, name in (*re.findall(r"ROW (\d+) (\w+);", rows), *questions, *own)}


def needed_by(program):
    listed = subprocess.run(["nm", "-D", "--undefined-only", program], check=True, capture_output=True, text=True)
    return set(re.findall(r"\bU (cl[A-Z]\w+)", listed.stdout))


def loader():
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return pathlib.Path(re.search(r"^\tlibOpenCL\.so\.1 .* => (.*)$", listed, re.M)[1]).read_bytes()


class Missing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.loader = loader()
        cls.slots = slots_of_the_table()
        # The loader itself asks for these.
        cls.names = sorted(set(cls.slots) - needed_by(PROGRAM) - {"clGetPlatformInfo"})
        cls.outcomes = {}
        cls.run_all("clGetDeviceInfo")  # what PoCL makes once
        with concurrent.futures.ThreadPoolExecutor(2) as runs:
            for name, found in zip(cls.names, runs.map(cls.run_all, cls.names)):
                cls.outcomes[name] = found

    @classmethod
    def run_all(cls, name):
        with tempfile.TemporaryDirectory() as folder:
            return {way: cls.run_one(way, name, pathlib.Path(folder)) for way in WAYS}

    @classmethod
    def run_one(cls, way, name, folder):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("CISTERN_", "OPENCL_", "LD_"))}
        report = folder / "report.json"
        kept |= {"CISTERN_REPORT": str(report), "CISTERN_REPORT_FORMAT": "json", "CISTERN_STAGING": "on"}
        kept |= {"OPENCL_LAYERS" if way == "layer" else "LD_PRELOAD": SHIM}
        if way == "loader":
            (folder / "libOpenCL.so.1").write_bytes(without(cls.loader, name) or cls.loader)
            kept |= {"LD_LIBRARY_PATH": str(folder)}
        slot = [] if way == "loader" else [str(cls.slots[name])]
        done = subprocess.run([PROGRAM, *slot], env=kept, capture_output=True, text=True, timeout=120)
        found = json.loads(report.read_text()) if report.exists() else None
        report.unlink(missing_ok=True)
        return done.returncode, done.stdout, done.stderr, found

    def each(self):
        return [(name, way, *outcome) for name, outcomes in self.outcomes.items() for way, outcome in outcomes.items()]

    def test_the_program_does_as_without_cistern(self):
        for name, way, code, out, err, _ in self.each():
            self.assertEqual((code, out), (0, "all is as it should be\n"), f"{name}, {way}: {err}")

    def test_those_that_matter_are_taken_out(self):
        self.assertLessEqual(OF_STAGING, set(self.names))

    def test_one_line_says_what_is_off(self):
        for name, way, _, _, err, _ in self.each():
            off = ["its buffers are not pooled"] * (name in OF_POOL)
            off += ["its copies are not staged"] * (name in OF_STAGING)
            self.assertEqual(sorted(err.splitlines()),
                             [f"cistern: an OpenCL driver has no {name}: {what}" for what in off], f"{name}, {way}")

    def test_what_is_off_is_counted(self):
        for name, way, _, _, _, report in self.each():
            reasons = {reason for row in report["staging"] for reason in row["passed_on"]}
            unpooled = report["kinds"]["opencl"]["unpooled"]
            self.assertEqual("missing-function" in reasons, name in OF_STAGING, f"{name}, {way}: {reasons}")
            self.assertEqual("function missing in the driver" in unpooled, name in OF_POOL,
                             f"{name}, {way}: {unpooled}")


unittest.main(argv=["missing_functions.py"], verbosity=2)
