"""How many instructions a malloc and its free take, counted by callgrind: bounds by compiler, so that nobody makes the
fast path longer without noticing. The loop itself takes ten."""
import argparse
import os
import re
import shutil
import subprocess
import sys
import unittest

ARGUMENTS = argparse.Namespace()
ROUNDS = 100000
RUNS = 3  # the first sample of a process costs some 300,000 instructions, and few runs have one
# (loop, bytes): most instructions of a round. Measured with GCC 12 on x86-64, and a little room for other versions.
BOUNDS = {
    "x86_64": {("pair", 16): 49.0, ("pair", 64): 49.0, ("pair", 1024): 65.0, ("fifo", 64): 53.0},
    "aarch64": {("pair", 16): 60.0, ("pair", 64): 60.0, ("pair", 1024): 85.0, ("fifo", 64): 65.0},
}
ROOM = {"GNU 12": 1.0}  # others: a tenth more


def instructions(loop, size, rounds):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", ARGUMENTS.micro, loop, str(size),
               str(rounds)]
    settings = {k: v for k, v in os.environ.items() if not k.startswith("CISTERN_")}
    done = subprocess.run(command, env={**settings, "LD_PRELOAD": ARGUMENTS.shim}, capture_output=True, text=True,
                          check=True, timeout=120)
    return int(re.search(r"Collected : (\d+)", done.stderr)[1])


class Instructions(unittest.TestCase):
    def test_the_fast_path_is_short(self):
        room = ROOM.get(ARGUMENTS.compiler, 1.1)
        for (loop, size), bound in BOUNDS[os.uname().machine].items():
            with self.subTest(loop=loop, size=size):
                once, twice = (min(instructions(loop, size, rounds) for _ in range(RUNS))
                               for rounds in (ROUNDS, 2 * ROUNDS))
                self.assertLessEqual((twice - once) / ROUNDS, bound * room)
                # Ours, not the C library's, which needs more than a hundred; and the loop did run.
                self.assertGreater((twice - once) / ROUNDS, 30)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--micro", required=True)
    parser.add_argument("--compiler", required=True, help="as in 'GNU 12'")
    parser.parse_args(namespace=ARGUMENTS)
    if not shutil.which("valgrind"):
        sys.exit("valgrind is not installed")
    unittest.main(argv=[sys.argv[0], "-v"])
