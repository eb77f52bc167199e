"""Recordings through the command. In a real browser, the page shows at each moment what the events say, which are read
here by the format's page. The other commands take a recording as they take a report."""
import collections
import csv
import io
import json
import os
import pathlib
import pickle
import pickletools
import signal
import subprocess
import sys
import tempfile
import unittest

from export_test import perfetto_protos
from pages import ARGUMENTS, BrowserTest, cistern, main

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "recording"))
import recording


ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def added(amounts):
    sums = collections.defaultdict(lambda: (0, 0))
    for key, blocks, size in amounts:
        sums[key] = sums[key][0] + blocks, sums[key][1] + size
    return dict(sums)


class Recorded(recording.Recording):
    """With what is live at a moment: {(kind, call, functions): (blocks, bytes)}."""
    def seconds(self, time):
        return (self.zero + time * self.ns_per_tick) * 1e-9

    def bytes_at_the_end(self, kinds):
        return sum(size for (kind, *_), (_, size) in self.live_at(1e9).items() if kind.startswith(kinds))

    def live_at(self, moment_s):
        blocks = {}
        for event in self.events:
            if self.seconds(event.time) > moment_s:
                break
            if event.type == "allocation":
                blocks[event.kind, event.address] = (event.site, event.bytes)
            elif event.type == "free":
                blocks.pop((event.kind, event.address), None)
        call = {0: ""} | {site: call for site, (call, _) in self.sites.items()}
        return added(((kind, call[site], tuple(self.names.get(site, ()))), 1, size)
                     for (kind, _), (site, size) in blocks.items())


class Records:
    def record(self, way="end", calls=400, threads=3, **options):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("CISTERN", "LD_"))}
        subprocess.run([ARGUMENTS.cuda_program, str(threads), str(calls), "1", way], check=way != "kill",
                       cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300,
                       env=clean | {"LD_PRELOAD": str(ARGUMENTS.shim), "LD_LIBRARY_PATH": ARGUMENTS.cuda_libraries,
                                    "CISTERN_REPORT": "none", "CISTERN_RECORD": "one.rec", "CISTERN_SITES": "all",
                                    **options})
        return self.folder / "one.rec"


class Page(Records, BrowserTest):
    def open(self, *inputs, options=(), **view):
        page = self.folder / "page.html"
        cistern("html", *inputs, "-o", page, *options)
        self.load(page, **view)
        return page

    def rows(self):
        """{(kind, call, functions): (blocks, bytes)} of what the table has now."""
        return added(((kind, call, tuple(stack)), blocks, size) for kind, call, stack, blocks, size in self.browser.run(
            "table.rows.map(row => [row.kind, row.api ?? '', stackOf(row, data).map(frame => frame.function ?? ''), "
            "row.blocks, row.bytes])"))

    def moments(self):
        return self.browser.run("scope.moments.map(({at_s, peak_of}) => [at_s, peak_of ?? ''])")

    def press_at(self, share, *shares):
        box = self.browser.run("(({left, top, width}) => [left, top, width])(document.querySelector('#time canvas')"
                               ".getBoundingClientRect())")
        for kind, at in (("mousePressed", share), *(("mouseMoved", at) for at in shares),
                         ("mouseReleased", (share, *shares)[-1])):
            self.browser.call("Input.dispatchMouseEvent", type=kind, x=box[0] + at * box[2], y=box[1] + 30,
                              button="left", buttons=1, clickCount=1)

    def assert_shows_what_was_live(self, recorded, at_s):
        live = recorded.live_at(at_s)
        self.assertEqual(self.rows(), live)
        self.assertEqual(self.browser.run("flame.root.value"), sum(size for _, size in live.values()))

    def test_each_moment_is_what_the_events_say(self):
        path = self.record()
        recorded = Recorded(path)
        self.open(path)
        moments = self.moments()
        self.assertEqual([at_s for at_s, _ in moments], sorted(at_s for at_s, _ in moments))
        self.assertEqual({peak for _, peak in moments} - {""}, {"device:0", "device:1", "pinned", "host"})
        self.browser.run("document.querySelector('#time canvas').focus()")
        self.browser.press("Home")
        for i, (at_s, _) in enumerate(moments):
            self.assertEqual(self.browser.run("state.moment"), i)
            self.assert_shows_what_was_live(recorded, at_s)
            self.browser.press("ArrowRight")
        self.assertEqual(self.browser.run("state.moment"), len(moments) - 1)
        self.assertEqual(self.browser.complaints, [])

    def test_a_moment_at_which_nothing_was_live(self):
        path = self.record(CISTERN_SITES="gpu", CISTERN_HOST_SAMPLE="0")
        self.open(path)
        self.assertEqual(Recorded(path).live_at(self.moments()[0][0]), {})
        self.browser.run("document.querySelector('#time canvas').focus()")
        self.browser.press("Home")
        self.assertEqual((self.browser.run("state.moment"), self.rows()), (0, {}))
        self.assertEqual(self.browser.complaints, [])

    def test_a_press_and_a_drag_choose(self):
        path = self.record()
        recorded = Recorded(path)
        self.open(path)
        moments, end_s = self.moments(), self.browser.run("scope.wall_s")
        for shares in ((0.5,), (0.2, 0.4, 0.8)):
            self.press_at(*shares)
            nearest = min(moments, key=lambda moment: abs(moment[0] - shares[-1] * end_s))
            at_s = moments[self.browser.run("state.moment")][0]
            self.assertAlmostEqual(at_s, nearest[0], delta=end_s / 200)
            self.assert_shows_what_was_live(recorded, at_s)
            said = self.browser.run("document.querySelector('[data-view=moment]').textContent")
            self.assertTrue(said.startswith("live at "), said)
        self.browser.press("Escape")
        self.assertIsNone(self.browser.run("document.querySelector('[data-view=moment]')"))

    def test_peaks_are_those_of_the_kinds(self):
        self.open(self.record())
        for i, (_, peak_of) in enumerate(self.moments()):
            if not peak_of:
                continue
            self.browser.run(f"timeline.setMoment({i})")
            live = sum(size for (kind, *_), (_, size) in self.rows().items() if kind == peak_of)
            self.assertEqual(live, self.browser.run(f"scope.kinds['{peak_of}'].peak_bytes"))

    def test_a_killed_process(self):
        path = self.record("kill")
        recorded = Recorded(path)
        self.open(path)
        self.assertIn("was killed, still runs",
                      self.browser.run("document.querySelector('#verdict [data-missing]').textContent"))
        self.assertRegex(self.browser.run("document.querySelector('.headline').textContent"), "live$")
        self.browser.run("timeline.setMoment(scope.moments.length - 1)")
        model = collections.Counter()
        for (kind, *_), (_, size) in recorded.live_at(1e9).items():
            model[kind] += size
        shown = collections.Counter()
        for (kind, *_), (_, size) in self.rows().items():
            shown[kind] += size
        self.assertEqual(shown, model)

    def test_a_thinned_recording_says_so(self):
        path = self.record("churn", calls=100_000, CISTERN_RECORD_MAX="4MiB")
        self.open(path)
        self.assertIn(" are left out, since the file was full",
                      self.browser.run("document.querySelector('#verdict [data-missing]').textContent"))

    def test_a_small_page_has_fewer_moments(self):
        path = self.record()
        whole = self.open(path).stat().st_size
        everything = self.browser.run("[scope.moments.length, scope.single.recording.sites.length]")
        page = self.open(path, options=["--max-size", "110kb"])
        self.assertLess(page.stat().st_size, min(whole, 110_000))
        less = self.browser.run("[scope.moments.length, scope.single.recording.sites.length]")
        self.assertTrue(less[0] < everything[0] or less[1] < everything[1], (everything, less))
        self.assertRegex(self.browser.run("document.getElementById('notes').textContent"),
                         "are sums by kind|moments? are left out|moments have")

    def test_it_fits_every_width_in_both_themes(self):
        path = self.record()

        def show(**view):
            self.open(path, **view)
            self.browser.run("timeline.setMoment(40)")
        self.assert_fits(show, "recording")


class Commands(Records, unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def export(self, way, path):
        out = self.folder / f"x.{way}"
        cistern("export", "--to", way, path, "-o", out)
        return out

    def test_a_folder_has_each_process_once(self):
        path = self.record(CISTERN_REPORT="one.json", CISTERN_REPORT_FORMAT="json")
        self.assertEqual(len(json.loads(cistern("report", self.folder, "--json").stdout)), 5)
        self.assertEqual(json.loads(cistern("report", self.folder, "--json").stdout)["processes"], 1)
        (self.folder / "one.json").rename(self.folder / "rank-3-12.json")
        for name, processes in (("rank-3-12.12.rec", 1), ("rank-3-12.12-2.rec", 1), ("rank-3-12.3.rec", 2),
                                ("two.rec", 2)):
            path = path.rename(self.folder / name)
            self.assertEqual(json.loads(cistern("report", self.folder, "--json").stdout)["processes"], processes)
        report = (self.folder / "rank-3-12.json")
        sound = report.read_text()
        report.write_text(sound[:1000])  # its recording stands in
        path = path.rename(self.folder / "rank-3-12.12.rec")
        self.assertEqual(json.loads(cistern("report", self.folder, "--json").stdout)["processes"], 1)
        report.unlink()
        self.assertEqual(json.loads(cistern("report", self.folder, "--json").stdout)["processes"], 1)

    def test_a_killed_run_has_a_verdict(self):
        done = subprocess.run([ARGUMENTS.command, "run", "--record", "--sites", "all", "-o", "out", "--",
                               ARGUMENTS.cuda_program, "2", "300", "1", "kill"], cwd=self.folder, capture_output=True,
                              text=True, check=False, timeout=300,
                              env={**os.environ, "LIBCISTERN_LIBRARY": str(ARGUMENTS.shim),
                                   "LD_LIBRARY_PATH": ARGUMENTS.cuda_libraries})
        self.assertEqual(done.returncode, -signal.SIGKILL)
        self.assertRegex(done.stderr, r"cistern: \d+ blocks, .* live at \d sites?; \d+ requests for memory failed\n"
                                      r"cistern: next: cistern html out\n")
        self.assertIn("was killed, still runs", (self.folder / "out" / "summary.txt").read_text())
        cistern("html", self.folder / "out")
        again = cistern("report", self.folder / "out", "--json")
        self.assertEqual(json.loads(again.stdout)["processes"], 1)

    def test_it_agrees_with_the_report(self):
        # Calls of threads at the same time have no order: their peaks may differ.
        path = self.record("churn", threads=1, CISTERN_REPORT="one.json", CISTERN_REPORT_FORMAT="json")
        report = json.loads((self.folder / "one.json").read_text())
        kinds = json.loads(cistern("report", path, "--json").stdout)["kinds"]
        for kind in ("device:0", "device:1", "pinned"):
            for name, place in (("live_blocks",) * 2, ("live_bytes",) * 2, ("allocations",) * 2, ("failed",) * 2,
                                ("peak_bytes", "peak_bytes_max")):
                self.assertEqual(kinds[kind][place], report["kinds"][kind][name], (kind, name))
        self.assertIn("device:0", cistern("report", path, "--by", "kind").stdout)
        changes = json.loads(cistern("diff", self.folder / "one.json", path, "--by", "kind", "--json").stdout)
        for change in changes["changes"]:  # a recording does not know which of it is lost
            if change["name"] != "host":
                self.assertEqual(change["before"]["bytes"], change["after"]["bytes"])

    def test_every_format_is_written(self):
        path = self.record("churn")
        live = sum(size for _, size in Recorded(path).live_at(1e9).values())
        self.assertGreater(live, 0)
        for way in ("folded", "heaptrack", "perfetto", "pprof", "speedscope", "csv"):
            self.assertGreater(self.export(way, path).stat().st_size, 100)
        lines = (self.folder / "x.folded").read_text().splitlines()
        self.assertEqual(sum(int(line.rsplit(" ", 1)[1]) for line in lines), live)
        with (self.folder / "x.csv").open() as lines:
            self.assertEqual(sum(int(row["live_bytes"]) for row in csv.DictReader(lines)), live)
        cistern("report", path, "--full", code=2)

    def test_rmm(self):
        """By the rules of RMM's replay: what is freed was allocated with that size, and is not freed again."""
        path = self.record("churn", calls=2000)
        recorded, live = Recorded(path), {}
        with self.export("rmm", path).open() as lines:
            self.assertEqual(lines.readline(), "Thread,Time,Action,Pointer,Size,Stream\n")
            rows = list(csv.reader(lines))
        of_device = [event for event in recorded.events if event.kind.startswith("device:") and event.type != "copy"]
        self.assertEqual(len(rows), len(of_device))
        for (thread, time, action, pointer, size, stream), event in zip(rows, of_device):
            self.assertEqual(int(thread), event.thread)
            self.assertRegex(time, r"^\d\d:\d\d:\d\d\.\d{6}$")
            self.assertEqual((int(pointer, 16), int(stream, 16)), (event.address, 0))
            if action == "free":
                self.assertEqual(live.pop(pointer), size)
            else:
                self.assertEqual(action, "allocate")
                self.assertNotIn(pointer, live)
                live[pointer] = size
        self.assertEqual(sum(map(int, live.values())), recorded.bytes_at_the_end("device:"))
        failed = csv.DictReader(io.StringIO(cistern("export", "--to", "rmm", self.again("end")).stdout))
        self.assertGreater(sum(row["Action"] == "allocate failure" for row in failed), 10)

    def again(self, way, **options):
        for path in self.folder.glob("*.rec"):
            path.unlink()
        return self.record(way, **options)

    def test_memory_viz(self):
        path = self.record("kill", calls=2000)
        recorded, out = Recorded(path), self.export("memory_viz", path)
        known = set("PROTO MARK STOP NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 SHORT_BINUNICODE BINUNICODE "
                    "EMPTY_DICT EMPTY_LIST TUPLE2 APPENDS SETITEMS BINGET LONG_BINGET MEMOIZE".split())
        self.assertEqual({code.name for code, _, _ in pickletools.genops(out.read_bytes())} - known, set())
        snapshot = pickle.loads(out.read_bytes())
        devices = {0: "device:0", 1: "device:1", 2: "pinned"}
        for number, kind in devices.items():
            events = [event for event in recorded.events if event.kind == kind]
            self.assertEqual([(entry["action"], entry.get("addr", 0)) for entry in snapshot["device_traces"][number]],
                             [({"allocation": "alloc", "free": "free_completed", "failed": "oom"}[event.type],
                               event.address) for event in events])
            self.assertEqual(sum(segment["total_size"] for segment in snapshot["segments"]
                                 if segment["device"] == number), recorded.bytes_at_the_end(kind))
        self.assertEqual(len(snapshot["device_traces"]), 3)
        torch = ROOT / "build" / "python-packages" / "torch" / "bin" / "python"
        if not torch.exists():
            self.skipTest("no torch: its own tools read nothing")
        done = subprocess.run([torch, "-m", "torch.cuda._memory_viz", "trace", out], capture_output=True, text=True,
                              check=True, timeout=300)
        for events in snapshot["device_traces"]:
            self.assertIn(f"\n{len(events)} entries\n", done.stdout)
        subprocess.run([torch, "-c", "import pickle, sys; from torch.cuda import _memory_viz as viz; "
                        "one = pickle.load(open(sys.argv[1], 'rb')); keep = lambda lines: lines; "
                        "viz.segments(one, keep), viz.compare(one['segments'], one['segments'], keep), viz.segsum(one)",
                        out], check=True, capture_output=True, timeout=300)

    def test_perfetto(self):
        protos = perfetto_protos()
        if not protos:
            self.skipTest("no perfetto package")
        path = self.record("end")
        recorded, trace = Recorded(path), protos.Trace()
        trace.ParseFromString(self.export("perfetto", path).read_bytes())
        heaps, times, instants = collections.defaultdict(dict), collections.defaultdict(list), []
        for packet in trace.packet:
            for dump in packet.profile_packet.process_dumps:
                if dump.heap_name.endswith(" at the peak"):
                    continue
                times[dump.heap_name].append(dump.timestamp)
                for sample in dump.samples:
                    before = heaps[dump.heap_name].get(sample.callstack_id)
                    self.assertTrue(not before or (sample.self_allocated >= before.self_allocated and
                                                   sample.self_freed >= before.self_freed))
                    heaps[dump.heap_name][sample.callstack_id] = sample
            if packet.track_event.type == protos.TrackEvent.TYPE_INSTANT:
                instants.append((packet.timestamp, packet.track_event))
        for kind, samples in heaps.items():
            live = sum(sample.self_allocated - sample.self_freed for sample in samples.values())
            self.assertEqual(live, recorded.bytes_at_the_end(kind), kind)
            allocated = sum(event.bytes for event in recorded.events
                            if (event.kind, event.type) == (kind, "allocation"))
            self.assertGreaterEqual(allocated, sum(sample.self_allocated for sample in samples.values()))
            self.assertGreater(len(times[kind]), 10)
        failed = [event for event in recorded.events if event.type == "failed"]
        self.assertEqual([time // 1000 for time, _ in instants],
                         [int(recorded.seconds(event.time) * 1e9) // 1000 for event in failed])
        self.assertTrue(all(event.callstack_iid for _, event in instants))
        self.assertEqual(instants[0][1].name, "device:0: 1.0 PiB failed")

    def test_what_is_refused(self):
        """One line, exit code 2 and no file, whatever is read."""
        good = self.record().read_bytes()
        bad, out = self.folder / "bad.rec", self.folder / "out"
        for data, why in ((good[:3000], "cut off"), (good[:8] + b"\2" + good[9:], "newer version"),
                          (good[:4096] + b"\xff" * 4 + good[4100:], "damaged"), (good[:-1], "cut off")):
            bad.write_bytes(data)
            for words in (("html",), ("export", "--to", "pprof")):
                refused = cistern(*words, bad, "-o", out, code=2)
                self.assertEqual(refused.stdout, "")
                self.assertRegex(refused.stderr, rf"^cistern: .*bad.rec .*{why}.*\n$")
                self.assertFalse(out.exists())
        same = cistern("html", self.folder / "one.rec", "-o", self.folder / "one.rec", code=2)
        self.assertIn("a file that was read", same.stderr)


if __name__ == "__main__":
    main()
