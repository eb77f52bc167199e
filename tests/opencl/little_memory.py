#!/usr/bin/python3
"""Under a limit of the address space a program fills it with buffers and gives them back: PoCL ends a process that has
no memory for a buffer's first use. From little more than the least limit that the program needs plain, it ends well
preloaded and as a layer."""
import os
import resource
import subprocess
import sys
import unittest

SHIM, PROGRAM = sys.argv[1:3]
MIB = 1 << 20
# What Cistern takes itself: its code, and tables.
OWN_MIB = 5
WAYS = {"preloaded": "LD_PRELOAD", "layer": "OPENCL_LAYERS"}


def run(limit_mib, way=None):
    """The exit code and stdout; stderr."""
    kept = {name: value for name, value in os.environ.items()
            if name not in ("LD_PRELOAD", "OPENCL_LAYERS") and not name.startswith("CISTERN_")}
    if way:
        kept |= {WAYS[way]: SHIM, "CISTERN_REPORT": "none"}

    def limit():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (limit_mib * MIB, limit_mib * MIB))

    done = subprocess.run([PROGRAM], env=kept, capture_output=True, text=True, timeout=120, preexec_fn=limit)
    return (done.returncode, done.stdout), done.stderr


class LittleMemory(unittest.TestCase):
    WELL = (0, "refused with -6\na larger one: 0\nwritten: 0\n")

    @classmethod
    def setUpClass(cls):
        below, cls.least_mib = 64, 4096
        while cls.least_mib - below > 1:
            middle = (below + cls.least_mib) // 2
            if run(middle)[0] == cls.WELL:
                cls.least_mib = middle
            else:
                below = middle

    def test_the_program_needs_some(self):
        self.assertEqual(run(self.least_mib)[0], self.WELL)
        self.assertNotEqual(run(self.least_mib - 1)[0], self.WELL)

    def test_it_ends_well_with_little_more(self):
        for way in WAYS:
            for more_mib in (OWN_MIB, 6, 10, 15, 22, 31, 40, 51, 64, 80):
                outcome, said = run(self.least_mib + more_mib, way)
                self.assertEqual(outcome, self.WELL, f"{way}, {self.least_mib} + {more_mib} MiB: {said}")


unittest.main(argv=["little_memory.py"], verbosity=2)
