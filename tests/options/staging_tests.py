#!/usr/bin/python3
"""Copies through bounce buffers: which go that way, what the report says, and that `auto` takes the better way."""
import os
import pathlib
import re
import sys
import unittest

from harness import driver, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "simcuda"))
import machines  # noqa: E402

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



# A device that reads host memory by the host's page tables: fast where it is anonymous, slow where it is a file.
READS_HOST = {"COHERENT": 1, "LINK_TO_DEVICE_MBPS": 4000, "LINK_TO_HOST_MBPS": 4000, "FILE_PAGE_NS": 100_000}
# One that copies any pageable memory through a slow buffer.
SLOW_BUFFER = {"PAGEABLE_COPY_MBPS": 100, "LINK_TO_DEVICE_MBPS": 4000, "LINK_TO_HOST_MBPS": 4000}


def by_source(outcome, direction="host to device"):
    """Rows of copies by the host's memory."""
    return {row["source"]: row for row in outcome.report["staging"] if row["direction"] == direction}


def won(row):
    return {name: value for name, value in row["ranges"][0].items() if name == "won" or name.endswith("trials")}


class Sources(unittest.TestCase):
    """Kinds of host memory are measured apart."""

    def copies(self, *arguments, simulator, **options):
        outcome = run("file_copies", *arguments, simulator=simulator, **options)
        if outcome.lines[0] == "memory" and not {"heap", "mapped", "shared"} >= {text[:-2] for text in arguments}:
            self.skipTest("the folder of the test is in memory: its files are shared memory")
        if "warm" in outcome.lines:
            self.skipTest("the file system keeps pages that it was asked to drop")
        return by_source(outcome)

    def test_devices_that_read_host_memory_stage_files_alone(self):
        rows = self.copies("heap=12", "mapped=12", "shared=12", "file=12", simulator=READS_HOST)
        self.assertEqual(set(rows), {"memory", "shared-memory", "file"})
        self.assertEqual(rows["memory"]["passed_on"], {"host-page-tables": 24})
        self.assertEqual(rows["shared-memory"]["passed_on"], {"host-page-tables": 12})
        self.assertEqual(won(rows["file"])["won"], "staged")
        # The driver takes more than eight times as long, and 20 ms more.
        self.assertEqual(rows["file"]["passed_on"], {"trial": 1})
        self.assertEqual(rows["file"]["staged_copies"], 11)

    def test_a_native_trial_that_takes_long_ends_with_its_first_bytes(self):
        outcome = run("file_copies", "long=2", simulator=READS_HOST)
        if outcome.lines[0] == "memory":
            self.skipTest("the folder of the test is in memory: its files are shared memory")
        for row in outcome.report["staging"]:
            figures = {name: row[name] for name in ("source", "staged_copies", "staged_bytes", "passed_on")}
            self.assertEqual(figures, {"source": "file", "staged_copies": 2, "staged_bytes": 30 * MIB,
                                       "passed_on": {"trial": 1}}, row["direction"])
        self.assertEqual(len(outcome.report["staging"]), 2)

    def test_a_native_trial_that_is_fast_is_of_the_whole_copy(self):
        def staged_bytes():
            return self.copies("long=1", simulator={"LINK_TO_DEVICE_MBPS": 4000})["file"]["staged_bytes"]
        self.assertIn(0, (staged_bytes() for _ in range(5)), "a busy machine may be slow a few times")

    def test_slices_are_staged_of_files_that_the_device_reads_itself(self):
        # So slow that a staged copy wins though it waits for a processor.
        rows = self.copies("slices=40", "pieces=40", simulator={**READS_HOST, "FILE_PAGE_NS": 1_000_000})
        self.assertEqual(won(rows["file"])["won"], "staged")
        self.assertEqual(rows["file"]["ranges"][0]["bytes_min"], 64 << 10)
        self.assertEqual(rows["memory"]["passed_on"], {"small": 40})
        rows = self.copies("slices=40", simulator=SLOW_BUFFER)
        self.assertEqual({source: row["passed_on"] for source, row in rows.items()}, {"memory": {"small": 40}})

    def test_machines_whose_rates_were_published(self):
        for machine in machines.MACHINES.values():
            rows = self.copies("heap=12", "file=12", simulator=machine.simulator_settings())
            if machine.coherent:
                self.assertEqual(won(rows["file"])["won"], "staged", machine.name)
                self.assertEqual(rows["memory"]["passed_on"], {"host-page-tables": 12}, machine.name)
            else:  # both kinds cost the driver the same, and staging is not so much faster that a few trials decide
                for source in ("memory", "file"):
                    self.assertGreater(won(rows[source])["native_trials"], 0, (machine.name, source))

    def test_trials_of_one_kind_decide_for_no_other(self):
        for first, second, decided, undecided in (("heap=20", "file=1", "memory", "file"),
                                                  ("file=20", "heap=1", "file", "memory")):
            rows = self.copies(first, second, simulator=SLOW_BUFFER)
            self.assertEqual(won(rows[decided])["won"], "staged", first)
            self.assertEqual(won(rows[undecided]), {"native_trials": 1, "staged_trials": 0}, first)

    def test_a_file_in_the_page_cache_is_measured_though_it_was_never_touched(self):
        self.assertEqual(won(self.copies("new=12", simulator=READS_HOST)["file"])["won"], "staged")

    def test_a_file_that_is_not_in_the_page_cache_is_measured_apart(self):
        rows = self.copies("cold=5", "file=1", simulator=READS_HOST)
        self.assertEqual(won(rows["cold-file"])["won"], "staged")
        self.assertEqual(won(rows["file"]), {"native_trials": 1, "staged_trials": 0})

    def test_a_file_that_is_partly_in_the_page_cache_is_measured_as_a_cold_one(self):
        rows = self.copies("partly=5", simulator=READS_HOST)
        self.assertEqual(set(rows), {"cold-file"})
        self.assertEqual(won(rows["cold-file"])["won"], "staged")

    def test_copies_that_touch_new_memory_first_are_measured_apart(self):
        rows = by_source(run("file_copies", "heap=1", "fresh=40", simulator=SLOW_BUFFER), "device to host")
        self.assertEqual(won(rows["new-memory"])["won"], "staged")
        self.assertEqual(won(rows["memory"]), {"native_trials": 1, "staged_trials": 0})
        rows = by_source(run("file_copies", "fresh=2", simulator=READS_HOST), "device to host")
        self.assertEqual(rows["new-memory"]["passed_on"], {"host-page-tables": 2})

    @unittest.skipUnless(os.geteuid() == 0, "only root can make a file of another user")
    def test_a_file_of_which_the_system_says_nothing_is_measured(self):
        # The time of the first copy, the one that reads the file, is taken at the second.
        self.assertEqual(won(self.copies("foreign=2", simulator=READS_HOST)["file"])["native_trials"], 1)

    def test_on_each_kind_is_staged(self):
        rows = self.copies("heap=2", "mapped=2", "shared=2", "file=2", simulator={}, STAGING="on")
        self.assertEqual({source: row["staged_copies"] for source, row in rows.items()},
                         {"memory": 4, "shared-memory": 2, "file": 2})


    def test_without_a_look_all_memory_is_memory(self):
        for options in ({"STAGING": "off"}, {"SYSTEM_CALLS": "few"}):
            rows = self.copies("mapped=1", "file=1", simulator={}, **options)
            self.assertEqual(set(rows), {"memory"}, options)

    def test_the_text_names_memory_that_is_not_plain(self):
        text = run("file_copies", "shared=2", "heap=2", STAGING="on", REPORT="stderr", REPORT_FORMAT="text").errors
        self.assertIn("STAGING cuda device 0  host to device, shared memory  2.0 MiB in 2 copies through", text)
        self.assertIn("STAGING cuda device 0  host to device  2.0 MiB in 2 copies through", text)


unittest.main(argv=["staging_tests.py"], verbosity=2)
