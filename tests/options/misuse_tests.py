#!/usr/bin/python3
"""Misuse gets the native error and one line that says what was wrong; nothing else changes."""
import os
import unittest

from harness import run, run_plain, say_once

ADDRESS = r"0x[0-9a-f]+"
SITE = r" \(/\S*/misuse\.cpp:\d+\)"


class Misuse(unittest.TestCase):
    def says(self, case, pattern):
        """The run under the shim: the same answers as without it, and one line."""
        outcome = run("misuse", case, REPORT="none")
        self.assertEqual(outcome.lines, run_plain("misuse", case).lines)
        say_once(self, outcome.errors, pattern)

    def freed_twice(self, case, api, kind):
        self.says(case, rf"cistern: {api}\({ADDRESS}\): {kind} block already freed; allocated at make_{kind}{SITE}, "
                  rf"freed at release_{kind}{SITE}; CUDA_ERROR_INVALID_VALUE returned")

    def unknown(self, case, api, pointer=ADDRESS):
        self.says(case, rf"cistern: {api}\({pointer}\): not the start of a live allocation; "
                  r"the driver returned CUDA_ERROR_INVALID_VALUE")

    def other_kind(self, case, api, kind):
        self.says(case, rf"cistern: {api}\({ADDRESS}\): this is a live {kind} block, allocated at make_{kind}{SITE}; "
                  r"the driver returned CUDA_ERROR_INVALID_VALUE")

    def test_device_freed_twice(self):
        self.freed_twice("device_twice", "cudaFree", "device")

    def test_device_freed_twice_the_second_time_in_stream_order(self):
        self.freed_twice("device_twice_ordered", "cudaFreeAsync", "device")

    def test_pinned_freed_twice(self):
        self.freed_twice("pinned_twice", "cudaFreeHost", "pinned")
        self.freed_twice("small_pinned_twice", "cudaFreeHost", "pinned")

    def test_wild_pointers(self):
        self.unknown("wild", "cudaFree", "0x700000001000")
        self.unknown("wild_pinned", "cudaFreeHost")

    def test_inside_a_block(self):
        self.unknown("inside_device", "cudaFree")
        self.unknown("inside_pinned", "cudaFreeHost")
        self.unknown("inside_small_pinned", "cudaFreeHost")

    def test_the_free_of_another_kind(self):
        self.other_kind("pinned_by_free", "cudaFree", "pinned")
        self.other_kind("small_pinned_by_free", "cudaFree", "pinned")
        self.other_kind("device_by_free_host", "cudaFreeHost", "device")

    def test_pinned_in_stream_order(self):
        for case in ("pinned_in_order", "small_pinned_in_order"):
            with self.subTest(case):
                self.other_kind(case, "cudaFreeAsync", "pinned")

    def test_managed_freed_twice(self):
        self.unknown("managed_twice", "cudaFree")

    def test_freed_after_a_reset(self):
        self.unknown("after_reset", "cudaFree")

    def test_a_copy_to_a_freed_block(self):
        """One line, however often the place is passed."""
        self.says("used_after_free", rf"cistern: cudaMemcpy\({ADDRESS}\): device block already freed; allocated at "
                  rf"make_device{SITE}, freed at release_device{SITE}, used at use{SITE}; "
                  r"CUDA_ERROR_INVALID_VALUE returned")

    def test_a_copy_to_a_freed_block_in_a_forked_child(self):
        outcome = run("misuse", "used_in_child", REPORT="none")
        self.assertEqual(outcome.lines, run_plain("misuse", "used_in_child").lines)

    def test_a_freed_block_where_any_memory_may_stand(self):
        outcome = run("misuse", "used_as_any_memory", REPORT="none")
        self.assertEqual([line.split(": ")[1].split(",")[0] for line in outcome.lines],
                         ["cudaErrorInvalidValue"] * 3 + ["1", "1"])
        self.assertEqual(outcome.errors.count("device block already freed"), 4, outcome.errors)

    def test_a_copy_to_a_freed_block_without_sites(self):
        outcome = run("misuse", "used_after_free", REPORT="none", SITES="off")
        say_once(self, outcome.errors, rf"cistern: cudaMemcpy\({ADDRESS}\): device block already freed; "
                 r"CUDA_ERROR_INVALID_VALUE returned")

    def test_lines_without_sites(self):
        outcome = run("misuse", "device_twice", REPORT="none", SITES="off")
        say_once(self, outcome.errors, rf"cistern: cudaFree\({ADDRESS}\): device block already freed; "
                 r"CUDA_ERROR_INVALID_VALUE returned")

    def test_out_of_memory_says_who_holds_it(self):
        self.says("fill_device", r"cistern: cudaMalloc of 1\.0 TiB: out of memory; device 0: 2\.0 MiB live; "
                  r"[\d.]+ GiB free of 8\.0 GiB; it is 1016\.0 GiB short; pinned: 4\.0 KiB live; "
                  r"host: [\d.]+ [KM]iB; 1\.0 MiB in 1 block at fill_device \(/\S*/misuse\.cpp:\d+\); "
                  r"1\.0 MiB in 1 block at fill_device \(/\S*/misuse\.cpp:\d+\); this call at fill_device" + SITE)


class MuchPinned(unittest.TestCase):
    """The simulator maps pinned memory without touching it, so that there may be more of it than the machine has."""
    RAM = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def test_more_than_a_quarter_of_the_machine_is_said_once(self):
        outcome = run("misuse", "much_pinned", self.RAM // 10, REPORT="none")
        self.assertEqual(len(outcome.lines), 3)
        say_once(self, outcome.errors, r"cistern: [\d.]+ [MGT]iB of host memory is pinned, "
                 r"more than a quarter of the machine's [\d.]+ [GT]iB")

    def test_less_is_not(self):
        outcome = run("misuse", "much_pinned", self.RAM // 16, REPORT="none")
        self.assertEqual(outcome.errors, "")


unittest.main(argv=["misuse_tests.py"], verbosity=2)
