#!/usr/bin/python3
"""CISTERN_DEVICE_LIMIT: what a program may take of a device, what it is told, and that memory that is kept for reuse
makes way, there as where the device itself is the limit."""
import unittest

from harness import run, run_plain

KIB = {"8M": 8192, "16M": 16384, "32M": 32768, "64M": 65536}
OUT_OF_MEMORY = 2


def codes(outcome):
    """The answers of all steps that are calls."""
    return [int(line.rsplit(" ", 1)[1]) for line in outcome.lines if not line.startswith(("info", "driver"))]


def info(free, total=KIB["64M"]):
    return f"info: free {free} of {total}, device {total}"


class DeviceLimit(unittest.TestCase):
    def test_without_it_the_device_is_as_large_as_it_is(self):
        outcome = run("steps", "info", "a=device:100M", "info", simulator={"MEMORY": 128 << 20})
        self.assertEqual(outcome.lines, [info(131072, 131072), "a=device:100M: 0", info(131072 - 102400, 131072)])

    def test_beyond_it_is_out_of_memory_and_every_query_agrees(self):
        outcome = run("steps", "info", "a=device:64M", "info", "b=device:1", "free=a", "info", DEVICE_LIMIT="64M")
        self.assertEqual(outcome.lines, [info(KIB["64M"]), "a=device:64M: 0", info(0), f"b=device:1: {OUT_OF_MEMORY}",
                                         "free=a: 0", info(KIB["64M"])])
        self.assertEqual(outcome.kind("device:0")["failed"], 1)

    def test_a_limit_above_the_device_changes_nothing(self):
        outcome = run("steps", "info", "a=device:32M", "info", DEVICE_LIMIT="64G", simulator={"MEMORY": 64 << 20})
        self.assertEqual(outcome.lines, [info(KIB["64M"]), "a=device:32M: 0", info(KIB["32M"])])

    def test_kept_memory_makes_way_for_every_kind(self):
        for kind in ("device", "pitched", "async", "vmm", "array"):
            with self.subTest(kind):
                outcome = run("steps", "churn=device:8M:8", "info", f"big={kind}:64M", "info", DEVICE_LIMIT="64M")
                self.assertEqual(outcome.lines[1], info(KIB["64M"]), "what is kept counts as free")
                self.assertEqual(outcome.lines[2], f"big={kind}:64M: 0")
                self.assertEqual(outcome.lines[3], info(0))

    def test_kept_memory_makes_way_for_blocks_that_are_not_pooled(self):
        outcome = run("steps", "churn=device:8M:8", "big=device:16M", "info", DEVICE_LIMIT="64M",
                      DEVICE_OBJECT_MAX="8M")
        self.assertEqual(outcome.lines[1:], ["big=device:16M: 0", info(KIB["64M"] - KIB["16M"])])

    def test_a_full_device_can_be_freed_and_filled_with_other_sizes(self):
        outcome = run("steps", "churn=device:64M:1", "churn=device:16M:4", "churn=device:512K:128",
                      "churn=device:32M:2", "churn=async:64M:1", "info", DEVICE_LIMIT="64M")
        self.assertEqual(codes(outcome), [0] * 5)
        self.assertEqual(outcome.lines[-1], info(KIB["64M"]))

    def test_kept_memory_that_is_a_little_larger_does_not_use_it_up(self):
        fill = [f"b{number}=device:8M" for number in range(8)]
        outcome = run("steps", *["churn=device:9M:7"] * 3, *fill, "info", DEVICE_LIMIT="64M")
        self.assertEqual(codes(outcome), [0] * 11)
        self.assertEqual(outcome.lines[-1], info(0))

    def test_memory_that_waits_for_the_device_is_not_free_yet_but_makes_way_too(self):
        for kind in ("device", "async", "vmm"):
            with self.subTest(kind):
                outcome = run("steps", "a=device:64M", "work=a", "free=a", "info", f"b={kind}:48M", "info",
                              DEVICE_LIMIT="64M", DEVICE_ORDER="deferred", simulator={"STREAM_DELAY_US": 20000})
                self.assertEqual(outcome.lines[3:], [info(0), f"b={kind}:48M: 0", info(KIB["16M"])])

    def test_every_kind_counts_against_it(self):
        outcome = run("steps", "a=device:16M", "b=async:16M", "c=vmm:16M", "info", "d=device:17M", "e=async:17M",
                      "f=vmm:18M", "d=device:16M", "info", DEVICE_LIMIT="64M")
        self.assertEqual(codes(outcome), [0, 0, 0, OUT_OF_MEMORY, OUT_OF_MEMORY, OUT_OF_MEMORY, 0])
        self.assertEqual([line for line in outcome.lines if line.startswith("info")], [info(KIB["16M"]), info(0)])
        self.assertEqual([outcome.kind(kind)["failed"] for kind in ("device:0", "async:0", "vmm:0")], [1, 1, 1])

    def test_rows_and_arrays_are_refused_beyond_it(self):
        for kind in ("pitched", "array"):
            with self.subTest(kind):
                outcome = run("steps", f"a={kind}:65M", f"b={kind}:64M", "info", DEVICE_LIMIT="64M")
                self.assertEqual(codes(outcome), [OUT_OF_MEMORY, 0])
                self.assertEqual(outcome.lines[-1], info(0))

    def test_one_that_cannot_be_read_is_half_of_the_device(self):
        for value in ("32 M iB", "", "-1", "0x2000000", "0.01"):
            for kind in ("device", "async", "vmm", "pitched", "array"):
                with self.subTest(value, kind=kind):
                    outcome = run("steps", "info", f"a={kind}:33M", f"b={kind}:32M", "info", "free=b", "info",
                                  DEVICE_LIMIT=value, simulator={"MEMORY": 64 << 20})
                    half = KIB["32M"]
                    self.assertEqual(outcome.lines, [info(half, half), f"a={kind}:33M: {OUT_OF_MEMORY}",
                                                     f"b={kind}:32M: 0", info(0, half), "free=b: 0", info(half, half)])
                    self.assertIn(f"cistern: CISTERN_DEVICE_LIMIT: '{value}' is not a size such as 512MiB or 1.5GB; "
                                  "the limit is half of each device's memory\n", outcome.errors)
                    self.assertIn("refused by CISTERN_DEVICE_LIMIT=32.0 MiB: it is 1.0 MiB short", outcome.errors)

    def test_one_that_cannot_be_read_holds_while_a_stream_captures(self):
        outcome = run("steps", "capture=relaxed", "a=device:33M", "b=device:32M", "captured", DEVICE_LIMIT="32 M iB",
                      simulator={"MEMORY": 64 << 20})
        self.assertEqual(codes(outcome)[1:3], [OUT_OF_MEMORY, 0])

    def test_pinned_and_managed_memory_do_not_count(self):
        outcome = run("steps", "a=pinned:64M", "b=managed:64M", "c=device:64M", DEVICE_LIMIT="64M")
        self.assertEqual(codes(outcome), [0, 0, 0])

    def test_each_device_has_its_own(self):
        outcome = run("steps", "a=device:64M", "device=1", "info", "b=device:64M", "info", "c=device:1", "device=0",
                      "free=a", "info", DEVICE_LIMIT="64M")
        self.assertEqual(outcome.lines, ["a=device:64M: 0", "device=1: 0", info(KIB["64M"]), "b=device:64M: 0", info(0),
                                         f"c=device:1: {OUT_OF_MEMORY}", "device=0: 0", "free=a: 0", info(KIB["64M"])])

    def test_memory_of_another_device_than_the_current_one_is_that_devices(self):
        for kind in ("vmm1", "node1"):
            outcome = run("steps", "device=1", "info", "device=0", "a=device:64M", f"b={kind}:64M", f"c={kind}:1M",
                          "device=1", "info", DEVICE_LIMIT="64M")
            self.assertEqual(codes(outcome), [0, 0, 0, 0, OUT_OF_MEMORY, 0])
            self.assertEqual(outcome.lines[-1], info(0))
            self.assertRegex(outcome.errors, r"out of memory; device 1: ")

    def test_out_of_memory_names_who_holds_it(self):
        outcome = run("steps", "a=device:32M", "b=async:16M", "c=vmm:16M", "p=pinned:1M", "d=device:1M",
                      DEVICE_LIMIT="64M")
        self.assertRegex(outcome.errors, r"^cistern: cudaMalloc of 1\.0 MiB: out of memory; device 0: 32\.0 MiB live, "
                         r"16\.0 MiB stream-ordered, 16\.0 MiB mapped; [\d.]+ GiB free of 8\.0 GiB; refused by "
                         r"CISTERN_DEVICE_LIMIT=64\.0 MiB: it is 1\.0 MiB short; pinned: 1\.0 MiB "
                         r"live; host: [\d.]+ [KM]iB; 32\.0 MiB in 1 block at allocate \(.*/steps\.cpp:\d+\); "
                         r"(16\.0 MiB in 1 block at (create|allocate)\w* \([^;]*\); ){2}"
                         r"this call at allocate \(.*/steps\.cpp:\d+\)\n$")

    def test_out_of_memory_says_what_would_have_been_enough(self):
        outcome = run("steps", "a=device:32M", "free=a", "b=device:65M", DEVICE_LIMIT="64M")
        self.assertRegex(outcome.errors, r"; refused by CISTERN_DEVICE_LIMIT=64\.0 MiB: it is 1\.0 MiB short;")


class OutOfMemory(unittest.TestCase):
    """The same with the device itself as the limit: as the driver answers without us."""

    def both(self, *steps, simulator=None, **options):
        simulator = {"MEMORY": 64 << 20} | (simulator or {})
        outcome = run("steps", *steps, simulator=simulator, **options)
        self.assertEqual(outcome.lines, run_plain("steps", *steps, simulator=simulator).lines)
        return outcome

    def test_kept_memory_makes_way(self):
        for kind in ("device", "pitched", "async", "vmm", "array"):
            with self.subTest(kind):
                outcome = self.both("churn=device:8M:8", f"big={kind}:64M")
                self.assertEqual(codes(outcome), [0, 0])
                self.assertEqual(outcome.errors, "")

    def test_kept_memory_makes_way_for_blocks_that_are_not_pooled(self):
        outcome = self.both("churn=device:8M:8", "big=device:16M", DEVICE_OBJECT_MAX="8M")
        self.assertEqual(codes(outcome), [0, 0])

    def test_kept_memory_that_is_a_little_larger_does_not_use_it_up(self):
        fill = [f"b{number}=device:8M" for number in range(8)]
        outcome = self.both(*["churn=device:9M:7"] * 3, *fill, "info")
        self.assertEqual(codes(outcome), [0] * 11)
        self.assertEqual(outcome.lines[-1], info(0))

    def test_kept_memory_of_one_device_does_not_help_another(self):
        outcome = self.both("churn=device:8M:8", "device=1", "a=device:64M", "b=device:1M")
        self.assertEqual(codes(outcome), [0, 0, 0, OUT_OF_MEMORY])
        self.assertRegex(outcome.errors, r"^cistern: cudaMalloc of 1\.0 MiB: out of memory; device 1: 64\.0 MiB live; ")

    def test_kept_memory_makes_way_for_what_takes_memory_besides(self):
        for kind in ("module", "library", "graph", "limit"):
            with self.subTest(kind):
                outcome = self.both("churn=device:8M:8", f"a={kind}", f"b={kind}", "free=a", "info",
                                    simulator={"OVERHEAD": 16 << 20})
                self.assertEqual(codes(outcome), [0, 0, 0, 0])
                outcome = self.both("churn=device:8M:8", "m=device:56M", f"a={kind}", "info",
                                    simulator={"OVERHEAD": 16 << 20})
                self.assertEqual(codes(outcome), [0, 0, OUT_OF_MEMORY], "there is no room")

    def test_kept_memory_makes_way_for_managed_memory(self):
        outcome = self.both("churn=device:8M:8", "a=managed:48M", "info", simulator={"MANAGED_ON_DEVICE": 1})
        self.assertEqual(codes(outcome), [0, 0])

    def test_idle_memory_makes_way_while_a_stream_captures(self):
        for mode in (["capture=relaxed"], ["capture=global", "relaxed"], ["capture=local", "relaxed"]):
            with self.subTest(mode):
                outcome = self.both("churn=device:48M:1", *mode, "info", "a=device:40M", "m=module", "captured",
                                    "free=a", "info", simulator={"OVERHEAD": 16 << 20})
                self.assertEqual(codes(outcome), [0] * len(codes(outcome)), "nor is the capture invalidated")

    def test_memory_freed_under_work_makes_way_while_a_stream_captures(self):
        for order in ("strict", "deferred"):
            for steps in (["free=a", "capture=relaxed"], ["capture=relaxed", "free=a"]):
                with self.subTest(order=order, steps=steps):
                    outcome = self.both("a=device:48M", "work=a", *steps, "b=device:40M", "captured", "info",
                                        simulator={"STREAM_DELAY_US": 20000}, DEVICE_ORDER=order)
                    self.assertEqual(codes(outcome), [0] * len(codes(outcome)))

    def test_a_capture_that_forbids_the_call_is_invalidated_as_without_us(self):
        outcome = self.both("churn=device:48M:1", "capture=global", "a=device:40M", "captured")
        self.assertEqual([code != 0 for code in codes(outcome)], [False, False, True, True])

    def test_free_memory_is_what_the_driver_would_have_free(self):
        sizes = [f"churn=device:{1000 + 5000 * number}:{1 + number % 3}" for number in range(12)]
        for granule in (512, 4096, 64 << 10, 2 << 20):
            with self.subTest(granule):
                self.both("info", "churn=device:1M:1", "info", "churn=device:512K:3", "info", *sizes, "info",
                          "a=device:3000K", "info", "b=device:2900K", "free=a", "info", "c=device:3000K", "info",
                          "free=b", "info", "free=c", "info", "d=device:60M", "info", simulator={"GRANULE": granule})

    def test_what_a_block_wastes_of_its_chunk_is_not_free(self):
        """A block of 2,800 KiB in a chunk of 3,000 KiB: the rest cannot be had."""
        steps = ["a=device:3000K", "free=a", "c=device:2800K", "info", "all=device:62536K", "free=c", "info"]
        outcome = run("steps", *steps, simulator={"MEMORY": 64 << 20})
        self.assertEqual(outcome.lines, ["a=device:3000K: 0", "free=a: 0", "c=device:2800K: 0", info(62536),
                                         "all=device:62536K: 0", "free=c: 0", info(3000)])

    def test_many_requests_that_fail_say_ten_lines(self):
        steps = [step for number in range(40)
                 for step in (f"a=device:{number * 997 + 1}K", f"b=device:{65 + number}M", "free=a")]
        outcome = self.both(*steps)
        self.assertEqual(codes(outcome).count(OUT_OF_MEMORY), 40)
        lines = outcome.errors.splitlines()
        self.assertEqual(sum("out of memory" in line for line in lines if " more lines like: " not in line), 10)
        counted = "cistern: 30 more lines like: cudaMalloc of 65.0 MiB"
        self.assertTrue(any(line.startswith(counted) for line in lines), lines)

    def test_the_line_comes_for_blocks_that_are_not_pooled_too(self):
        outcome = self.both("a=device:1M", "b=device:100M", DEVICE_OBJECT_MAX="8M")
        self.assertEqual(codes(outcome), [0, OUT_OF_MEMORY])
        self.assertRegex(outcome.errors, r"^cistern: cudaMalloc of 100\.0 MiB: out of memory; device 0: 1\.0 MiB live; "
                         r"63\.0 MiB free of 64\.0 MiB; it is 37\.0 MiB short; pinned: 0 B live; "
                         r"host: [\d.]+ [KM]iB; 1\.0 MiB in 1 block at allocate \(.*\); this call at allocate "
                         r"\(.*\)\n$")


unittest.main(argv=["limit_tests.py"], verbosity=2)
