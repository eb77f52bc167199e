"""NVIDIA's own static runtime on the simulated driver, plain and preloaded: it makes its look-ups through the shim, and
then fails to initialise exactly as it does without."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import unittest

ARGUMENTS = argparse.Namespace()
# A runtime of 13.0 asks 440 times, over a hundred times for a row of ours; other toolkits ask about as often.
LOOK_UPS_MIN = 300
SUBSTITUTED_MIN = 100


def run(preload):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(ARGUMENTS.driver.parent), "CISTERN_REPORT": "none"}
    environment.pop("LD_PRELOAD", None)
    if preload:
        environment["LD_PRELOAD"] = str(ARGUMENTS.shim)
    return subprocess.run([ARGUMENTS.program], env=environment, capture_output=True, text=True)


def number_after(label, text):
    found = re.search(rf"^{label}: (-?\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


class NvidiaStatic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plain, cls.ours = run(preload=False), run(preload=True)
        print(cls.plain.stdout + cls.ours.stderr, file=sys.stderr)

    def test_it_ends_well(self):
        self.assertEqual(self.plain.returncode, 0, self.plain.stdout + self.plain.stderr)
        self.assertEqual(self.ours.returncode, 0, self.ours.stdout + self.ours.stderr)

    def test_it_fails_to_initialise_as_without_the_shim(self):
        self.assertNotEqual(number_after("cudaMalloc", self.plain.stdout), 0)
        without_look_ups = [re.sub(r"look-ups: \d+", "", done.stdout) for done in (self.plain, self.ours)]
        self.assertEqual(*without_look_ups)
        self.assertEqual(number_after("allocations", self.ours.stdout), 0)

    def test_its_look_ups_are_made_through_the_shim(self):
        plain = number_after("look-ups", self.plain.stdout)
        ours = number_after("look-ups", self.ours.stdout)
        self.assertGreater(plain, LOOK_UPS_MIN)
        # The shim may ask a little for itself.
        self.assertGreaterEqual(ours, plain)
        self.assertIsNone(number_after("through the shim", self.plain.stderr))
        self.assertGreaterEqual(number_after("through the shim", self.ours.stderr) or 0, plain)
        self.assertGreaterEqual(number_after("substituted", self.ours.stderr) or 0, SUBSTITUTED_MIN)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--shim", type=pathlib.Path, required=True)
    parser.add_argument("--driver", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
