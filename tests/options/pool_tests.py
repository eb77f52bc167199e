#!/usr/bin/python3
"""The options of the two CUDA pools: on and off, cap, minimum, object limits, trim by time, free order; bad values."""
import re
import unittest

from harness import driver, run, say_once


class OnAndOff(unittest.TestCase):
    def test_recycled_by_default(self):
        outcome = run("steps", *["churn=device:1M:5", "churn=pinned:1M:5"] * 2, "driver")
        figures = driver(outcome)[0]
        self.assertEqual((figures["allocs"], figures["frees"]), (5, 0))
        self.assertEqual((figures["pinned_allocs"], figures["pinned_frees"]), (5, 0))
        for kind in ("device:0", "pinned"):
            self.assertEqual((outcome.kind(kind)["pool_hits"], outcome.kind(kind)["pool_misses"]), (5, 5))
            self.assertEqual(outcome.unpooled(kind), {})

    def test_device_pool_off(self):
        outcome = run("steps", *["churn=device:1M:5", "churn=pinned:1M:5"] * 2, "driver", DEVICE_POOL="off")
        figures = driver(outcome)[0]
        self.assertEqual((figures["allocs"], figures["frees"], figures["live_kib"]), (10, 10, 0))
        self.assertEqual((figures["pinned_allocs"], figures["pinned_frees"]), (5, 0), "the other pool works on")
        device = outcome.kind("device:0")
        self.assertEqual((device["pool_hits"], device["driver_allocs"], device["driver_frees"]), (0, 10, 10))
        self.assertEqual(device["unpooled"], {"pool off": 10}, "counted once for each block")

    def test_pinned_pool_off(self):
        outcome = run("steps", "churn=pinned:1M:5", "churn=pinned:1K:5", "churn=device:1M:2", "driver",
                      PINNED_POOL="off")
        figures = driver(outcome)[0]
        self.assertEqual((figures["pinned_allocs"], figures["pinned_frees"], figures["pinned_live"]), (10, 10, 0))
        self.assertEqual((figures["allocs"], figures["frees"]), (2, 0), "the other pool works on")
        self.assertEqual(outcome.kind("pinned")["pool_hits"], 0)
        self.assertEqual(outcome.unpooled("pinned"), {"pool off": 10})


class Cap(unittest.TestCase):
    def test_device(self):
        for size, count in (("64K", 64), ("1M", 20), ("4M", 16)):
            with self.subTest(size):
                outcome = run("steps", f"churn=device:{size}:{count}", "driver", DEVICE_POOL_MAX="4M")
                live = driver(outcome)[0]["live_kib"]
                self.assertLessEqual(live, 4096)
                self.assertEqual(outcome.kind("device:0")["pooled_bytes"], live << 10)

    def test_the_cap_is_used(self):
        outcome = run("steps", "churn=device:64K:64", "driver", DEVICE_POOL_MAX="1M")
        self.assertGreaterEqual(driver(outcome)[0]["live_kib"], 512)

    def test_larger_than_the_cap_pushes_nothing_out(self):
        outcome = run("steps", "churn=device:1M:2", "churn=device:5M:1", "driver", DEVICE_POOL_MAX="4M")
        self.assertEqual(driver(outcome)[0]["live_kib"], 2048)

    def test_pinned(self):
        outcome = run("steps", "churn=pinned:1M:16", "driver", "churn=pinned:5M:1", "driver", PINNED_POOL_MAX="4M")
        self.assertEqual([figures["pinned_live"] for figures in driver(outcome)], [4, 4])

    def test_small_pinned_blocks(self):
        outcome = run("steps", "churn=pinned:1K:2000", "driver", PINNED_POOL_MAX="256K")
        self.assertLessEqual(outcome.kind("pinned")["pooled_bytes"], 256 << 10)
        self.assertLess(driver(outcome)[0]["pinned_allocs"], 200, "they share pages")


class Proportion(unittest.TestCase):
    """What is kept beside the most that was live lately; of both kinds, in both orders."""
    # The sizes of each phase are asked for again.
    PHASES = [*["churn=device:40M:2"] * 3, "driver", *["churn=device:56M:2"] * 3, "driver"]
    ORDERS = ("strict", "deferred")

    def live_mib(self, *steps, **options):
        return [figures["live_kib"] >> 10 for figures in driver(run("steps", *steps, **options))]

    def test_what_is_kept_is_no_more_than_was_live_lately(self):
        for order in self.ORDERS:
            with self.subTest(order):
                self.assertEqual(self.live_mib(*self.PHASES, DEVICE_ORDER=order), [80, 112],
                                 "the old ones went for the new ones")
        figures = driver(run("steps", *[step.replace("device", "pinned") for step in self.PHASES]))
        self.assertEqual([of["pinned_live"] for of in figures], [2, 2])

    def test_any_proportion(self):
        self.assertEqual(self.live_mib(*self.PHASES, DEVICE_POOL_PERCENT="0")[1], 192)
        self.assertEqual(self.live_mib(*self.PHASES, DEVICE_POOL_PERCENT="300")[1], 192)
        pinned = [step.replace("device", "pinned") for step in self.PHASES]
        self.assertEqual(driver(run("steps", *pinned, PINNED_POOL_PERCENT="0"))[1]["pinned_live"], 4)

    def test_of_a_size_that_is_never_asked_for_again_little_is_kept(self):
        for kind, left in ("device", "live_kib"), ("pinned", "pinned_live"):
            phases = [f"churn={kind}:{size}M:4" for size in (40, 56, 80, 112)]
            self.assertEqual(driver(run("steps", *phases, "driver"))[0][left], 0, kind)
        self.assertEqual(self.live_mib("churn=device:7M:4", "driver"), [28], "32 MiB are")

    def test_what_is_not_kept_was_never_reserved_in_vain(self):
        outcome = run("steps", "churn=device:100M:1")
        worst = outcome.report["fragmentation"]["device:0"].get("worst", {"reserved_bytes": 0, "live_bytes": 0})
        self.assertEqual(worst["live_bytes"], worst["reserved_bytes"])

    def test_what_another_context_keeps_goes_too(self):
        steps = [*["churn=pinned:40M:2"] * 3, "device=1", *["churn=pinned:56M:2"] * 8, "driver"]
        figures = driver(run("steps", *steps))[0]
        self.assertEqual((figures["pinned_live"], figures["pinned_allocs"]), (2, 8), "two rounds of each miss")

    def test_frees_wait_for_nothing_that_lies_in_an_idle_context(self):
        outcome = run("steps", "d=device:4K", "a=pinned:40M", "work=d", "free=a", "device=1", "sleep",
                      *["churn=pinned:40M:1"] * 5, DEVICE_ORDER="deferred", simulator={"STREAM_DELAY_US": 50000})
        self.assertEqual(outcome.kind("pinned")["driver_syncs"], 0)

    def test_sizes_that_fit_beside_each_other_are_hits(self):
        rounds = 200
        for kind in ("device", "pinned"):
            outcome = run("steps", *[f"churn={kind}:100M:1", f"churn={kind}:14M:1"] * rounds)
            figures = outcome.kind("device:0" if kind == "device" else kind)
            self.assertGreaterEqual(figures["pool_hits"], 2 * rounds * 0.99, kind)

    def test_where_they_do_not_fit_memory_wins(self):
        outcome = run("steps", *["churn=device:100M:1", "churn=device:60M:1"] * 100)
        reserved = outcome.report["fragmentation"]["device:0"]["reserved_peak_bytes"]
        self.assertLessEqual(reserved, 115 << 20)

    def test_a_small_block_pushes_no_large_one_out(self):
        outcome = run("steps", "churn=device:4K:1", *["churn=device:100M:1"] * 300)
        self.assertGreaterEqual(outcome.kind("device:0")["pool_hits"], 297)

    def test_there_is_no_cap_on_what_was_live(self):
        outcome = run("steps", *["churn=device:500M:12"] * 20)
        self.assertLessEqual(outcome.kind("device:0")["pool_misses"], 24, "6,000 MiB come back each time")

    def test_the_minimum_stays(self):
        self.assertEqual(self.live_mib(*self.PHASES, DEVICE_POOL_MIN="200M"), [80, 192])

    def test_what_is_freed_all_at_once_and_taken_again_stays(self):
        figures = driver(run("steps", *["churn=device:60M:4"] * 20, "driver"))[0]
        self.assertEqual((figures["allocs"], figures["live_kib"] >> 10), (8, 240))


class TrimByTime(unittest.TestCase):
    def test_unused_memory_goes_back_at_the_next_call_but_for_the_minimum(self):
        outcome = run("steps", "churn=device:1M:8", "driver", "sleep", "a=device:2M", "driver", TRIM_INTERVAL="200ms",
                      DEVICE_POOL_MIN="3M")
        self.assertEqual([figures["live_kib"] for figures in driver(outcome)], [8192, 3072 + 2048])

    def test_without_a_minimum_all_of_it(self):
        outcome = run("steps", "churn=device:1M:8", "sleep", "a=device:2M", "driver", TRIM_INTERVAL="200ms")
        self.assertEqual(driver(outcome)[0]["live_kib"], 2048)

    def test_pinned(self):
        outcome = run("steps", "churn=pinned:1M:8", "sleep", "a=pinned:2M", "driver", TRIM_INTERVAL="200ms",
                      PINNED_POOL_MIN="3M")
        self.assertEqual(driver(outcome)[0]["pinned_live"], 3 + 1)

    def test_a_free_trims_too(self):
        outcome = run("steps", "a=device:2M", "churn=device:1M:8", "sleep", "free=a", "driver", TRIM_INTERVAL="200ms")
        self.assertEqual(driver(outcome)[0]["live_kib"], 2048, "only what was freed just now is left")

    def test_not_before_the_interval_and_never_at_zero(self):
        # The longest that can be written: added to the clock it would be long ago.
        for interval in ("10s", "0", "18446744073s"):
            with self.subTest(interval):
                outcome = run("steps", "churn=device:1M:8", "sleep", "a=device:2M", "driver", TRIM_INTERVAL=interval)
                self.assertEqual(driver(outcome)[0]["live_kib"], 8192 + 2048)


class ObjectLimits(unittest.TestCase):
    def test_device(self):
        outcome = run("steps", "churn=device:1K:2", "churn=device:64K:2", "churn=device:2M:2", "driver",
                      DEVICE_OBJECT_MIN="4KiB", DEVICE_OBJECT_MAX="1MiB")
        self.assertEqual(outcome.unpooled("device:0"), {"below object min": 2, "above object max": 2})
        self.assertEqual(driver(outcome)[0]["live_kib"], 128, "only the middle ones are kept")

    def test_at_the_limits_blocks_are_kept(self):
        outcome = run("steps", "churn=device:4K:1", "churn=device:1M:1", DEVICE_OBJECT_MIN="4KiB",
                      DEVICE_OBJECT_MAX="1MiB")
        self.assertEqual(outcome.unpooled("device:0"), {})

    def test_pinned(self):
        outcome = run("steps", "churn=pinned:64K:2", "churn=pinned:2M:2", "driver", PINNED_OBJECT_MAX="1MiB")
        self.assertEqual(outcome.unpooled("pinned"), {"above object max": 2})
        self.assertEqual(driver(outcome)[0]["pinned_live"], 2)


class Order(unittest.TestCase):
    STEPS = ["churn=device:1M:8", "churn=device:1M:8", "driver"]

    def test_strict_waits_at_every_free(self):
        outcome = run("steps", *self.STEPS)
        self.assertEqual(driver(outcome)[0]["waits"], 16)
        self.assertEqual(outcome.kind("device:0")["driver_syncs"], 16)

    def test_deferred_never_waits_and_still_recycles(self):
        outcome = run("steps", *self.STEPS, DEVICE_ORDER="deferred")
        self.assertEqual(driver(outcome)[0]["waits"], 0)
        self.assertEqual(outcome.kind("device:0")["driver_syncs"], 0)
        self.assertEqual(outcome.kind("device:0")["pool_hits"], 8)


class BadValues(unittest.TestCase):
    SIZE, SWITCH, PERCENT = "a size such as 512MiB or 1.5GB", "on or off", "a percentage from 0 to 1000000"
    CASES = {"DEVICE_POOL": ("on, ranges or off", "on"), "DEVICE_POOL_MAX": (SIZE, "1TiB"),
             "DEVICE_POOL_PERCENT": (PERCENT, "115"),
             "DEVICE_POOL_MIN": (SIZE, "0"), "DEVICE_OBJECT_MIN": (SIZE, "0"), "DEVICE_OBJECT_MAX": (SIZE, "2GiB"),
             "PINNED_POOL": (SWITCH, "on"), "PINNED_POOL_MAX": (SIZE, "1TiB"), "PINNED_POOL_PERCENT": (PERCENT, "115"),
             "PINNED_POOL_MIN": (SIZE, "0"), "PINNED_OBJECT_MAX": (SIZE, "512MiB"),
             "TRIM_INTERVAL": ("a time such as 250ms, 300s or 1.5h", "300s"),
             "DEVICE_ORDER": ("strict or deferred", "strict")}

    def test_each_is_said_in_one_line_and_the_default_holds(self):
        for option, (wanted, default) in self.CASES.items():
            with self.subTest(option):
                outcome = run("steps", *["churn=device:1M:5", "churn=pinned:1M:5"] * 2, "driver", **{option: "plenty"})
                say_once(self, outcome.errors, re.escape(
                    f"cistern: CISTERN_{option}: 'plenty' is not {wanted}; using {default}"))
                self.assertEqual([outcome.kind(kind)["pool_hits"] for kind in ("device:0", "pinned")], [5, 5])
                self.assertEqual(driver(outcome)[0]["waits"], 20)

    def test_an_unknown_option_is_said(self):
        outcome = run("steps", "churn=device:1M:1", DEVICE_LIMITS="1M")
        say_once(self, outcome.errors, r"cistern: CISTERN_DEVICE_LIMITS: no such option \(did you mean "
                 r"CISTERN_DEVICE_LIMIT\?\); the limit is half of each device's memory")


unittest.main(argv=["pool_tests.py"], verbosity=2)
