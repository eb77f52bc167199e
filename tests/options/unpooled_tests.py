#!/usr/bin/python3
"""Every reason for which a CUDA call goes past the pool: counted as often as it came up, and answered as without us."""
import unittest

from harness import run, run_plain
from report_rows import gpu_rows


class Unpooled(unittest.TestCase):
    def both(self, case):
        """The run under the shim, after seeing that the program could not tell it from a plain one."""
        outcome = run("unpooled", case)
        self.assertEqual(outcome.lines, run_plain("unpooled", case).lines)
        self.assertEqual(outcome.errors, "")
        return outcome

    def test_exported_or_marked(self):
        outcome = self.both("exported")
        self.assertEqual(outcome.unpooled("device:0"), {"exported or marked": 2})
        self.assertEqual(outcome.kind("device:0")["driver_frees"], 2)
        self.assertEqual(outcome.kind("device:0")["pooled_blocks"], 1, "the one that was neither")

    def test_freed_in_stream_order(self):
        outcome = self.both("ordered")
        self.assertEqual(outcome.unpooled("device:0"), {"freed in stream order": 1})
        self.assertEqual(outcome.kind("device:0")["pooled_blocks"], 0)

    def test_first_of_its_pitch(self):
        outcome = self.both("pitched")
        device = outcome.kind("device:0")
        self.assertEqual(device["unpooled"]["first of its pitch"], 2, "one per width")
        self.assertEqual((device["pool_misses"], device["pool_hits"]), (1, 1), "the later ones of a known width")

    def test_context_in_error(self):
        outcome = self.both("context_in_error")
        device = outcome.kind("device:0")
        self.assertEqual(device["unpooled"], {"context in error": 2})
        self.assertEqual((device["pool_hits"], device["pooled_blocks"]), (0, 0))

    def test_process_exiting(self):
        outcome = self.both("exiting")
        self.assertEqual(outcome.unpooled("device:0"), {"process exiting": 2})
        self.assertEqual(outcome.unpooled("pinned"), {"process exiting": 2})
        self.assertEqual(gpu_rows(outcome.report), [])

    def test_a_capture_that_forbids_the_call_is_spoilt_by_it_and_nothing_happened(self):
        outcome = self.both("capturing")
        device = outcome.kind("device:0")
        self.assertEqual((device["live_blocks"], device["pool_hits"], device["failed"]), (0, 0, 1))
        self.assertEqual(device["unpooled"], {}, "refused calls are not unpooled ones")

    def test_a_relaxed_capture_goes_on_and_the_block_stays_with_the_pool(self):
        outcome = self.both("capturing_relaxed")
        self.assertEqual(outcome.lines[-1], "captures spoilt: 0")
        device = outcome.kind("device:0")
        self.assertEqual((device["pool_hits"], device["driver_allocs"], device["driver_frees"]), (1, 1, 0))

    def test_no_current_context(self):
        outcome = self.both("without_context")
        device = outcome.kind("device:0")
        self.assertEqual(device["unpooled"], {"no current context": 1})
        self.assertEqual((device["live_blocks"], device["pooled_blocks"]), (0, 0), "the driver freed it")


unittest.main(argv=["unpooled_tests.py"], verbosity=2)
