#!/usr/bin/python3
"""One, two and eight devices: each has its own figures, pool and limit; one that is full does not touch the others."""
import unittest

from harness import run, run_plain

MIB = 1 << 20


class Devices(unittest.TestCase):
    def check(self, devices, full, **options):
        simulator = {"DEVICES": devices}
        outcome = run("devices", full, simulator=simulator, **options)
        self.assertEqual(outcome.lines, run_plain("devices", full, simulator=simulator).lines)
        kinds = {name: kind for name, kind in outcome.report["kinds"].items() if name.startswith("device:")}
        self.assertEqual(sorted(kinds), [f"device:{number}" for number in range(devices)])
        for number in range(devices):
            kind = kinds[f"device:{number}"]
            with self.subTest(devices=devices, full=full, number=number):
                figures = ("allocations", "frees", "live_blocks", "live_bytes", "failed")
                self.assertEqual([kind[name] for name in figures],
                                 [3, 2, 1, 8 * MIB, int(number == full)])
                self.assertEqual(kind["pool_hits"], 0 if options.get("DEVICE_POOL") == "off" else 1)

    def test_every_number_of_devices(self):
        for devices in (1, 2, 8):
            self.check(devices, -1)

    def test_a_device_that_is_full_beside_others(self):
        for devices in (1, 2, 8):
            for full in {0, devices - 1}:
                self.check(devices, full)

    def test_in_every_order_and_without_the_pool(self):
        for options in ({"DEVICE_ORDER": "deferred"}, {"DEVICE_POOL": "ranges"}, {"DEVICE_POOL": "off"}):
            with self.subTest(options):
                self.check(8, 7, **options)

    def test_a_limit_is_each_devices_own(self):
        """12 MiB are in use at most."""
        self.check(8, 3, DEVICE_LIMIT="12MiB")


unittest.main(argv=["devices_tests.py"], verbosity=2)
