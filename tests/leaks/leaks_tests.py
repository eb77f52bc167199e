"""Which live memory a process can still reach at its end: ground truth in every place that can hold a pointer, the
words of the report, and ends of processes that must stay as they are."""
import collections
import os
import pathlib
import platform
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "host"))
import host_tests  # noqa: E402
from host_tests import ARGUMENTS, HostTest  # noqa: E402
from report_rows import gpu_rows  # noqa: E402

CLASSES = {"lost": "lost", "hidden": "lost",
           "indirect": "indirectly lost", "possible": "possibly lost", "reachable": "reachable"}
WORDS = re.compile(r"(?:\w+::|\(anonymous namespace\)::)*((lost|hidden|indirect|possible|reachable|cycle|freed)_\w+)")


def maker(row):
    """The function of the program whose name says what is to be judged, and the word of it."""
    for frame in row["frames"]:
        found = WORDS.match(frame.get("function", ""))
        if found:
            return found.group(1), found.group(2)
    return None, None


def judged(report, kinds):
    """Blocks by the function that made them and their class."""
    found = collections.Counter()
    for row in report["leaks"]:
        name, _ = maker(row)
        if name and (row["kind"] in kinds):
            found[name, row["class"]] += row["blocks"]
    return found


def kernel_is(*least):
    return tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= least


class LeaksTest(HostTest):
    def with_report(self, *command, **more):
        # However busy the machine is.
        settings = {"CISTERN_SITES": "all", "CISTERN_LEAK_CHECK": "30s", **more.pop("environment", {})}
        return self.reported(*command, environment=settings, **more)


class GroundTruth(LeaksTest):
    def check(self, program, threads, *arguments, kinds, environment=None, stale_words=0):
        done, reports = self.with_report(self.program(program), str(threads), *arguments, environment=environment or {})
        self.assertEqual(len(reports), 1)
        report, = reports
        self.assertIsNone(report["judging"].get("why_not"))
        self.assertEqual(report["judging"]["unreadable_bytes"], 0)
        expected = collections.Counter()
        for line in done.out.splitlines():
            name, blocks = line.split()
            word, blocks = name.split("_")[0], int(blocks)
            if word == "cycle":
                expected[name, "lost"] += blocks // 2
                expected[name, "indirectly lost"] += blocks // 2
            else:
                expected[name, CLASSES[word]] += blocks
        structs = expected.pop(("lost_struct", "lost"), 0)  # made by the function that is named for what lies in it
        found = judged(report, kinds)
        for name in {name for name, word in found if word == "held only by the driver"}:
            found[name, "lost"] += found.pop((name, "held only by the driver"))  # which has a table of what it made
        self.assertEqual(found.pop(("indirect_in_lost_struct", "lost"), 0), structs if "host" in kinds else 0)
        wrong = found - expected
        # Memory that is used again and not cleared may still hold words of its last owner's.
        for row in [row for row in wrong if row[1] in ("reachable", "possibly lost")]:
            if wrong[row] <= stale_words:
                stale_words -= wrong.pop(row)
        self.assertEqual(dict(wrong), {}, (expected - found, program, threads, arguments))
        self.assertEqual(sum(found.values()), sum(expected.values()))
        return report

    def test_host_memory(self):
        for threads in (0, 1, 8):
            self.check("ground_truth_host", threads, kinds={"host"})

    def test_what_other_threads_have(self):
        """In registers, live frames, handlers and stacks of any kind; what is in frames that are over is lost."""
        for threads in (1, 8, 11, 64):
            report = self.check("ground_truth_threads", threads, kinds={"host"})
            self.assertEqual(report["judging"]["unseen_threads"], 0)

    def test_opencl_buffers(self):
        for threads in (0, 8):
            report = self.check("ground_truth_opencl", threads, kinds={"opencl"})
            # Beside what the driver made for each buffer.
            holders = judged(report, {"host"})
            self.assertEqual(holders["indirect_in_lost_struct", "lost"], threads + 1)

    def test_cuda_memory(self):
        if not os.environ.get("SIMULATOR"):
            self.skipTest("the simulated driver is not built here")
        for kind, name in (("device", "device:0"), ("pinned", "pinned"), ("managed", "managed"), ("async", "async:0")):
            for threads in (0, 8):
                self.check("ground_truth_cuda", threads, kind, kinds={name, "pinned", "device:0"},
                           environment={"LD_LIBRARY_PATH": os.environ["SIMULATOR"]}, stale_words=3 * (threads > 1))

    def test_python_integers(self):
        """Addresses in them lie in digits of 30 bits; the interpreter has freed them when exit begins."""
        script = ("import ctypes, gc, os, sys\n"
                  "make = ctypes.CDLL(None).malloc\n"
                  "make.restype = ctypes.c_void_p\n"
                  "made = [make(5000) for i in range(30)]\n")
        drop = "del made\ngc.collect()\nothers = [id(i) for i in range(10000)]\n"  # in the same places
        for more, expected in (("", "reachable"), ("os._exit(0)\n", "reachable"), (drop, "lost"),
                               (drop + "os._exit(0)\n", "lost")):
            _, reports = self.with_report(sys.executable, "-c", script + more)
            found = collections.Counter()
            for row in reports[0]["leaks"]:
                if row["block_bytes_min"] == row["block_bytes_max"] == 5000:
                    found[row["class"]] += row["blocks"]
            self.assertGreaterEqual(found[expected], 27, (more, found))
            self.assertEqual(sum(found.values()), 30)

    def test_what_samples_stand_for(self):
        """Totals by class are exact without sites too."""
        exact, = self.with_report(self.program("ground_truth_host"), "4")[1]
        sampled, = self.reported(self.program("ground_truth_host"), "4")[1]
        for name in ("lost", "indirectly lost", "possibly lost"):
            self.assertEqual(sampled["host_classes"][name], exact["host_classes"][name])

    def test_python_objects(self):
        script = ("import ctypes, gc\n"
                  "make = ctypes.CDLL(None).malloc\n"
                  "make.restype = ctypes.c_void_p\n"
                  "made = [ctypes.c_void_p(make(5000)) for i in range(30)]\n")
        drop = "del made\ngc.collect()\nothers = [ctypes.c_void_p(i) for i in range(10000)]\n"  # in the same places
        for more, expected in (("", "reachable"), (drop, "lost")):
            _, reports = self.with_report(sys.executable, "-c", script + more)
            found = collections.Counter()
            for row in reports[0]["leaks"]:
                if row["block_bytes_min"] == row["block_bytes_max"] == 5000:
                    found[row["class"]] += row["blocks"]
            self.assertGreaterEqual(found[expected], 28, "words of objects that were freed may still be there")
            self.assertEqual(sum(found.values()), 30)


class Words(LeaksTest):
    def test_the_verdict_says_what_is_lost(self):
        report = self.folder / "words"
        done = self.shimmed(self.program("ground_truth_opencl"), "0", environment={"CISTERN_REPORT": str(report)})
        self.assertEqual(done.status, 0)
        text = report.read_text()
        self.assertRegex(text, r"VERDICT  4 blocks, 3\.9 KiB lost at 4 sites; "
                               r"10 blocks, 9\.8 KiB reachable, never freed at 10 sites ")
        self.assertRegex(text, r" 1  opencl  .*  (indirectly lost|lost|driver-held)  first")
        self.assertRegex(text, r"\n         host memory live at exit: .* lost, .* reachable\n")

    def test_a_sleeping_thread_makes_nothing_of_the_drivers_uncertain(self):
        def classes(*arguments, **environment):
            _, reports = self.reported(self.program("ground_truth_opencl"), *arguments, environment=environment)
            return reports[0]["host_classes"], {row["class"] for row in gpu_rows(reports[0])}
        alone, beside = classes("0"), classes("0", "sleeping")
        untouched = classes("0", "sleeping", CISTERN_LEAK_THREADS="unseen")
        held = "held only by the driver"
        self.assertGreater(alone[0][held]["bytes"], 1 << 20)
        for other in (beside, untouched):
            self.assertAlmostEqual(other[0][held]["blocks"], alone[0][held]["blocks"], delta=20)
        self.assertIn("possibly lost", untouched[1])
        self.assertNotIn("possibly lost", alone[1])
        self.assertNotIn("possibly lost", beside[1])

    def test_it_can_be_switched_off(self):
        report = self.folder / "off"
        self.shimmed(self.program("ends_of_leaks"), "return",
                     environment={"CISTERN_REPORT": str(report), "CISTERN_LEAK_CHECK": "0",
                                  "CISTERN_HOST_SAMPLE": "0"})  # functions are named for what they lose
        self.assertIn("blocks live at exit: not judged\n", report.read_text())
        self.assertNotIn("lost", report.read_text())

    def test_what_cannot_be_done_in_time_is_not_begun(self):
        # At 4 GiB/s, which nothing reaches, 73 ms.
        script = "import os; kept = bytearray(b'x') * (300 << 20); os._exit(0)"
        _, reports = self.reported(sys.executable, "-c", script, environment={"CISTERN_LEAK_CHECK": "50ms"})
        self.assertEqual(reports[0]["judging"]["why_not"], "the time limit (CISTERN_LEAK_CHECK) is too short")
        self.assertLess(reports[0]["judging"]["seconds"], 0.04)

    def test_without_time_nothing_is_claimed(self):
        done, reports = self.with_report(self.program("ends_of_leaks"), "return", expected_status=3,
                                         environment={"CISTERN_LEAK_CHECK": "1ms"})
        why_not = reports[0]["judging"].get("why_not")
        classes = {row["class"] for row in reports[0]["leaks"]}
        self.assertEqual(classes, {"unclassified"} if why_not else {"lost", "reachable"})

    def test_a_process_fails_by_what_is_lost(self):
        def status(words, program="ground_truth_host", arguments=("0",), **more):
            return self.shimmed(self.program(program), *arguments,
                                environment={"CISTERN_REPORT": "none", "CISTERN_FAIL_ON": words, **more}).status
        self.assertEqual(status("lost", CISTERN_SITES="all"), 23)
        self.assertEqual(status("lost:1GiB", CISTERN_SITES="all"), 0)
        self.assertEqual(status("lost"), 0, "samples do not judge")
        self.assertEqual(status("any", CISTERN_SITES="all"), 0, "no GPU memory")
        self.assertEqual(status("lost", "ground_truth_opencl"), 23)
        rules = self.folder / "rules"
        rules.write_text("leak:lost_*\nleak:hidden_*\nleak:indirect_*\nleak:cycle_*\nleak:possible_*\n")
        known = {"CISTERN_SITES": "all", "CISTERN_SUPPRESSIONS": str(rules)}
        self.assertEqual(status("lost", **known), 0)
        self.assertEqual(status("possible", **known), 0)
        rules.write_text("leak:lost_*\nleak:hidden_*\nleak:indirect_*\nleak:cycle_*\n")
        self.assertEqual(status("possible", **known), 23)


class Ends(LeaksTest):
    LOST_AND_REACHABLE = {("lost_block", "lost"): 10, ("reachable_block", "reachable"): 5}

    def found(self, reports):
        """By the size that was asked for: beside many threads there may be no time for names."""
        names = {1000: "lost_block", 2000: "reachable_block"}
        found = collections.Counter()
        for row in reports[0]["leaks"]:
            if row["kind"] == "host" and row["block_bytes_min"] in names:
                found[names[row["block_bytes_min"]], row["class"]] += row["blocks"]
        return dict(found)

    def test_every_end(self):
        for way in ("return", "exit", "_exit", "quick_exit", "errx", "handler"):
            plain = self.plain(self.program("ends_of_leaks"), way)
            done, reports = self.with_report(self.program("ends_of_leaks"), way, expected_status=3)
            self.assertEqual(done.all(), plain.all(), way)
            self.assertEqual(self.found(reports), self.LOST_AND_REACHABLE, way)

    def test_nobody_sees_the_copy(self):
        plain = self.plain(self.program("ends_of_leaks"), "forked")
        self.assertEqual(plain.out, "waited for the child: 1, one more: 1\nsignals: 1\n")
        done, reports = self.with_report(self.program("ends_of_leaks"), "forked")
        self.assertEqual(done.all(), plain.all())
        self.assertEqual(len(reports), 2)
        for report in reports:
            self.assertEqual(self.found([report])["lost_block", "lost"], 10)

    def test_beside_other_threads(self):
        """They are stopped, and notice nothing."""
        for way in (["beside"], ["threads", "1"], ["threads", "64"], ["allocating"], ["registers"]):
            for _ in range(5):  # on a busy machine there may be no time to stop all: the report says so
                done, reports = self.with_report(self.program("ends_of_leaks"), *way, expected_status=3)
                self.assertEqual((done.out, done.err), ("", ""), way)
                if not reports[0]["judging"]["unseen_threads"]:
                    break
            self.assertEqual(reports[0]["judging"]["unseen_threads"], 0, way)
            self.assertEqual(self.found(reports), self.LOST_AND_REACHABLE, way)

    def test_only_what_is_known_to_be_a_stack_is_passed_over(self):
        for way in ("merged", "merged_ended", "slots", "in_front", "returned", "stale_frame"):
            _, reports = self.with_report(self.program("stack_places"), way)
            classes = collections.Counter()
            for row in reports[0]["leaks"]:
                if row["kind"] == "host" and row["block_bytes_min"] == 100_000:
                    classes[row["class"]] += row["blocks"]
            self.assertEqual(classes, {"reachable": 4 if way == "slots" else 1}, way)

    def test_calls_that_threads_wait_in_answer_as_ever(self):
        plain = self.plain(self.program("waiting_calls"))
        done, reports = self.with_report(self.program("waiting_calls"))
        self.assertEqual(sorted(done.out.splitlines()), sorted(plain.out.splitlines()))
        self.assertIn("recv of all: 64, errno 0", done.out)
        # These two would answer what they have done so far.
        self.assertEqual(reports[0]["judging"]["unseen_threads"], 2)

    def test_threads_that_nobody_touches(self):
        """What their registers may have is not certain."""
        for way in (["beside"], ["allocating"], ["registers"]):
            _, reports = self.with_report(self.program("ends_of_leaks"), *way, expected_status=3,
                                          environment={"CISTERN_LEAK_THREADS": "unseen"})
            self.assertEqual(reports[0]["judging"]["unseen_threads"], 1)
            self.assertNotIn("threads_stopped_seconds", reports[0]["judging"])
            reachable = 5 - (way == ["registers"])  # one is in a register only
            self.assertEqual(self.found(reports)["lost_block", "possibly lost"], 10)
            self.assertEqual(self.found(reports)["reachable_block", "reachable"], reachable)

    def test_threads_that_are_held_in_a_handler(self):
        """A debugger that traces the process is in the way of the helper."""
        for way in (["threads", "8"], ["allocating"], ["registers"]):
            _, reports = self.with_report("strace", "-f", "-o", "/dev/null", "-e", "trace=none",
                                          self.program("ends_of_leaks"), *way, expected_status=3,
                                          environment={"CISTERN_LEAK_THREADS": "hold"})
            report = next(one for one in reports if "ends_of_leaks" in one["cistern"]["command"].split()[0])
            self.assertNotIn("threads_stopped_seconds", report["judging"])
            if report["judging"]["unseen_threads"] == 0:  # none began or ended meanwhile
                self.assertEqual(self.found([report]), self.LOST_AND_REACHABLE, way)
        self.assertEqual(report["judging"]["unseen_threads"], 0)

    def test_memory_that_was_never_touched_costs_nothing(self):
        # Before Linux 6.7 each page takes some nanoseconds.
        for gib in [20, *[16 << 10] * kernel_is(6, 7)]:
            before = time.monotonic()
            done, reports = self.with_report(self.program("ends_of_leaks"), "sparse", str(gib), expected_status=3)
            self.assertLess(time.monotonic() - before, 20)
            self.assertEqual(self.found(reports), self.LOST_AND_REACHABLE)

    def test_a_guard_inside_a_mapping_is_not_read(self):
        if not kernel_is(6, 15):
            self.skipTest("the kernel does not say which pages are guards before Linux 6.15")
        _, reports = self.with_report(self.program("ends_of_leaks"), "guarded", expected_status=3)
        self.assertEqual(reports[0]["judging"]["unreadable_bytes"], 0)
        self.assertEqual(self.found(reports), self.LOST_AND_REACHABLE)

    def test_stacks_of_ended_threads_beside_each_other(self):
        if not kernel_is(6, 16):
            self.skipTest("the kernel does not find guards before Linux 6.16")
        _, reports = self.with_report(self.program("ends_of_leaks"), "stacks", expected_status=3)
        self.assertEqual(self.found(reports), {**self.LOST_AND_REACHABLE, ("lost_block", "lost"): 14})


class Lines(LeaksTest):
    """Functions and lines, by debug information of several forms."""

    def stacks(self, program):
        """By size of the block: function and the word that its line has in the source."""
        source = (pathlib.Path(__file__).parent / "programs/lines.cpp").read_text().splitlines()
        marks = {number: line.rpartition("// ")[2] for number, line in enumerate(source, 1) if "// " in line}
        _, (report,) = self.with_report(self.program(program))
        return {row["block_bytes_max"]: [(frame.get("function"), marks.get(frame.get("line")))
                                         for frame in row["frames"] if frame.get("file", "").endswith("lines.cpp")]
                for row in report["leaks"] if row["kind"] == "host"}

    def test_calls_that_were_inlined(self):
        forms = ["g", "g1", "gz", "gsplit-dwarf"]
        if self.program("lines_clang-g_5").exists():
            forms += ["clang-g", "clang-gsplit-dwarf"]
        for form in forms:
            for version in (4, 5):
                with self.subTest(form=form, version=version):
                    stacks = self.stacks(f"lines_{form}_{version}")
                    self.assertEqual(stacks[700_000], [("inner", "inner"), ("middle", "middle"), ("Deep::go", "go"),
                                                       ("outer", "outer"), ("main", "main")])
                    self.assertEqual(stacks[800_000][:2], [("inner", "inner"), ("names::leak_box", "of_rust")])

    def test_rules_name_functions_that_reports_leave_out(self):
        rules = self.folder / "rules"
        rules.write_text("leak:^std::thread::spawn$\n")
        _, (report,) = self.with_report(self.program("lines_g_5"), environment={"CISTERN_SUPPRESSIONS": str(rules)})
        rows = {row["block_bytes_max"]: row for row in report["leaks"] if row["kind"] == "host"}
        self.assertNotIn("std::thread::spawn", [frame.get("function") for frame in rows[800_000]["frames"]])
        self.assertTrue(rows[800_000].get("suppressed"))
        self.assertFalse(rows[700_000].get("suppressed"))

    def test_without_what_lies_beside_the_program(self):
        """What was inlined is told by the files beside it: each line is right, the functions are those called."""
        for version in (4, 5):
            with self.subTest(version=version):
                stacks = self.stacks(f"lines_gone_{version}")
                self.assertEqual(stacks[700_000],
                                 [("Deep::go", "inner"), ("outer", "outer"), ("main", "main")])
                self.assertEqual(stacks[800_000][:1], [("names::leak_box", "inner")])


if __name__ == "__main__":
    host_tests.main()
