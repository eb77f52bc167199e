#!/usr/bin/python3
"""Reports, and the exit codes that continuous integration asks for, are the same however Cistern comes to a program's
OpenCL calls: preloaded, as a layer, both at once, and with somebody between it and the program who passes calls on, a
preloaded library or another layer."""
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
ARGUMENTS.add_argument("--pass-on", required=True, help="layers/pass_on.cpp")
ARGUMENTS.add_argument("--program", required=True, help="programs/leaks_by_name.cpp")
OPTIONS = ARGUMENTS.parse_args()
SHIM, PASS_ON = OPTIONS.shim, OPTIONS.pass_on
# The first of LD_PRELOAD and the last of OPENCL_LAYERS is the nearest to the program.
WAYS = {
    "preload": {"LD_PRELOAD": SHIM},
    "layer": {"OPENCL_LAYERS": SHIM},
    "both": {"LD_PRELOAD": SHIM, "OPENCL_LAYERS": SHIM},
    "preload under a library": {"LD_PRELOAD": f"{PASS_ON}:{SHIM}"},
    "layer under a library": {"LD_PRELOAD": PASS_ON, "OPENCL_LAYERS": SHIM},
    "both under a library": {"LD_PRELOAD": f"{PASS_ON}:{SHIM}", "OPENCL_LAYERS": SHIM},
    "layer under a layer": {"OPENCL_LAYERS": f"{SHIM}:{PASS_ON}"},
    "both under a layer": {"LD_PRELOAD": SHIM, "OPENCL_LAYERS": f"{SHIM}:{PASS_ON}"},
    "preload over a layer": {"LD_PRELOAD": SHIM, "OPENCL_LAYERS": PASS_ON},
}


def run(way, *arguments, **options):
    kept = {name: value for name, value in os.environ.items()
            if name not in ("LD_PRELOAD", "OPENCL_LAYERS") and not name.startswith("CISTERN_")}
    kept |= way | {f"CISTERN_{name}": value for name, value in options.items()}
    done = subprocess.run([OPTIONS.program, *arguments], env=kept, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


class AnyWay(unittest.TestCase):
    def each_way(self, *arguments, **options):
        """The name of the way, the exit code, and stderr, for each; what the program says is what it says plain."""
        plain = run({}, *arguments)[1]
        for name, way in WAYS.items():
            code, out, err = run(way, *arguments, **options)
            err = f"{name}\n{err}" if err else ""
            self.assertEqual(out, plain, f"{name}\n{err}")
            yield name, code, err

    def test_lost_memory_fails_the_run(self):
        for rule in ("any", "lost:1MiB"):
            for _, code, err in self.each_way("lost", FAIL_ON=rule):
                self.assertEqual(code, 23, err)
                self.assertRegex(err, r"VERDICT  1 block, 1\.0 MiB lost at 1 site +"
                                      r"\(exit code 23 instead of 0, by CISTERN_FAIL_ON\)")

    def test_the_code_is_chosen(self):
        for _, code, err in self.each_way("lost", FAIL_ON="any", FAIL_CODE="77", REPORT="none"):
            self.assertEqual((code, err), (77, ""))

    def test_what_is_held_fails_by_any_alone(self):
        for _, code, err in self.each_way("held", FAIL_ON="lost"):
            self.assertEqual(code, 0, err)
            self.assertIn("VERDICT  nothing lost; 1 block, 1.0 MiB reachable, never freed at 1 site", err)
        for _, code, err in self.each_way("held", FAIL_ON="any"):
            self.assertEqual(code, 23, err)

    def test_less_than_is_asked_for_does_not_fail(self):
        for _, code, err in self.each_way("lost", FAIL_ON="lost:2MiB"):
            self.assertEqual(code, 0, err)

    def test_nothing_left_does_not_fail(self):
        for _, code, err in self.each_way("nothing", FAIL_ON="any"):
            self.assertEqual(code, 0, err)

    def test_nothing_fails_unasked(self):
        for _, code, err in self.each_way("lost"):
            self.assertEqual(code, 0, err)
            self.assertIn("exit code unchanged", err)

    def test_an_exit_code_of_the_programs_own_stays(self):
        for _, code, err in self.each_way("lost", "exit", "5", FAIL_ON="any"):
            self.assertEqual(code, 5, err)
        for _, code, err in self.each_way("lost", "handler", FAIL_ON="any"):
            self.assertEqual(code, 5, err)
        for _, code, err in self.each_way("lost", "exit", "0", FAIL_ON="any"):
            self.assertEqual(code, 23, err)

    def test_destructors_and_buffered_output_come_to_their_turn(self):
        for _, code, _ in self.each_way("lost", "say-late", FAIL_ON="any", REPORT="none"):
            self.assertEqual(code, 23)

    def test_what_is_suppressed_does_not_fail(self):
        with tempfile.NamedTemporaryFile("w") as rules:
            rules.write("leak:lose_one\n")
            rules.flush()
            for _, code, err in self.each_way("lost", FAIL_ON="any", SUPPRESSIONS=rules.name):
                self.assertEqual(code, 0, err)

    def test_the_program_owns_what_it_made(self):
        for _, _, err in self.each_way("lost"):
            self.assertNotIn("by libraries", err)
            self.assertRegex(err, r"lines such as leak:(lose_one|Setup::buffer)\)")

    def test_json_says_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, code, err in self.each_way("lost", FAIL_ON="lost", REPORT=f"{folder}/%p.json",
                                                 REPORT_FORMAT="json"):
                self.assertEqual((code, err), (23, ""))
                path, = pathlib.Path(folder).iterdir()
                report = report_checks.read(path)
                path.unlink()
                self.assertEqual(report["kinds"]["opencl"]["live_blocks"], 1, name)
                leak, = (leak for leak in report["leaks"] if leak["kind"] == "opencl")
                self.assertEqual((leak["class"], leak["blocks"], leak["owner"], leak["program"]),
                                 ("lost", 1, pathlib.Path(OPTIONS.program).name, True))
                self.assertTrue(any(re.match("lose_one", frame.get("function", "")) for frame in leak["frames"]))
                self.assertEqual(leak["frames"][-1].get("function"), "main", name)


unittest.main(argv=["reports_tests.py"], verbosity=2)
