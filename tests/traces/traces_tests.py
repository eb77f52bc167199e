"""Traces of buffers. A seed makes the same trace each time, and every allocation has its free. Logs of RMM, Umpire and
PyTorch become the lifetimes that they tell. A file that cannot be read gives one line that names the place.

    traces_tests.py ROOT REPLAY [TEST...]"""
import contextlib
import io
import json
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
REPLAY = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "bench"))
import trace_formats  # noqa: E402
import traces  # noqa: E402

RMM = "Thread,Time,Action,Pointer,Size,Stream\n"


class Made(unittest.TestCase):
    def test_a_seed_gives_the_same_trace(self):
        for name, (make, _) in traces.TRACES.items():
            with self.subTest(name):
                self.assertEqual(make(random.Random(7)), make(random.Random(7)))

    def test_another_seed_gives_another_trace(self):
        for make in (traces.serving(True), traces.serving(False), traces.experts, traces.sharded_training,
                     traces.small_among_large, traces.analytics):
            self.assertNotEqual(make(random.Random(7)), make(random.Random(8)))

    def test_every_allocation_has_its_free(self):
        for name, (make, _) in traces.TRACES.items():
            with self.subTest(name):
                live = peak = 0
                events = []
                for row in make(random.Random(3)):
                    _, lower, upper, size, *streams = (int(field) for field in row)
                    self.assertLess(lower, upper)
                    self.assertGreater(size, 0)
                    self.assertIn(len(streams), (0, 2))
                    events += [(lower, size), (upper, -size)]
                for _, size in sorted(events):
                    live += size
                    peak = max(peak, live)
                self.assertEqual(live, 0)
                self.assertLess(peak, 16 << 30)

    def test_sharded_training_frees_what_it_gathers_on_the_compute_stream(self):
        rows = traces.sharded_training(random.Random(3))
        self.assertTrue([row for row in rows if (row[4], row[5]) == (1, 0)])
        self.assertTrue([row for row in rows if (row[4], row[5]) == (0, 1)])


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "log"

    def rows(self, text, said=""):
        self.file.write_bytes(text if isinstance(text, bytes) else text.encode())
        noise = io.StringIO()
        with contextlib.redirect_stderr(noise):
            rows = trace_formats.rows_of(self.file)
        self.assertEqual(noise.getvalue(), said and f"{self.file}: {said}\n")
        return rows

    def malformed(self, text, line, why):
        with self.assertRaises(trace_formats.Malformed) as raised:
            self.rows(text)
        said = str(raised.exception)
        self.assertTrue(said.startswith(f"{self.file}:{line}: "), said)
        self.assertIn(why, said)
        self.assertNotIn("\n", said)

    # --- RMM
    def test_rmm(self):
        rows = self.rows(RMM + "12,09:30:00:000001,allocate,0x7f00,1000,0\n"
                               "12,09:30:00:000002,allocate,0x8f00,2000,55d0\n"
                               "13,09:30:00:000003,free,0x7f00,1000,55d0\n"
                               "12,09:30:00:000004,allocate failure,(nil),99999,0\n"
                               "12,09:30:00:000005,allocate,(nil),0,0\n"
                               "12,09:30:00:000006,allocate,0x7f00,3000,0\n"
                               "12,09:30:00:000007,free,0x7f00,3000,0\n")
        self.assertEqual(rows, [[0, 1, 3, 1000, 0, 1], [1, 2, 6, 2000, 1, 1], [2, 4, 5, 3000, 0, 0]])

    def test_rmm_that_began_late(self):
        rows = self.rows(RMM + "1,t,free,0x1,8,0\n1,t,allocate,0x2,8,0\n",
                         "1 frees of memory that was allocated before the log began")
        self.assertEqual(rows, [[0, 1, 2, 8]])

    def test_rmm_that_lacks_a_free(self):
        rows = self.rows(RMM + "1,t,allocate,0x2,8,0\n1,t,allocate,0x2,16,0\n",
                         "1 allocations where the log has memory already")
        self.assertEqual(rows, [[0, 1, 2, 8], [1, 3, 4, 16]])

    def test_rmm_malformed(self):
        self.malformed(RMM + "1,t,allocate,0x2,8,0\n1,t,allocate,0x2\n", 3, "a line is Thread,Time")
        self.malformed(RMM + "1,t,allocate,here,8,0\n", 2, "a line is Thread,Time")
        self.malformed(RMM + "1,t,move,0x2,8,0\n", 2, "'move'")
        self.malformed(RMM, 1, "nothing is allocated")

    # --- Umpire
    def umpire(self, name, strings, size=None, replay=True):
        event = {"category": "operation", "name": name, "string_args": strings, "timestamp": 1}
        if size is not None:
            event["numeric_args"] = {"size": size}
        if replay:
            event["tags"] = {"replay": "true"}
        return json.dumps(event) + "\n"

    def test_umpire(self):
        at = lambda pointer: {"allocator_ref": "0xa", "pointer": pointer}
        rows = self.rows(self.umpire("make_memory_resource", {"introspection": "x"}) +
                         self.umpire("allocate", at("0x10"), 128) +
                         self.umpire("named_allocate", {**at("0x20"), "allocation_name": "x"}, 256) +
                         self.umpire("allocate", at("0x30"), 64, replay=False) +
                         self.umpire("deallocate", at("0x10")) +
                         self.umpire("reallocate", {"current_ptr": "0x20"}, 512) +
                         self.umpire("reallocate", {"new_ptr": "0x40"}, replay=False) +
                         self.umpire("reallocate", {"current_ptr": "0x0"}, 32) +
                         self.umpire("allocate", at("0x50"), 32) +
                         self.umpire("reallocate", {"new_ptr": "0x50"}, replay=False) +
                         self.umpire("deallocate", at("0x40")))
        self.assertEqual(rows, [[0, 1, 3, 128], [1, 2, 4, 256], [2, 5, 7, 512], [3, 6, 8, 32]])

    def old(self, event, payload, result=None, rank=7):
        line = {"kind": "replay", "uid": rank, "timestamp": 1, "event": event, "payload": payload}
        return json.dumps(line | ({"result": result} if result else {})) + "\n"

    def test_umpire_before_2022(self):
        def allocate(pointer, size, rank=7):
            given = {"allocator_ref": "0xa", "size": size}
            return self.old("allocate", given, rank=rank) + self.old("allocate", given, {"memory_ptr": pointer}, rank)
        rows = self.rows("### licence\n" + self.old("version", {"major": 3}) +
                         self.old("makeMemoryResource", {"name": "HOST"}, "0xa") +
                         allocate("0x10", 128) + allocate("0x10", 64, rank=8) +
                         self.old("allocation_map_insert", {"ptr": "0x10"}) +
                         self.old("deallocate", {"memory_ptr": "0x10"}) +
                         self.old("reallocate", {"ptr": "0", "size": 4}) + allocate("0x20", 4) +
                         self.old("reallocate", {"ptr": "0", "size": 4}, {"memory_ptr": "0x20"}) +
                         self.old("reallocate", {"ptr": "0x20", "size": 12}) +
                         self.old("reallocate", {"ptr": "0x20", "size": 12}, {"memory_ptr": "0x20"}))
        self.assertEqual(rows, [[0, 1, 3, 128], [1, 2, 7, 64], [2, 4, 5, 4], [3, 6, 7, 12]])

    def test_umpire_malformed(self):
        good = self.umpire("allocate", {"pointer": "0x10"}, 128)
        self.malformed(good + '{"category": "operation"\n', 2, "no event of Umpire")
        self.malformed(good + "[]\n", 2, "no event of Umpire")
        self.malformed(good + self.umpire("allocate", {}, 1), 2, "KeyError: 'pointer'")
        self.malformed(self.old("allocate", {"size": "x"}, {"memory_ptr": "0x1"}), 1, "no event of Umpire")
        self.malformed(good + '{"name": ' + "[" * 100_000 + "\n", 2, "no event of Umpire")

    # --- PyTorch
    def snapshot(self, *devices):
        return pickle.dumps({"segments": [], "device_traces": [
            [{"action": action, "addr": address, "size": size, "stream": stream, "time_us": 1, "frames": []}
             for action, address, size, stream in events] for events in devices]})

    def test_torch(self):
        rows = self.rows(self.snapshot([], [("segment_alloc", 0, 20 << 20, 0), ("alloc", 16, 1000, 0),
                                            ("alloc", 2064, 3000, 94), ("free_requested", 16, 1000, 0),
                                            ("free_completed", 16, 1000, 0), ("alloc", 16, 500, 0)]))
        self.assertEqual(rows, [[0, 1, 3, 1000, 0, 0], [1, 2, 5, 3000, 1, 1], [2, 4, 5, 500, 0, 0]])

    def test_a_pickle_that_calls_something_is_refused(self):
        made = self.file.with_name("made")
        self.malformed(b"\x80\x04" + pickle.dumps(Caller(made)), 1, "a snapshot names nothing")
        self.assertFalse(made.exists())

    def test_torch_malformed(self):
        good = self.snapshot([("alloc", 16, 1000, 0)])
        self.malformed(good[:len(good) // 2], 1, "no memory snapshot of PyTorch")
        self.malformed(pickle.dumps([1]), 1, "no memory snapshot of PyTorch")
        self.malformed(pickle.dumps({"device_traces": []}), 1, "no memory snapshot of PyTorch")
        self.malformed(pickle.dumps({"device_traces": [[{"action": "alloc"}]]}), 1, "KeyError: 'addr'")
        self.malformed(self.snapshot([]), 1, "nothing is allocated")

    def test_something_else(self):
        self.malformed("hello\n", 1, "neither a log of RMM")
        self.malformed("", 1, "neither a log of RMM")
        self.assertIsNone(self.rows("id,lower,upper,size\n0,1,2,3\n"))
        with self.assertRaisesRegex(trace_formats.Malformed, "^/nowhere/log: No such file or directory$"):
            trace_formats.rows_of("/nowhere/log")


class Caller:
    def __init__(self, made):
        self.made = made

    def __reduce__(self):
        return pathlib.Path.touch, (self.made,)


class Replay(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "trace.csv"

    def run_replay(self, rows, policy, *options):
        if isinstance(rows, str):
            self.file.write_text(rows)
        else:
            traces.write(self.file, rows)
        return subprocess.run([REPLAY, self.file, policy, *options], capture_output=True, text=True)

    def found(self, *arguments):
        done = self.run_replay(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def test_figures(self):
        found = self.found([[0, 1, 3, 1000], [1, 2, 4, 512], [2, 3, 9, 512]], "driver", "--passes", "2")
        self.assertEqual((found["calls"], found["failed"], found["hits"], found["moved"]), (12, 0, 0, 0))
        self.assertEqual((found["live_peak_bytes"], found["need_bytes"]), (1512, 1512))
        self.assertEqual(found["reserved_peak_bytes"], 1536)
        self.assertEqual((found["driver"]["allocate"], found["driver"]["free"], found["driver_calls"]), (6, 6, 12))

    def test_an_allocation_that_fails_is_counted_and_not_freed(self):
        found = self.found([[0, 1, 3, 1000], [1, 2, 4, 1000]], "driver", "--memory", "1500")
        self.assertEqual((found["failed"], found["driver"]["free"], found["live_peak_bytes"]), (1, 1, 1000))

    def test_orders_differ_in_what_is_needed(self):
        rows = [[0, 1, 2, 1 << 20], [1, 2, 3, 1 << 20], [2, 3, 4, 1 << 20]]
        needs = {order: self.found(rows, "ranges", "--order", order, "--delay", "100")["need_bytes"] >> 20
                 for order in ("strict", "deferred", "stream")}
        self.assertEqual(needs, {"strict": 1, "deferred": 3, "stream": 1})
        two_streams = self.found(rows, "ranges", "--order", "stream", "--delay", "100", "--streams", "2")
        self.assertEqual(two_streams["need_bytes"], 2 << 20)

    def test_streams_of_the_file_are_kept(self):
        rows = [[0, 1, 2, 1 << 20, 0, 0], [1, 2, 3, 1 << 20, 3, 3]]
        found = self.found(rows, "torch", "--order", "stream", "--delay", "9")
        self.assertEqual(found["driver"]["allocate"], 2)

    def test_every_policy_runs_a_trace_without_a_failure(self):
        rows = traces.serving(False, seconds=60)(random.Random(1))
        offered = subprocess.run([REPLAY], capture_output=True, text=True).stderr.rpartition("policies:")[2].split()
        self.assertGreaterEqual(len(offered), 5)
        for policy in offered:
            for order in ("strict", "deferred", "stream"):
                found = self.found(rows, policy, "--order", order, "--delay", "20", "--streams", "2")
                self.assertEqual(found["failed"], 0)
                self.assertGreaterEqual(found["reserved_peak_bytes"], found["live_peak_bytes"])

    def test_malformed_traces(self):
        heading = "id,lower,upper,size\n"
        for text, line, why in (
                (heading + "a,1,2\n", 2, "a line is id,lower,upper,size[,stream[,freed_on]], in numbers"),
                (heading + "a,1,2,3\nb,1,2,x\n", 3, "a line is id"), (heading + "a,1,2,-3\n", 2, "a line is id"),
                (heading + "a,1,2,3,4,5,6\n", 2, "a line is id"), (heading + "\n", 2, "a line is id"),
                (heading + "a,2,2,8\n", 2, "a lifetime ends after it begins"),
                (heading + "a,1,2,99999999999999999\n", 2, "at most 2^46 bytes"),
                (heading + "a,1,2,99999999999999999999999\n", 2, "a line is id"),
                (heading + "a,1,2,8,65536\n", 2, "below 65536"), (heading, 1, "there is no buffer"),
                ("", 1, "there is no buffer")):
            done = self.run_replay(text, "driver")
            self.assertEqual((done.stdout, done.returncode), ("", 1))
            self.assertTrue(done.stderr.startswith(f"{self.file}:{line}: "), done.stderr)
            self.assertIn(why, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
        for place in ("/nowhere", self.file.parent):
            done = subprocess.run([REPLAY, place, "driver"], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (1, f"{place}:1: there is no buffer\n"))

    def policies(self, *arguments):
        """bench/policies.py, with the program of the tests as that of the benchmarks."""
        build = self.file.parent / "build"
        (build / "bench").mkdir(parents=True, exist_ok=True)
        (build / "bench" / "replay").unlink(missing_ok=True)
        (build / "bench" / "replay").symlink_to(REPLAY)
        return subprocess.run([sys.executable, ROOT / "bench" / "policies.py", build, *arguments], capture_output=True,
                              text=True)

    def test_a_table_of_policies(self):
        lines = self.file.with_name("lines")
        done = self.policies("--only", "eight phases, once", "--json", lines)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("RMM is not there (--rmm)\n", done.stdout)
        self.assertRegex(done.stdout, r"eight phases, once: 352\.0 MiB live, 128 calls\n  blocks +1\.091 +1\.6 ")
        self.assertRegex(done.stdout, r"\n  torch +5\.455 +50\.0 +- +- +- +5\.455 ")
        found = [json.loads(line) for line in lines.read_text().splitlines()]
        ours = {line["policy"] for line in found} - {"torch", "torch-expandable"}
        self.assertEqual(len(found), 9 * len(ours) + 6 + 6)

    def test_a_table_of_costs(self):
        done = self.policies("--only", "eight phases, once", "--costs", "--policy", "driver", "--policy", "torch")
        self.assertRegex(done.stdout, r"\n  driver +strict +128 +0 +0 +6\.4 +50\.00 ")
        self.assertRegex(done.stdout, r"\n  torch +strict +64 +0 +0 +3\.2 +25\.00 +0\.00 ")
        done = self.policies("--only", "eight phases, once", "--costs", "--measured", "--policy", "driver")
        self.assertRegex(done.stdout, r"\n  driver +strict +128 +0 +0 +4\.8 +37\.50 ")

    def test_the_smallest_device(self):
        traces.write(self.file, [[0, 1, 3, 1 << 30], [1, 2, 4, 1 << 30]])
        done = self.policies("--log", self.file, "--smallest", "--policy", "driver")
        self.assertRegex(done.stdout, r"trace\.csv\n  driver +1\.000 +1\.000 +1\.000\n$")

    def test_a_log_becomes_a_table(self):
        self.file.write_text(RMM + "1,t,allocate,0x10,1024,0\n1,t,free,0x10,1024,0\n")
        done = self.policies("--log", self.file, "--policy", "torch")
        self.assertIn("trace.csv: 0.0 MiB live, 2 calls\n", done.stdout)
        self.file.write_text("hello\n")
        done = self.policies("--log", self.file)
        self.assertEqual(done.stderr, f"{self.file}:1: neither a log of RMM, Umpire or PyTorch nor lifetimes "
                                      "(id,lower,upper,size)\n")
        self.assertEqual(done.returncode, 1)

    def test_wrong_arguments(self):
        for arguments in (["none"], ["driver", "--order", "any"], ["driver", "--delay", "-1"], ["driver", "more"],
                          ["driver", "--memory", "1x"]):
            done = self.run_replay([[0, 1, 2, 8]], *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, "policies: driver blocks ranges segments torch torch-expandable\n$")
        done = self.policies("--policy", "none")
        self.assertRegex(done.stderr, "^no policy none: there are driver, blocks, ranges, segments, torch, "
                                      "torch-expandable\n$")


if __name__ == "__main__":
    unittest.main()
