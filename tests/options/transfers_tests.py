#!/usr/bin/python3
"""The transfer table: every copy once, under its direction, kind of host memory and way of waiting."""
import pathlib
import tempfile
import unittest

from harness import environment, run, start

MIB = 1 << 20
# direction, pageable (None between devices), asynchronous: count, bytes, call and function that copied most, its bytes
EXPECTED = {
    ("host to device", True, False): (5, 3 * MIB + 64000 + 4096, "cudaMemcpy", "upload_weights", 3 * MIB),
    ("host to device", False, True): (2, 4 * MIB, "cudaMemcpyAsync", "upload_staged", 4 * MIB),
    ("host to device", False, False): (1, 16384, "cudaMemcpy", "upload_guessed", 16384),
    ("host to device", True, True): (1, 12288, "cudaMemcpyAsync", "upload_carelessly", 12288),
    ("device to host", True, False): (2, MIB // 2 + 8192, "cudaMemcpy", "download", MIB // 2),
    ("device to host", False, True): (1, 65536, "cudaMemcpyAsync", "download_staged", 65536),
    ("device to device", None, False): (4, MIB, "cudaMemcpy", "shuffle", MIB),
    ("device to device", None, True): (1, 1000, "cudaMemcpyAsync", "shuffle", 1000),
    ("host to host", False, False): (1, 300, "cuMemcpy", "between_hosts", 300),
}


def table(report):
    return {(row["direction"], row.get("pageable"), row["asynchronous"]): row for row in report["transfers"]}


class Transfers(unittest.TestCase):
    def test_every_copy_is_in_its_row(self):
        rows = table(run("transfers").report)
        found = {}
        for key, row in rows.items():
            worst = row["worst_site"]
            found[key] = (row["count"], row["bytes"], worst["api"], worst["frames"][0]["function"], worst["bytes"])
        self.assertEqual(found, EXPECTED)

    def test_largest_first(self):
        sizes = [row["bytes"] for row in run("transfers").report["transfers"]]
        self.assertEqual(sizes, sorted(sizes, reverse=True))

    def test_seconds_are_those_of_blocking_copies(self):
        for (_, _, asynchronous), row in table(run("transfers").report).items():
            self.assertEqual("seconds" in row, not asynchronous)
            self.assertLess(row.get("seconds", 0), 10)

    def test_without_sites_the_same_counts_and_no_site(self):
        rows = table(run("transfers", SITES="off").report)
        self.assertEqual({key: (row["count"], row["bytes"]) for key, row in rows.items()},
                         {key: expected[:2] for key, expected in EXPECTED.items()})
        self.assertFalse([row for row in rows.values() if "worst_site" in row])

    def test_with_the_pools_off_the_same(self):
        rows = table(run("transfers", DEVICE_POOL="off", PINNED_POOL="off").report)
        self.assertEqual({key: (row["count"], row["bytes"]) for key, row in rows.items()},
                         {key: expected[:2] for key, expected in EXPECTED.items()})


class Sites(unittest.TestCase):
    """What is seen of copies that could do better, whichever way they go."""

    def of(self, report):
        """By function and direction: copies, waited for, unaligned, looked at when they came back, unchanged."""
        found = {}
        for row in report["copy_sites"]:
            key = row["frames"][0]["function"], row["direction"]
            figures = [row[field] for field in ("count", "waited_for", "unaligned", "returns_sampled",
                                                "returned_unchanged")]
            found[key] = [a + b for a, b in zip(found.get(key, [0] * len(figures)), figures)]
        return found

    def test_what_each_site_does(self):
        for staging in ("off", "on", "auto"):
            self.assertEqual(self.of(run("copy_sites", STAGING=staging).report), {
                ("one_by_one", "host to device"): [1200, 1200, 0, 0, 0],
                ("many_then_wait", "host to device"): [1200, 0, 0, 0, 0],
                ("to_odd_addresses", "host to device"): [1100, 0, 990, 0, 0],
                ("there_and_back", "host to device"): [8, 0, 0, 0, 0],
                ("there_and_back", "device to host"): [8, 0, 0, 8, 8],
                ("there_and_back_changed", "host to device"): [8, 0, 0, 0, 0],
                ("there_and_back_changed", "device to host"): [8, 0, 0, 8, 0],
                ("copy_on", "host to device"): [6, 2, 0, 0, 0],
            }, staging)

    def test_a_line_for_each_that_is_large(self):
        with tempfile.TemporaryDirectory() as directory:
            report = pathlib.Path(directory) / "report"
            start("copy_sites", [], environment({"REPORT": report}))
            text = report.read_text()
        for line in ("copies in lock step: 1,200 host to device (cudaMemcpyAsync), each waited for by the next call of",
                     "copied back unchanged: 8 of 8 checked, out of 8 device to host (cudaMemcpy)"):
            self.assertIn(line, text)
        self.assertNotIn("unaligned", text)


unittest.main(argv=["transfers_tests.py"], verbosity=2)
