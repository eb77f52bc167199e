#!/usr/bin/python3
"""What the report says of CUDA memory: every kind with its counts, leaks with their sites, frameworks, silence."""
import signal
import unittest

from harness import PROGRAMS, environment, run, start
from report_rows import gpu_rows

MIB = 1 << 20
# kind: allocations, frees, live bytes, peak bytes; the object and the function of the one that is left
KINDS = {
    "device:0": (3, 2, MIB, MIB, "block", "keep_device"),
    "device:1": (2, 1, 2 * MIB, 2 * MIB, "block", "keep_device"),
    "pinned": (2, 1, 3 * MIB, 3 * MIB, "block", "keep_pinned"),
    "managed": (2, 1, 4 * MIB, 4 * MIB, "block", "keep_managed"),
    "async:0": (2, 1, 5 * MIB, 5 * MIB, "block", "keep_ordered"),
    "array:0": (2, 1, 512 * 256 * 4, 512 * 256 * 4, "array", "keep_array"),
    "vmm:0": (2, 1, 6 * MIB, 6 * MIB, "physical memory", "keep_physical"),
    "registered": (2, 1, 7 * MIB, 7 * MIB, "registered host memory", "keep_registered"),
    "imported": (2, 1, 1 << 20, 1 << 20, "IPC memory", "keep_imported"),
}
POOLED = ("device:0", "device:1", "pinned")


class Kinds(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.outcome = run("kinds", "all")

    def test_counts(self):
        found = {}
        for name, figures in self.outcome.report["kinds"].items():
            if name != "host":
                self.assertEqual(figures["live_blocks"], figures["allocations"] - figures["frees"], name)
                found[name] = tuple(figures[key] for key in ("allocations", "frees", "live_bytes", "peak_bytes"))
        self.assertEqual(found, {name: expected[:4] for name, expected in KINDS.items()})

    def test_pools_serve_their_kinds_only(self):
        for name in KINDS:
            figures = self.outcome.kind(name)
            self.assertEqual(figures["pooled"], name in POOLED, name)
            self.assertEqual(figures["pool_hits"], figures["allocations"] - 1 if name in POOLED else 0, name)

    def test_one_leak_of_each(self):
        leaks = gpu_rows(self.outcome.report)
        found = {leak["kind"]: (leak["blocks"], leak["bytes"], leak["object"], leak["frames"][0]["function"])
                 for leak in leaks}
        self.assertEqual(len(leaks), len(found))
        self.assertEqual(found, {kind: (1, live, what, function)
                                 for kind, (_, _, live, _, what, function) in KINDS.items()})
        self.assertLessEqual({leak["class"] for leak in leaks}, {"lost", "held only by the driver", "reachable"})
        self.assertTrue(all(leak["program"] for leak in leaks))

    def test_device_memory_is_sampled(self):
        memory = {row["device"]: row for row in self.outcome.report["device_memory"]}
        self.assertEqual(sorted(memory), [0, 1])
        for row in memory.values():
            self.assertEqual(row["total_bytes"], 8 << 30)
            self.assertEqual(row["driver_owned_bytes"], row["total_bytes"] - row["free_bytes"] - row["ours_bytes"])

    def test_device_memory_is_sampled_without_a_pool_too(self):
        report = run("steps", "a=device:1M", DEVICE_POOL="off").report
        self.assertEqual([row["device"] for row in report["device_memory"]], [0])


class EndedContexts(unittest.TestCase):
    def test_what_went_with_its_context_is_a_leak_of_its_own_class(self):
        outcome = run("kinds", "contexts")
        found = {(leak["kind"], leak["class"], leak["blocks"], leak["bytes"], leak["frames"][0]["function"])
                 for leak in gpu_rows(outcome.report)}
        gone = "never freed, went with its context"
        self.assertEqual(found, {("device:0", gone, 1, MIB, "lose_with_context"),
                                 ("device:0", gone, 1, 2 * MIB, "keep_device"),
                                 ("pinned", gone, 1, 3 * MIB, "keep_pinned"),
                                 ("managed", gone, 1, 4 * MIB, "keep_managed")})
        self.assertEqual([outcome.kind(kind)["live_blocks"] for kind in ("device:0", "pinned", "managed")], [0, 0, 0])

    def test_a_process_that_a_signal_ends_says_the_same(self):
        outcome = run("kinds", "contexts", "ended", status=-signal.SIGTERM)
        self.assertEqual({leak["class"] for leak in gpu_rows(outcome.report)}, {"never freed, went with its context"})

    def test_the_verdict_says_so(self):
        errors = run("kinds", "contexts", REPORT="stderr", REPORT_FORMAT="text").errors
        self.assertIn("VERDICT  4 blocks, 10.0 MiB never freed at 4 sites, 10.0 MiB of it in destroyed contexts",
                      errors)


class Habits(unittest.TestCase):
    """Who allocates in loops, waits often, held the peak, and leaves objects behind."""

    def test_in_json(self):
        report = run("habits").report
        device = report["kinds"]["device:0"]
        self.assertEqual((device["allocations"], device["temporary"]), (1502, 1501))
        self.assertEqual(device["allocated_bytes"], 49 * MIB + 1500 * 4096)
        self.assertEqual(device["peak_bytes"], 49 * MIB)
        held = [(site["frames"][0]["function"], site["peak_bytes"], site["peak_blocks"], site["api"])
                for site in report["at_peak"] if site["kind"] == "device:0"]
        self.assertEqual(held, [("hold_much", 48 * MIB, 1, "cudaMalloc"), ("hold_little", MIB, 1, "cudaMalloc")])
        loop, = report["in_loops"]
        self.assertEqual((loop["frames"][0]["function"], loop["allocations"], loop["temporary"]),
                         ("allocate_in_loop", 1500, 1500))
        waits = {(wait["frames"][0]["function"], wait["api"], wait["count"]) for wait in report["waits"]}
        self.assertIn(("wait_often", "cuStreamSynchronize", 1200), waits)
        objects = {name: (one["created"], one["alive"]) for name, one in report["objects"].items()}
        self.assertEqual((objects["CUDA events"], objects["CUDA streams"]), ((20, 15), (4, 3)))
        sites = {(site["type"], site["frames"][0]["function"], site["alive"]) for site in report["object_sites"]}
        self.assertEqual(sites, {("CUDA events", "leave_events", 15), ("CUDA streams", "leave_streams", 3)})

    def test_in_text(self):
        errors = run("habits", REPORT="stderr", REPORT_FORMAT="text").errors
        self.assertRegex(errors, r"\nPEAK BY SITE device:0  of 49\.0 MiB\n  48\.0 MiB in 1 block \(cudaMalloc\)\n"
                                 r"     hold_much .*\n  1\.0 MiB ")
        self.assertRegex(errors, r"\n  device:0  1,500 blocks, 5\.9 MiB in total, 1,500 of them freed right away "
                                 r"\(cudaMalloc\)\n     allocate_in_loop ")
        self.assertRegex(errors, r"\nWAITS FOR A DEVICE  .*\n  cuda  1,200 calls, blocked for [\d.]+ m?s "
                                 r"\(cuStreamSynchronize\)\n     wait_often ")
        self.assertRegex(errors, r"\nLIVE OBJECTS  .*CUDA streams 3 of 4, CUDA events 15 of 20")
        self.assertRegex(errors, r"\n  15 CUDA events \(cuEventCreate\)\n     leave_events ")


class Sites(unittest.TestCase):
    def test_off_leaves_leaks_without_frames(self):
        report = run("steps", "a=device:1M", "b=pinned:1M", SITES="off").report
        self.assertEqual(report["sites"], {"mode": "off", "count": 0})
        rows = {(leak["kind"], leak["blocks"], leak["api"], len(leak["frames"])) for leak in gpu_rows(report)}
        self.assertEqual(rows, {("device:0", 1, "cudaMalloc", 0), ("pinned", 1, "cudaMallocHost", 0)})

    def test_off_says_how_to_get_them(self):
        errors = run("steps", "a=device:1M", SITES="off", REPORT="stderr", REPORT_FORMAT="text").errors
        self.assertIn("\n         1 block without a call site: CISTERN_SITES=gpu records it\n", errors)


class WhereItGoes(unittest.TestCase):
    STEPS = ("a=device:1M", "free=a", "b=device:1M")

    def test_none_is_silent(self):
        outcome = run("steps", *self.STEPS, REPORT="none")
        self.assertEqual(outcome.errors, "")

    def test_text_on_stderr_by_default(self):
        done = start("steps", self.STEPS, environment({}))
        self.assertRegex(done.stderr, r"\Acistern \S+  .*\nVERDICT  nothing lost; "
                                      r"1 block, 1\.0 MiB reachable, never freed at 1 site ")
        self.assertRegex(done.stderr, r"\n  device:0 +1\.0 MiB in 1 +1\.0 MiB ")
        self.assertEqual(done.stdout.splitlines(), [f"{step}: 0" for step in self.STEPS])

    def test_json_on_stderr(self):
        done = start("steps", self.STEPS, environment({"REPORT": "stderr", "REPORT_FORMAT": "json"}))
        self.assertTrue(done.stderr.startswith("{\n") and done.stderr.endswith("}\n"), done.stderr)

    def test_json_in_a_file_leaves_stderr_empty(self):
        outcome = run("steps", *self.STEPS)
        self.assertEqual(outcome.errors, "")
        self.assertEqual(outcome.kind("device:0")["pool_hits"], 1)


class Silence(unittest.TestCase):
    def test_a_program_that_only_looks_at_the_devices(self):
        done = start("idle", (), environment({}))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "2 devices\n", ""))

    def test_a_program_with_a_context_that_allocates_nothing(self):
        done = start("steps", ("info",), environment({}))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_bad_options_are_said_by_it_all_the_same(self):
        done = start("idle", (), environment({"DEVICE_POOL_MAX": "plenty"}))
        self.assertEqual((done.returncode, done.stderr), (0, "cistern: CISTERN_DEVICE_POOL_MAX: 'plenty' is not a size "
                                                             "such as 512MiB or 1.5GB; using 1TiB\n"))


class Frameworks(unittest.TestCase):
    def test_recognised_by_what_they_load(self):
        library = PROGRAMS["libc10_cuda.so"]
        self.assertEqual(run("kinds", "load", library).report["frameworks"], ["PyTorch"])
        errors = run("kinds", "load", library, REPORT="stderr", REPORT_FORMAT="text").errors
        self.assertIn("\n         PyTorch has a memory cache of its own: ", errors)

    def test_none_where_there_is_none(self):
        self.assertEqual(run("steps", "a=device:1M").report["frameworks"], [])


unittest.main(argv=["report_tests.py"], verbosity=2)
