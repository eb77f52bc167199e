#!/usr/bin/python3
"""Buffers that a library registers with the driver, and forgets when it hears that their pages went back."""
import unittest

from harness import PROGRAMS, SHIM, environment, start

HOOKS = PROGRAMS["libunmap_hooks.so"]
ORDERS = (f"{HOOKS}:{SHIM}", f"{SHIM}:{HOOKS}")


class RegisteredMemory(unittest.TestCase):
    def lines(self, what, preload, **options):
        done = start("registered", [what], environment({"REPORT": "none"} | options) | {"LD_PRELOAD": preload})
        self.assertEqual((done.stderr, done.returncode), ("", 0), done.stdout)
        return done.stdout.splitlines()

    def test_each_buffer_is_registered_though_none_was_unregistered_before_its_free(self):
        for preload in ORDERS:
            for options in ({}, {"SYSTEM_CALLS": "few"}, {"SITES": "all"}, {"HUGE_PAGES": "thp"}):
                with self.subTest(preload=preload, **options):
                    self.assertEqual(self.lines("free", preload, **options), ["accepted 30"])

    def test_a_buffer_that_grows_or_shrinks_is_registered_anew(self):
        for preload in ORDERS:
            for options in ({}, {"SYSTEM_CALLS": "few"}):
                with self.subTest(preload=preload, **options):
                    self.assertEqual(self.lines("resize", preload, **options), ["accepted 8"])

    def test_what_is_registered_no_more_is_kept(self):
        self.assertEqual(self.lines("ended", ORDERS[0]), ["heard 0", "accepted 0"])


unittest.main(argv=["registered_tests.py"], verbosity=2)
