#!/usr/bin/python3
"""CISTERN_DEVICE_POOL=ranges: what a program sees of it, how much memory it takes, and where it is left out."""
import unittest

from harness import run, run_plain, say_once

VALUE, SUCCESS = 1, 0  # CUDA_ERROR_INVALID_VALUE


class AsWithoutIt(unittest.TestCase):
    def test_answers_about_blocks_and_beyond_them(self):
        for what in ("look", "beyond", "asked"):
            with self.subTest(what):
                self.assertEqual(run("ranges", what, DEVICE_POOL="ranges").lines, run_plain("ranges", what).lines)

    def test_a_block_freed_twice_and_used(self):
        outcome = run("ranges", "again", DEVICE_POOL="ranges")
        self.assertEqual(outcome.lines, ["free: 0", f"again: {VALUE}", f"set: {VALUE}", "end"])
        lines = outcome.errors.splitlines()
        self.assertEqual(len(lines), 2, lines)
        for line in lines:
            self.assertRegex(line, r"^cistern: cuMem(Free|setD8)_v2\(0x[0-9a-f]+\): device block already freed; "
                                   r"allocated at again \(.*ranges\.cpp:\d+\), freed at again \(")


class Memory(unittest.TestCase):
    def test_pieces_serve_blocks_of_all_sizes(self):
        outcome = run("ranges", "exit", "exit", DEVICE_POOL="ranges")
        row, = outcome.report["device_ranges"]
        self.assertLess(row["driver_calls"], 4 * row["allocations"])
        self.assertLessEqual(row["mapped_peak_bytes"], 1.05 * row["used_peak_bytes"] + (2 << 20))
        self.assertEqual(outcome.kind("device:0")["live_blocks"], 0)

    def test_it_joins_what_was_freed(self):
        outcome = run("steps", *["churn=device:4M:50", "churn=device:40M:5", "churn=device:1M:200"] * 5,
                      DEVICE_POOL="ranges")
        row, = outcome.report["device_ranges"]
        self.assertLessEqual(row["mapped_peak_bytes"], 1.05 * (200 << 20) + (2 << 20))
        self.assertLess(row["driver_calls"], 0.2 * outcome.kind("device:0")["allocations"])

    def test_a_limit_holds(self):
        outcome = run("steps", "churn=device:1M:100", "a=device:60M", "b=device:60M", DEVICE_POOL="ranges",
                      DEVICE_LIMIT="100M")
        self.assertEqual(outcome.kind("device:0")["failed"], 1)
        self.assertRegex(outcome.errors,
                         r"ranges: 60\.0 MiB mapped, 0 B of it free beside live blocks; 40\.0 MiB would succeed; ")
        self.assertLessEqual(outcome.report["device_ranges"][0]["mapped_peak_bytes"], 100 << 20)

    def test_a_request_above_what_is_left_takes_nothing(self):
        outcome = run("ranges", "huge", DEVICE_POOL="ranges", simulator={"MEMORY": 1 << 30})
        self.assertEqual(outcome.lines, ["huge: 2", "pieces: 0", "most of what there is: 0", "end"])

    def test_the_next_context_has_the_addresses_of_one_that_has_ended(self):
        outcome = run("ranges", "contexts", DEVICE_POOL="ranges")
        self.assertEqual(outcome.lines, ["reserved: 1", "end"])
        self.assertEqual(outcome.report["device_ranges"][0]["mapped_bytes"], 0)

    def test_what_is_freed_while_a_stream_captures(self):
        """It serves the next request, and goes back after the capture without one."""
        simulator = {"MEMORY": 1 << 30}
        outcome = run("ranges", "captured", DEVICE_POOL="ranges", DEVICE_POOL_MAX="8M", simulator=simulator)
        self.assertEqual(outcome.lines, run_plain("ranges", "captured", simulator=simulator).lines)
        self.assertEqual(outcome.errors, "")

    def test_a_full_device_and_memory_that_was_freed_in_a_capture(self):
        """The wait that a capture allows takes a byte of the device's memory, and there is none."""
        outcome = run("ranges", "full", DEVICE_POOL="ranges", simulator={"MEMORY": 64 << 20})
        self.assertEqual(outcome.lines, ["left: 0", "large: 2", "captured: 0", "large: 0", "end"])
        say_once(self, outcome.errors,
                 r"cistern: cuMemAlloc_v2 of 4\.0 MiB: out of memory; device 0: 44\.0 MiB live; ranges: 64\.0 MiB "
                 r"mapped, 0 B of it free beside live blocks, 20\.0 MiB freed: the work that may use it cannot be "
                 r"waited for while a stream captures; 0 B would succeed; pinned: 0 B live; host: [0-9.]+ KiB; "
                 r"44\.0 MiB in 22 blocks at full \(.*ranges\.cpp:\d+\); this call at full \(.*ranges\.cpp:\d+\)")

    def test_blocks_that_others_know_are_retired_when_work_has_ended(self):
        outcome = run("ranges", "marked", DEVICE_POOL="ranges", simulator={"MEMORY": 1 << 30})
        self.assertEqual(outcome.lines, [
            "exported: 0, 0", "in the graph: 0", "mapped: 40 MiB", "free: 0, 0", "while it captures: 40 MiB",
            "captured: 0", "after it: 20 MiB", "set: 0", "free: 0", "while it is set: 20 MiB", "after it: 10 MiB",
            "the next block lies where the first one lay: yes", "end"])
        self.assertEqual(outcome.errors, "")
        figures = outcome.kind("device:0")
        self.assertEqual([figures[name] for name in ("allocations", "frees", "live_blocks", "pooled_bytes")],
                         [5, 5, 0, 10 << 20])
        self.assertEqual(figures["unpooled"], {"exported or marked": 2, "freed in stream order": 1})
        row, = outcome.report["device_ranges"]
        self.assertEqual([row[name] for name in ("mapped_bytes", "waiting_bytes", "lost_bytes")], [10 << 20, 0, 0])

    def test_free_memory_is_known_without_a_look_at_every_block(self):
        """With a look at each of 100,000 it took 1.5 ms."""
        outcome = run("ranges", "count", DEVICE_POOL="ranges")
        self.assertLess(int(outcome.lines[0].split()[1]), 150, outcome.lines)


class Contexts(unittest.TestCase):
    def check_as_plain(self, what, **options):
        outcome = run("ranges", what, **options)
        self.assertEqual(outcome.lines, run_plain("ranges", what).lines)
        self.assertEqual(outcome.errors, "")
        return outcome

    def test_memory_outlives_its_green_context(self):
        for pool in ("ranges", "on"):
            with self.subTest(pool):
                outcome = self.check_as_plain("green", DEVICE_POOL=pool)
                self.assertEqual(outcome.kind("device:0")["live_blocks"], 0)
                self.assertFalse([leak for leak in outcome.report["leaks"] if leak["kind"] == "device:0"])

    def test_a_context_that_is_detached_lives_on_while_others_use_it(self):
        for pool in ("ranges", "on"):
            with self.subTest(pool):
                self.check_as_plain("attached", DEVICE_POOL=pool)

    def test_a_primary_context_that_others_retain_is_released_without_a_wait(self):
        outcome = self.check_as_plain("held", DEVICE_POOL="ranges")
        self.assertIn("beside the copy, no wait", outcome.lines)


class LeftOut(unittest.TestCase):
    def test_a_call_site_whose_memory_is_shared(self):
        outcome = run("ranges", "share", DEVICE_POOL="ranges")
        self.assertEqual(outcome.lines, [f"share: {VALUE}", f"share: {SUCCESS}", f"other: {VALUE}", "end"])
        lines = outcome.errors.splitlines()
        self.assertEqual(len(lines), 2, lines)
        for line in lines:
            self.assertEqual(line, "cistern: cuIpcGetMemHandle refused memory of a range: its call site gets whole "
                                   "allocations from now on. CISTERN_DEVICE_POOL=on has no such memory")

    def test_without_sites_every_request(self):
        outcome = run("ranges", "share", DEVICE_POOL="ranges", SITES="off")
        self.assertEqual(outcome.lines, [f"share: {VALUE}", f"share: {SUCCESS}", f"other: {SUCCESS}", "end"])
        say_once(self, outcome.errors,
                 "cistern: cuIpcGetMemHandle refused memory of a range: the program gets whole allocations from now "
                 "on. CISTERN_DEVICE_POOL=on has no such memory")

    def test_access_that_fails_for_a_second_device(self):
        outcome = run("ranges", "second", DEVICE_POOL="ranges")
        self.assertEqual(outcome.lines, run_plain("ranges", "second").lines)
        say_once(self, outcome.errors, "cistern: device 1 cannot use memory of another device: "
                                       "CISTERN_DEVICE_POOL=ranges has whole allocations from now on")
        self.assertEqual(outcome.kind("device:0")["live_blocks"], 0)

    def test_the_call_that_fails_at_the_first_try(self):
        for call in ("cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"):
            with self.subTest(call):
                outcome = run("ranges", "look", DEVICE_POOL="ranges", simulator={"EACH": f"fail_every:{call}=1"})
                self.assertEqual(outcome.lines, run_plain("ranges", "look").lines)
                say_once(self, outcome.errors, f"cistern: device 0: {call} failed with 999; "
                                               "CISTERN_DEVICE_POOL=ranges has whole allocations there")

    def test_a_driver_that_opens_no_memory_for_rdma(self):
        """It says that it can, and cannot: the range has memory without."""
        outcome = run("ranges", "look", DEVICE_POOL="ranges", simulator={"RDMA_ACCESS_FAILS": 1})
        self.assertEqual(outcome.lines, run_plain("ranges", "look").lines)
        self.assertEqual(outcome.errors, "")
        self.assertGreater(outcome.report["device_ranges"][0]["allocations"], 0)

    def test_access_that_fails_from_now_on(self):
        """No more than a few requests try it."""
        outcome = run("ranges", "refused", DEVICE_POOL="ranges")
        self.assertEqual([line for line in outcome.lines if "access" not in line],
                         [line for line in run_plain("ranges", "refused").lines if "access" not in line])
        self.assertIn("asked for access: 5", outcome.lines)
        say_once(self, outcome.errors, "cistern: device 0: cuMemSetAccess failed with 999; "
                                       "CISTERN_DEVICE_POOL=ranges has whole allocations there")

    def test_a_graph_keeps_its_memory(self):
        outcome = run("ranges", "graph", DEVICE_POOL="ranges")
        self.assertEqual(outcome.lines, ["captured: 0", "launched: 0, 0", "end"])


if __name__ == "__main__":
    unittest.main(argv=[__file__], verbosity=1)
