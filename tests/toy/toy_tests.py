"""A kind of memory that only a folder and a row make known. Its program runs as it does without Cistern, its blocks
are pooled, and the report has its figures, its leaks by line, and those of a forked child."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import jsonschema

ARGUMENTS = argparse.Namespace()


def reports_of(folder):
    reports = [json.loads(path.read_text()) for path in pathlib.Path(folder).glob("*.json")]
    return sorted(reports, key=lambda report: report["cistern"]["pid"])


def validate(reports):
    schema = json.loads(ARGUMENTS.schema.read_text())
    for report in reports:
        jsonschema.validate(report, schema)


def run(preload, *command, **options):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CISTERN_")}
    environment.pop("LD_PRELOAD", None)
    environment |= options
    if preload:
        environment["LD_PRELOAD"] = str(ARGUMENTS.shim)
    return subprocess.run(command or [ARGUMENTS.program], env=environment, capture_output=True, text=True, timeout=50)


class ToyKind(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plain = run(False)
        with tempfile.TemporaryDirectory() as folder:
            cls.preloaded = run(True, CISTERN_REPORT=f"{folder}/%p.json", CISTERN_REPORT_FORMAT="json")
            cls.reports = reports_of(folder)

    def test_the_program_sees_what_it_sees_plain(self):
        self.assertEqual(self.plain.returncode, 0)
        self.assertIn("after 50 blocks: 67108864 bytes free", self.plain.stdout)
        self.assertIn("toy_allocate(context, 60u << 20, &kept): no memory", self.plain.stdout)
        self.assertEqual(self.preloaded.stdout, self.plain.stdout)
        self.assertEqual(self.preloaded.returncode, 0)

    def test_blocks_come_from_a_pool(self):
        self.assertEqual(self.plain.stderr, "driver allocations: 52\n")
        self.assertEqual(self.preloaded.stderr, "driver allocations: 3\n")

    def test_the_report_has_its_figures(self):
        self.assertEqual(len(self.reports), 2)
        for report, wanted in zip(self.reports, (
                {"allocations": 52, "frees": 51, "pool_hits": 49, "failed": 1, "live_blocks": 1, "live_bytes": 5000},
                {"allocations": 1, "frees": 0, "failed": 0, "live_blocks": 1, "live_bytes": 3000})):
            toy = report["kinds"]["toy"]
            self.assertEqual({name: toy[name] for name in wanted}, wanted)

    def test_the_report_has_its_shape(self):
        validate(self.reports)

    def test_leaks_are_named_by_line(self):
        for report, function, size in zip(self.reports, ("forgotten_block", "main"), (5000, 3000)):
            leak, = (leak for leak in report["leaks"] if leak["kind"] == "toy")
            self.assertEqual((leak["bytes"], leak["blocks"], leak["api"]), (size, 1, "toy_allocate"))
            self.assertEqual(leak["frames"][0]["function"], function)
            self.assertTrue(leak["frames"][0]["file"].endswith("user.c"))

    def test_the_text_report_has_it_too(self):
        text = run(True, CISTERN_REPORT="stderr").stderr
        self.assertIn("toy", text)
        self.assertIn("forgotten_block", text)

    def test_the_switch_leaves_it_alone(self):
        off = run(True, CISTERN="off")
        self.assertEqual((off.stdout, off.stderr), (self.plain.stdout, self.plain.stderr))


# The output of library_user: each call with its answer, a cistern_status.
POOL = """
cistern_pool_allocate(pool, 2 << 20, 0, &other): 3
cistern_pool_allocate(pool, BYTES, 0, &block): 0
cistern_pool_deallocate(pool, block, NULL): 0
cistern_pool_allocate(pool, BYTES, 0, &block): 0
cistern_pool_allocate(pool, 1000, 4096, &other): 0
aligned: 1
cistern_pool_deallocate(pool, NO_BLOCK, NULL): 1
cistern_pool_reallocate(pool, &block, 50, NULL): 1
cistern_pool_reallocate(pool, &block, 2 * BYTES, context): 0
kept
cistern_pool_deallocate(pool, block, NULL): 0
cistern_pool_deallocate(pool, other, NULL): 0
cistern_pool_get_statistics(pool, &seen): 0
4 allocations, {hits} of kept memory, {live} live
"""
DEFRAGMENT = """
cistern_pool_allocate(pool, BYTES, 0, &block): 0
cistern_pool_deallocate(pool, block, NULL): 0
cistern_defragment(KIND, NULL): 0
cistern_pool_allocate(pool, BYTES, 0, &block): 0
0 allocations of the driver
cistern_pool_deallocate(pool, block, NULL): 0
"""
DEFAULT_POOL = """
cistern_pool_default(KIND, &pool): 0
cistern_pool_allocate_as(pool, &request, &block): 1
cistern_pool_allocate_as(pool, &request, &block): 0
toy_free(context, block): 0
toy_allocate(context, BYTES, &block): 0
cistern_pool_deallocate(pool, block, NULL): 0
cistern_pool_deallocate(pool, NO_BLOCK, NULL): 1
driver's code: 1
cistern_pool_reserve(pool, BYTES, 1): 1
cistern_get_figures(KIND, 0, &figures): 0
cistern_get_figures(KIND, 1, &figures): 1
0 live
"""
QUEUE = """
cistern_pool_allocate(pool, BYTES, 0, &block): 0
cistern_enqueue_fill(&on_device, "abc", 3, 10, 0, context): 0
cistern_enqueue_copy(&on_host, &on_device, 10, 0, context): 0
cistern_enqueue_copy(&on_device, &cuda, 10, 0, context): 11
cistern_enqueue_copy(&on_host, &on_device, 10, 0, NULL): 1
cistern_queue_follow(KIND, 0, context, other): 0
cistern_queue_wait(KIND, 0, context): 0
cistern_queue_wait(KIND, 0, NULL): 1
abcabcabca
cistern_pool_deallocate(pool, block, NULL): 0
"""
TRANSFER = """
cistern_pool_allocate(pool, BYTES, 0, &block): 0
cistern_transfer_create(&settings, &transfer): 0
cistern_transfer_add(transfer, &up, NULL): 0
cistern_transfer_wait(transfer, -1): 0
cistern_transfer_add(transfer, &down, NULL): 0
cistern_transfer_wait(transfer, -1): 0
the same: 1
cistern_transfer_destroy(transfer): 0
cistern_pool_deallocate(pool, block, NULL): 0
"""
BUFFER = """
cistern_unified_create(&settings, &buffer): 1
cistern_unified_create(&settings, &buffer): 0
cistern_unified_host(buffer, 0, BYTES, OVERWRITE, &here): 0
cistern_unified_device(buffer, 5, 9, WRITE, NULL, &there): 0
the host
cistern_unified_host(buffer, 0, BYTES, READ, &here): 0
from a toy has
cistern_unified_get_state(buffer, &state): 0
state 3
cistern_unified_destroy(buffer): 0
"""
FILE = """
cistern_mapped_open(&settings, &file): 0
cistern_mapped_acquire(file, 2, WRITE, context, &chunk, &bytes): 0
cistern_mapped_release(file, 2, context): 0
cistern_mapped_close(file): 0
1808 bytes in the last chunk
"""
SEGMENTS = """
cistern_pool_create(&settings, &pool): 0
100 blocks of 1 allocations
toy_free(context, blocks[7]): 1
cistern_pool_deallocate(pool, NO_BLOCK, NULL): 1
cistern_pool_allocate(pool, 5000, 4096, &blocks[0]): 0
aligned: 1
cistern_pool_reallocate(pool, &blocks[0], 70000, context): 0
cistern_pool_deallocate(pool, blocks[0], NULL): 0
cistern_pool_destroy(pool): 4
cistern_pool_get_statistics(pool, &seen): 0
102 allocations, 1 segments
cistern_trim(KIND, 0, &returned): 0
cistern_pool_create(&settings, &pool): 0
cistern_pool_allocate(pool, BYTES, 0, &block): 0
toy_context_destroy(ends): 3
cistern_pool_deallocate(pool, block, NULL): 0
toy_allocate(ends, ALL, &block): 0
toy_free(ends, block): 0
cistern_pool_allocate(pool, BYTES, 0, &block): 0
cistern_pool_deallocate(pool, block, NULL): 0
toy_context_destroy(ends): 0
cistern_pool_destroy(pool): 0
"""
IN_CHILD = """
cistern_pool_allocate(cut, 1000, 0, &block): 0
cistern_pool_deallocate(cut, block, NULL): 0
the child ended with 0
"""


class ThroughTheLibrary(unittest.TestCase):
    """The C interface serves the kind, and has no line of code about it."""

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            mapped = pathlib.Path(folder, "mapped")
            cls.seen = run(True, ARGUMENTS.library_user, mapped, CISTERN_REPORT=f"{folder}/%p.json",
                           CISTERN_REPORT_FORMAT="json")
            cls.mapped = mapped.read_bytes()
            cls.reports = reports_of(folder)

    def test_each_call_answers_as_for_any_kind(self):
        wanted = ["cistern_pool_create(&settings, &pool): 1", "cistern_pool_create(&settings, &pool): 0"]
        for part in (POOL.format(hits=1, live=0), DEFRAGMENT, DEFAULT_POOL, QUEUE, TRANSFER, BUFFER, FILE, SEGMENTS):
            wanted += part.strip().split("\n")
        wanted += ["cistern_pool_allocate(pool, 5000, 0, &block): 0", "cistern_pool_destroy(pool): 4"]
        wanted += POOL.format(hits=1, live=1).strip().split("\n") + IN_CHILD.strip().split("\n")
        self.assertEqual(self.seen.stdout.split("\n"), wanted + [""])
        self.assertEqual(self.seen.returncode, 0)

    def test_misuse_is_named(self):
        line = 'cistern: cistern_pool_deallocate(0x1000): no live block of pool "{}" (toy); refused\n'
        self.assertEqual(self.seen.stderr, "".join(map(line.format, ("toys", "default", "cut", "toys"))))

    def test_what_was_written_on_the_device_is_in_the_file(self):
        self.assertEqual(self.mapped, bytes(9996) + b"end\0")

    def test_the_report_has_its_shape(self):
        self.assertTrue(all(report["library_pools"] for report in self.reports))
        validate(self.reports)

    def test_the_report_has_the_pool_and_its_leak(self):
        report = self.reports[0]
        pools = [(pool["name"], pool["kind"], pool["live_bytes"]) for pool in report["library_pools"]]
        self.assertEqual(pools, [("toys", "toy", 5000), ("cut", "toy", 10900), ("ends", "toy", 0)])
        leaks = [leak for leak in report["leaks"] if leak["kind"] == "toy"]
        self.assertEqual({(leak["bytes"], leak["frames"][0]["function"]) for leak in leaks},
                         {(5000, "forgotten_block"), (10900, "use_segments")})  # a block, and not its segment
        self.assertTrue(all(leak["frames"][0]["file"].endswith("library_user.c") for leak in leaks))
        of_toy = report["fragmentation"]["toy"]
        self.assertEqual(of_toy["live_bytes"], 15900)
        self.assertEqual(of_toy["reserved_bytes"], of_toy["live_bytes"] + of_toy["free_bytes"])


class WithoutTheDriver(unittest.TestCase):
    """The preload is there, and the driver's library is not."""

    def test_each_call_says_so(self):
        seen = run(True, ARGUMENTS.without_driver)
        self.assertEqual((seen.returncode, seen.stderr), (0, ""))
        self.assertEqual(seen.stdout, """\
cistern_pool_create(&settings, &pool): 0
cistern_pool_allocate(pool, 1000, 0, &block): 5
cistern_pool_create(&settings, &cut): 0
cistern_pool_allocate(cut, 1000, 0, &block): 5
cistern_queue_wait(KIND, 0, CONTEXT): 5
cistern_unified_device(buffer, 0, 1000, WRITE, NULL, &block): 5
cistern_pool_destroy(pool): 0
""")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("shim", "program", "library-user", "without-driver", "schema"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.parse_args(namespace=ARGUMENTS, args=sys.argv[1:11])
    unittest.main(argv=sys.argv[:1], verbosity=2)
