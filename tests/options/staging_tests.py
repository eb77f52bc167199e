#!/usr/bin/python3
"""Copies through bounce buffers: which go that way, what the report says, and that `auto` takes the better way."""
import unittest

from harness import driver, run

MIB = 1 << 20


def rows(report):
    return {row["direction"]: row for row in report.get("staging", [])}


class Staging(unittest.TestCase):
    def test_off_everything_is_passed_on_and_counted(self):
        for direction, row in rows(run("transfers", STAGING="off").report).items():
            self.assertEqual((direction, row["staged_copies"]), (direction, 0))
            self.assertEqual(set(row["passed_on"]), {"off", "not-pageable"}, direction)

    def test_on_large_pageable_copies_go_through_chunks(self):
        report = run("transfers", STAGING="on", STAGING_THREADS="1").report
        there, back = rows(report)["host to device"], rows(report)["device to host"]
        # What tests/options/transfers copies of 128 KiB and more (transfers_tests.py): 3 MiB in pieces, 512 KiB.
        self.assertGreaterEqual(there["staged_bytes"], 3 * MIB)
        self.assertEqual(back["staged_bytes"], MIB // 2)
        self.assertGreater(report["self"]["staging_bytes"], 0)
        self.assertGreater(there["passed_on"]["small"], 0)

    def test_on_that_stages_nothing_says_why(self):
        for staging, says in (("on", True), ("auto", False)):
            text = run("steps", "copy=4K", STAGING=staging, REPORT="stderr", REPORT_FORMAT="text").errors
            line = (r"STAGING cuda device 0 .* to device  0 B in 0 copies through bounce buffers; "
                    r"left to the driver: small \d\n")
            (self.assertRegex if says else self.assertNotRegex)(text, line)

    def test_the_transfer_table_is_the_same_either_way(self):
        def table(staging):
            return [(row["direction"], row.get("pageable"), row["asynchronous"], row["count"], row["bytes"])
                    for row in run("transfers", STAGING=staging).report["transfers"]]
        self.assertEqual(sorted(table("on"), key=str), sorted(table("off"), key=str))

    def test_chunks_that_are_unused_go_back(self):
        steps = "copy=8M", "driver", "sleep", "copy=4K", "driver"
        for interval, goes in (("200ms", True), ("0", False), ("1h", False)):
            outcome = run("steps", *steps, STAGING="on", TRIM_INTERVAL=interval)
            used, later = (figures["pinned_live"] for figures in driver(outcome))
            self.assertGreater(used, 0)
            self.assertEqual(later, 0 if goes else used, interval)

    def test_blocks_that_are_copied_get_huge_pages_if_asked_for(self):
        for pages, asked in (("copied", 1), ("off", 0)):
            for staging in ("on", "off"):
                outcome = run("huge_pages", HUGE_PAGES=pages, STAGING=staging)
                self.assertEqual(outcome.lines, [f"asked for: copied {asked}, other 0, small 0, mapped 0"])


unittest.main(argv=["staging_tests.py"], verbosity=2)
