#!/usr/bin/python3
"""The driver lacks one function, each that Cistern has a row or a place for in turn (so each that it may call on its
own account, those of tomorrow too), and the program that needs none of them does as without Cistern. What needs the
function is off: one line says so, and the report counts it. The driver is the simulated one with the name taken out of
its table of symbols."""
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
SHIM, DRIVER, PROGRAM, COMPILER = sys.argv[1:5]
WAYS = {"staged": {"CISTERN_STAGING": "on"},
        "chosen, deferred": {"CISTERN_STAGING": "auto", "CISTERN_DEVICE_ORDER": "deferred"},
        "ranges": {"CISTERN_STAGING": "on", "CISTERN_DEVICE_POOL": "ranges"}}
OF_POOLS = {"cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuCtxSynchronize",
            "cuMemFreeHost"}
# Without these no context is known, and there is nothing to count for.
OF_CONTEXT = {"cuCtxGetCurrent", "cuCtxGetDevice"}
OF_ORDER = {"cuEventCreate", "cuEventRecord", "cuEventQuery", "cuStreamQuery"}
OF_STAGING = OF_ORDER | {"cuEventDestroy_v2", "cuStreamSynchronize", "cuPointerGetAttribute", "cuMemGetAddressRange_v2",
                         "cuMemHostAlloc", "cuMemcpy3DAsync_v2"}
OF_TRIALS = {"cuEventElapsedTime"}
OF_RANGES = {"cuDeviceGetAttribute", "cuDeviceTotalMem_v2", "cuMemGetAllocationGranularity", "cuMemAddressReserve",
             "cuMemAddressFree", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"}
NEEDED = OF_POOLS | OF_STAGING | OF_TRIALS | OF_RANGES


def functions_of_the_table():
    text = '#define CUDA_DRIVER(a, b, v, s, name, p, g) ROW name;\n#include "shim/symbols/cuda.def"\n'
    rows = subprocess.run([COMPILER, "-E", "-P", "-x", "c++", f"-I{ROOT}", "-"], input=text, check=True,
                          capture_output=True, text=True).stdout
    table = (ROOT / "shim/cuda/next.hpp").read_text().partition("struct DriverTable {")[2].partition("\n};")[0]
    return set(re.findall(r"ROW (\w+);", rows)) | set(re.findall(r"RealFunction<.*> (cu\w+);", table))


def needed_by(program):
    listed = subprocess.run(["nm", "-D", "--undefined-only", program], check=True, capture_output=True, text=True)
    return set(re.findall(r"\bU (cu[A-Z]\w+)", listed.stdout))


class Missing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.library = pathlib.Path(DRIVER).read_bytes()
        cls.names = sorted(functions_of_the_table() - needed_by(PROGRAM))
        cls.outcomes = {}
        with concurrent.futures.ThreadPoolExecutor(2) as runs:
            for name, found in zip(cls.names, runs.map(cls.run_all, cls.names)):
                cls.outcomes[name] = found

    @classmethod
    def run_all(cls, name):
        """Of each way: exit status, both outputs, report; none where the simulator lacks the function anyway."""
        changed = without(cls.library, name)
        if changed is None:
            return {}
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "libcuda.so.1").write_bytes(changed)
            return {way: cls.run_one(folder, options) for way, options in WAYS.items()}

    @staticmethod
    def run_one(folder, options):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("CISTERN_", "SIMCUDA_", "LD_"))}
        report = pathlib.Path(folder) / "report.json"
        kept |= {"LD_LIBRARY_PATH": folder, "LD_PRELOAD": SHIM, "CISTERN_REPORT": str(report),
                 "CISTERN_REPORT_FORMAT": "json"} | options
        done = subprocess.run([PROGRAM], env=kept, capture_output=True, text=True, timeout=60)
        found = json.loads(report.read_text()) if report.exists() else None
        report.unlink(missing_ok=True)
        return done.returncode, done.stdout, done.stderr, found

    def each(self, way=None):
        return [(name, of, *outcome) for name, outcomes in self.outcomes.items()
                for of, outcome in outcomes.items() if way in (None, of)]

    def test_the_program_does_as_without_cistern(self):
        for name, way, code, out, err, _ in self.each():
            self.assertEqual((code, out), (0, "all is as it should be\n"), f"{name}, {way}: {err}")

    def test_those_that_matter_are_taken_out(self):
        taken_out = {name for name, outcomes in self.outcomes.items() if outcomes}
        self.assertEqual(NEEDED, NEEDED & taken_out)
        self.assertGreater(len(taken_out), 100)

    def test_one_line_says_what_is_off(self):
        for name, way, _, _, err, _ in self.each():
            if name in OF_POOLS:
                off = ["memory is not pooled, and copies are not staged"]
            else:
                off = []
                if way == "chosen, deferred" and name in OF_ORDER:
                    off.append("frees wait for the device (CISTERN_DEVICE_ORDER=strict)")
                if way == "ranges" and name in OF_RANGES:
                    off.append("all device memory is whole allocations (CISTERN_DEVICE_POOL=on)")
                if name in OF_STAGING or (way == "chosen, deferred" and name in OF_TRIALS):
                    off.append("copies are not staged")
            self.assertEqual(err.splitlines(), [f"cistern: the CUDA driver has no {name}: {what}" for what in off])

    def test_what_is_off_is_counted(self):
        for name, _, _, _, _, report in self.each("staged"):
            if name in OF_CONTEXT:
                continue
            staged = sum(row["staged_copies"] for row in report.get("staging", []))
            reasons = {reason for row in report.get("staging", []) for reason in row["passed_on"]}
            unpooled = {reason for kind in report["kinds"].values() for reason in kind["unpooled"]}
            self.assertEqual("missing-function" in reasons, name in OF_POOLS | OF_STAGING, f"{name}: {reasons}")
            self.assertEqual(staged > 0, name not in OF_POOLS | OF_STAGING, name)
            self.assertEqual("function missing in the driver" in unpooled, name in OF_POOLS, f"{name}: {unpooled}")

    def test_without_ranges_there_are_whole_blocks(self):
        for name, _, _, _, _, report in self.each("ranges"):
            if name in OF_CONTEXT:
                continue
            self.assertEqual("device_ranges" in report, name not in OF_POOLS | OF_RANGES, name)
            self.assertEqual(report["kinds"]["device:0"]["pool_hits"] > 0, name not in OF_POOLS, name)


unittest.main(argv=["missing_functions.py"], verbosity=2)
