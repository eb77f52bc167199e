"""Recordings of whole programs: a program on the simulated driver prints each of its calls, and the recording has them
all, in the order of each thread, however the program ends. The file is read here by the format's page, and by the
command.

usage: recording_tests.py CISTERN SHIM SIMULATOR RECORDED LEAKY HARD [TEST...]
"""
import collections
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

import recording

CISTERN, SHIM = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
SIMULATOR, RECORDED, LEAKY, HARD = sys.argv[3:7]
SEED = os.environ.get("CISTERN_TEST_SEED", "1")
TYPES = {"allocate": "allocation", "free": "free", "copy": "copy", "fail": "failed"}

Call = collections.namedtuple("Call", "type kind address bytes")


def calls_of(printed):
    """The program's lines, by thread."""
    calls = collections.defaultdict(list)
    for line in printed.splitlines():
        thread, what, *rest = line.split()
        if what == "allocate":
            call = Call("allocation", rest[0], int(rest[1], 16), int(rest[2]))
        elif what == "free":
            call = Call("free", rest[0], int(rest[1], 16), 0)
        else:
            call = Call(TYPES[what], "cuda" if what == "copy" else "device:0", 0, int(rest[0]))
        calls[int(thread)].append(call)
    return calls


def by_thread(events):
    threads = collections.defaultdict(list)
    for event in events:
        threads[event.thread].append(Call(event.type, event.kind, event.address, event.bytes))
    return threads


def in_order(events):
    return [Call(event.type, event.kind, event.address, event.bytes) for event in events]


def of_gpu(calls):
    return [call for call in calls if call.kind != "host"]


def live(calls):
    blocks = {}
    for call in calls:
        if call.type == "allocation":
            blocks[call.kind, call.address] = call.bytes
        elif call.type == "free":
            blocks.pop((call.kind, call.address), None)
    return blocks


def other_lines(ran):
    """The program asks for more than there is, and is told so."""
    return [line for line in ran.stderr.splitlines() if "out of memory" not in line]


class Recorded(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_program(self, *command, path="%p.rec", before=None, **options):
        environment = {**os.environ, "LD_PRELOAD": str(SHIM), "LD_LIBRARY_PATH": SIMULATOR, "CISTERN_REPORT": "none",
                       "CISTERN_RECORD": path, "CISTERN_SITES": "all", **options}
        return subprocess.run([str(word) for word in command], check=False, capture_output=True, text=True,
                              env=environment, cwd=self.folder, timeout=600, preexec_fn=before)

    def run_recorded(self, threads, calls, way, **options):
        return self.run_program(RECORDED, threads, calls, SEED, way, **options)

    def recordings(self):
        return [recording.Recording(path) for path in sorted(self.folder.glob("*.rec"))]

    def summary(self, path):
        shown = subprocess.run([str(CISTERN), "report", str(path)], check=False, capture_output=True, text=True)
        self.assertEqual((shown.returncode, shown.stderr), (0, ""), path)
        return shown.stdout

    def check_calls(self, calls, recorded, whole=True, host=True):
        """Each thread's calls are there in their order; of GPU memory nothing else is. The C++ library and the driver
        allocate host memory, too; while a thread forks, no host memory has a call site."""
        threads = by_thread(recorded.events)
        for thread, made in calls.items():
            gpu, seen = of_gpu(made), of_gpu(threads[thread])
            self.assertEqual(gpu, seen if whole else seen[:len(gpu)], f"thread {thread}, seed {SEED}")
            rest = iter(call for call in threads[thread] if call.kind == "host")
            for call in made:
                if host and call.kind == "host":
                    self.assertIn(call, rest, f"thread {thread}, seed {SEED}")


class Calls(Recorded):
    def test_eight_threads(self):
        ran = self.run_recorded(8, 2000, "end")
        self.assertEqual((ran.returncode, other_lines(ran)), (0, []))
        [recorded] = self.recordings()
        self.check_calls(calls_of(ran.stdout), recorded)
        self.assertEqual((recorded.lost_events, recorded.thinned_events, recorded.stopped), (0, 0, 0))
        self.assertTrue(recorded.ended)
        [site] = {event.site for event in recorded.events if event.kind == "pinned" and event.type == "allocation"}
        self.assertIn(site, recorded.sites)
        self.assertEqual(recorded.names[site][:2], ["allocate", "call"])
        self.assertFalse(live(call for call in by_thread(recorded.events).values() for call in call
                              if call.kind != "host"))
        text = self.summary(next(self.folder.glob("*.rec")))
        self.assertIn("device:1", text)
        self.assertIn("recorded.cpp:", text)

    def test_killed(self):
        ran = self.run_recorded(4, 500, "kill")
        self.assertEqual(ran.returncode, -signal.SIGKILL)
        [recorded] = self.recordings()
        self.check_calls(calls_of(ran.stdout), recorded, whole=False)
        self.assertFalse(recorded.ended)
        self.assertIn("was killed, still runs", self.summary(next(self.folder.glob("*.rec"))))

    def test_each_child_has_a_file(self):
        ran = self.run_recorded(4, 200, "fork")
        self.assertEqual((ran.returncode, other_lines(ran)), (0, []))
        recordings = {recorded.pid: recorded for recorded in self.recordings()}
        children = list(self.folder.glob("*.calls"))
        self.assertEqual(len(recordings), len(children) + 1)
        self.assertEqual(len(children), 16)
        for child in children:
            self.check_calls(calls_of(child.read_text()), recordings.pop(int(child.stem)))
        [recorded] = recordings.values()
        self.check_calls(calls_of(ran.stdout), recorded, host=False)

    def test_thinned(self):
        ran = self.run_recorded(4, 150_000, "churn", CISTERN_RECORD_MAX="4MiB")
        self.assertEqual((ran.returncode, other_lines(ran)), (0, []))
        [path] = self.folder.glob("*.rec")
        recorded = recording.Recording(path)
        self.assertGreater(recorded.thinned_events, 100_000)
        self.assertEqual((recorded.lost_events, recorded.stopped), (0, 0))
        self.assertLess(path.stat().st_size, (4 << 20) + (64 << 10))
        calls, threads = calls_of(ran.stdout), by_thread(recorded.events)
        late = by_thread(event for event in recorded.events if event.time >= recorded.thinned_until)
        for thread, made in calls.items():
            gpu, seen = of_gpu(made), of_gpu(late[thread])
            self.assertEqual(gpu[len(gpu) - len(seen):], seen)
            self.assertEqual(live(gpu), live(of_gpu(threads[thread])))
        self.assertGreater(sum(map(len, late.values())), 100_000)
        self.assertIn("THINNED", self.summary(path))

    def test_live_memory_is_the_reports(self):
        """Bytes and blocks of each kind of GPU memory, exactly."""
        for way in ("churn", "fork"):
            with self.subTest(way):
                for file in self.folder.iterdir():
                    file.unlink()
                ran = self.run_recorded(4, 300, way, CISTERN_REPORT="report.json", CISTERN_REPORT_FORMAT="json")
                self.assertEqual(ran.returncode, 0)
                report = json.loads((self.folder / "report.json").read_text())
                [recorded] = [one for one in self.recordings() if one.pid == report["cistern"]["pid"]]
                kinds = collections.defaultdict(lambda: [0, 0])
                for (kind, _), size in live(in_order(recorded.events)).items():
                    kinds[kind][0] += size
                    kinds[kind][1] += 1
                for kind in ("device:0", "device:1", "pinned"):
                    figures = report["kinds"][kind]
                    self.assertEqual(kinds[kind], [figures["live_bytes"], figures["live_blocks"]],
                                     f"{kind}, seed {SEED}")

    def test_opencl(self):
        ran = self.run_program(LEAKY, path="one.rec")
        self.assertEqual(ran.returncode, 0)
        [recorded] = self.recordings()
        opencl = [Call(event.type, event.kind, event.address, event.bytes) for event in recorded.events
                  if event.kind == "opencl"]
        self.assertEqual(sum(call.type == "allocation" for call in opencl), 56)
        self.assertEqual(len(live(opencl)), 6)  # one of them, released, lives on in its sub-buffers

    def test_samples_of_host_memory(self):
        self.run_program("/usr/bin/python3", "-c", "x = [bytes(1000) for _ in range(100000)]", CISTERN_SITES="gpu")
        [recorded] = self.recordings()
        self.assertEqual(recorded.host_sample, 512 << 10)
        weighted = sum(event.bytes * event.weight / 256 for event in recorded.events if event.type == "allocation")
        self.assertGreater(weighted, 60e6)
        self.assertLess(weighted, 180e6)


KEPT_BYTES = 4321  # of hard.cpp's blocks


class Hard(Recorded):
    """The recording of a process can be read, however that ends or forks, and has each block that it kept."""

    def run_hard(self, way, *, code=0, children=False, path="%p.rec", **options):
        """The recording of the process; those of its children need only be readable."""
        ran = self.run_program(HARD, way, self.folder / path, path=path, CISTERN_REPORT="none", **options)
        self.assertEqual((ran.returncode, ran.stderr), (code, ""), way)
        recordings = {recorded.pid: recorded for recorded in self.recordings()}
        for file in sorted(self.folder.glob("*.rec"))[:4]:
            self.summary(file)
        if not children:
            self.assertEqual(len(recordings), 1, way)
        recorded = recordings[min(recordings)]
        kept = sum(size == KEPT_BYTES for size in live(in_order(recorded.events)).values())
        self.assertEqual(kept, int(ran.stdout), way)
        return recorded

    def test_threads_come_and_go(self):
        recorded = self.run_hard("threads")
        self.assertGreater(len(recorded.threads), 1000)
        self.assertEqual(recorded.lost_events, 0)

    def test_children(self):
        for way in ("fork", "fork-unseen", "spawn", "clone"):
            with self.subTest(way):
                for file in self.folder.glob("*.rec"):
                    file.unlink()
                self.assertEqual(self.run_hard(way, children=True).lost_events, 0)

    def test_signal_handlers(self):
        for way in ("fork-in-handler", "fork-in-handler-beside-threads", "allocate-in-handler"):
            with self.subTest(way):
                for file in self.folder.glob("*.rec"):
                    file.unlink()
                self.run_hard(way, children=True)

    def test_ends_beside_threads(self):
        for way, code, ended in (("exit", 3, True), ("quick_exit", 3, True), ("_exit", 3, True),
                                 ("abort", -signal.SIGABRT, False), ("kill", -signal.SIGKILL, False),
                                 ("segv", -signal.SIGSEGV, False)):
            with self.subTest(way):
                for file in self.folder.glob("*.rec"):
                    file.unlink()
                self.assertEqual(bool(self.run_hard(way, code=code).ended), ended)

    def test_descriptors_are_the_programs(self):
        ran = self.run_program(HARD, "close", self.folder / "others", path="one.rec")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        [recorded] = self.recordings()
        self.assertTrue(recorded.ended)

    def test_locked_memory(self):
        self.run_hard("lock")

    def test_failed_requests(self):
        recorded = self.run_hard("too-much")
        failed = [event for event in recorded.events if event.type == "failed"]
        self.assertEqual([(event.kind, event.bytes) for event in failed], [("host", 1 << 50), ("host", (1 << 64) - 1)])
        self.assertEqual({recorded.names[event.site][0] for event in failed}, {"ask_too_much"})

    def test_a_file_that_somebody_takes_away(self):
        for way in ("remove", "rename", "replace"):
            with self.subTest(way):
                for file in self.folder.iterdir():
                    file.unlink()
                ran = self.run_program(HARD, way, self.folder / "one.rec", path="one.rec")
                self.assertEqual((ran.returncode, ran.stdout), (0, "101\n"))
                self.assertRegex(ran.stderr, r"^cistern: .*/one.rec could not grow: No such file or directory\n$")
                if way == "replace":
                    self.assertEqual((self.folder / "one.rec").read_text(), "mine")


class Paths(Recorded):
    def test_no_file_is_replaced(self):
        (self.folder / "one.rec").write_text("mine")
        ran = self.run_program("/usr/bin/python3", "-c", "", path="one.rec")
        [other] = set(self.folder.glob("*.rec")) - {self.folder / "one.rec"}
        self.assertEqual((self.folder / "one.rec").read_text(), "mine")
        self.assertIn(f"one.rec was there before; the recording is in {other}\n", ran.stderr)
        recording.Recording(other)

    def test_a_program_that_executes_another(self):
        self.run_program("/usr/bin/python3", "-c", "import os; os.execv('/usr/bin/python3', ['python3', '-c', ''])")
        first, second = self.recordings()
        self.assertEqual(first.pid, second.pid)
        self.assertEqual(sorted([bool(first.ended), bool(second.ended)]), [False, True])

    def test_no_such_folder(self):
        ran = self.run_program("/usr/bin/python3", "-c", "print(1)", path="missing/%p.rec")
        self.assertEqual((ran.returncode, ran.stdout), (0, "1\n"))
        self.assertRegex(ran.stderr, r"^cistern: cannot record to /.*/missing/\d+.rec: No such file or directory\n$")

    def test_what_is_no_file(self):
        os.mkfifo(self.folder / "pipe")
        (self.folder / "folder").mkdir()
        for path in ("/dev/null", "pipe", "folder"):
            ran = self.run_program("/usr/bin/python3", "-c", "print(1)", path=path)
            self.assertEqual((ran.returncode, ran.stdout), (0, "1\n"))
            self.assertRegex(ran.stderr, rf"^cistern: cannot record to (/.*)?{path}: it is not a file\n$")
        self.assertFalse(os.path.exists(f"/dev/null.{os.getpid()}"))

    def test_programs_of_one_path_say_nothing(self):
        ran = self.run_program("/bin/sh", "-c", "ls; ls; exec ls", path="one.rec")
        self.assertEqual((ran.returncode, ran.stderr.count("was there before")), (0, 1))  # the one that executed
        self.assertEqual(len(self.recordings()), 4)
        ran = self.run_program("/bin/sh", "-c", "ls; exec ls", path="%p.rec")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))

    def test_a_limit_of_files(self):
        ran = self.run_program("/usr/bin/python3", "-c", "for _ in range(200000): bytes(1000)",
                               before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
        self.assertEqual(ran.returncode, 0)
        self.assertRegex(ran.stderr, r"^cistern: .*\.rec could not grow: File too large\n$")
        [recorded] = self.recordings()
        self.assertTrue(recorded.stopped)
        self.assertGreater(len(recorded.events), 1000)

    def test_few_system_calls(self):
        ran = self.run_program("/usr/bin/python3", "-c", "", CISTERN_SYSTEM_CALLS="few")
        self.assertEqual(ran.returncode, 0)
        self.assertEqual(self.recordings(), [])

    def test_run(self):
        ran = subprocess.run([str(CISTERN), "run", "--record=8MiB", "-o", "out", "--", "/usr/bin/python3", "-c",
                              "bytes(10_000_000)"],
                             check=False, capture_output=True, text=True, cwd=self.folder,
                             env={**os.environ, "LIBCISTERN_LIBRARY": str(SHIM)})
        self.assertEqual(ran.returncode, 0, ran.stderr)
        [path] = (self.folder / "out").glob("*.rec")
        self.assertIn("/usr/bin/python3 -c", self.summary(path))

    def test_run_of_a_killed_program(self):
        ran = subprocess.run([str(CISTERN), "run", "--record", "--sites", "all", "-o", "out", "--",
                              "/usr/bin/python3", "-c", "import os; os.kill(os.getpid(), 9)"],
                             check=False, capture_output=True, text=True, cwd=self.folder,
                             env={**os.environ, "LIBCISTERN_LIBRARY": str(SHIM)})
        [path] = (self.folder / "out").glob("*.rec")
        self.assertEqual(ran.stderr, "cistern: no GPU memory was used\ncistern: next: cistern html out\n")
        self.summary(path)

    def test_what_is_no_recording(self):
        path = self.folder / "bad.rec"
        self.run_program("/usr/bin/python3", "-c", "", path="good.rec")
        good = (self.folder / "good.rec").read_bytes()
        for data, why in ((good[:3000], "was cut off"), (good[:8] + b"\2" + good[9:], "newer version"),
                          (good[:HEADER] + b"\xff" * 4 + good[HEADER + 4:], "damaged")):
            path.write_bytes(data)
            shown = subprocess.run([str(CISTERN), "report", str(path)], check=False, capture_output=True, text=True)
            self.assertEqual((shown.returncode, shown.stdout), (2, ""))
            self.assertRegex(shown.stderr, rf"^cistern: .*bad.rec .*{why}.*\n$")


HEADER = recording.HEADER

if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[7:]])
