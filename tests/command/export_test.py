"""`cistern export` on reports that real programs wrote. Each format is opened by its own tool, and the sums that this
tool finds are those of the JSON report."""
import argparse
import collections
import csv
import gzip
import io
import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

import jsonschema

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGES = ROOT / "build" / "python-packages"
PERFETTO, PYARROW = PACKAGES / "perfetto", PACKAGES / "pyarrow"
ARGUMENTS = None
TIME_LIMIT_S = 120
VALUES = ("live", "lost", "peak")


class Expected:
    """Blocks and bytes by kind, from the JSON alone."""

    def __init__(self, report):
        self.report = report
        self.live, self.lost, self.peak = (collections.defaultdict(lambda: [0, 0]) for _ in range(3))
        for row in report["leaks"]:
            self.add(self.live, row["kind"], row["blocks"], row["bytes"])
            lost = row["class"] in ("lost", "indirectly lost") or (
                row["class"] == "held only by the driver" and row["kind"] != "host")
            if lost and not row.get("suppressed"):
                self.add(self.lost, row["kind"], row["blocks"], row["bytes"])
        rest = report.get("host_without_site", {"blocks": 0, "bytes": 0})
        self.add(self.live, "host", rest["blocks"], rest["bytes"])
        for row in report["at_peak"]:
            self.add(self.peak, row["kind"], row["peak_blocks"], row["peak_bytes"])
        for kind, figures in report["kinds"].items():
            if f"kinds.{kind}.peak_bytes" not in report["estimated"] and figures["peak_bytes"]:
                self.peak[kind][1] = figures["peak_bytes"]

    @staticmethod
    def add(sums, kind, blocks, bytes_):
        sums[kind][0] += blocks
        sums[kind][1] += bytes_

    def bytes_of(self, value):
        return {kind: sums[1] for kind, sums in getattr(self, value).items() if sums[1]}

    def total(self, value, figure=1):
        return sum(sums[figure] for sums in getattr(self, value).values())


def setUpModule():
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    ExportTest.folder = pathlib.Path(folder.name)
    ExportTest.report_folder = ExportTest.folder / "reports"
    ExportTest.report_folder.mkdir()
    programs = {"opencl": [ARGUMENTS.leaky], "python": [sys.executable, ROOT / "tests/demo/array_job.py"]}
    if ARGUMENTS.cuda:
        programs["cuda"] = [ARGUMENTS.cuda]
    for name, command in programs.items():
        report = ExportTest.report_folder / f"{name}.json"
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("CISTERN_", "LD_"))} | {
            "LD_PRELOAD": ARGUMENTS.shim, "LD_LIBRARY_PATH": ARGUMENTS.libraries, "CISTERN_SITES": "all",
            "CISTERN_REPORT": str(report), "CISTERN_REPORT_FORMAT": "json"}
        began = time.time()
        subprocess.run([str(part) for part in command], env=environment, stdout=subprocess.DEVNULL, check=True,
                       timeout=TIME_LIMIT_S)
        ExportTest.run_times[name] = began, time.time()
        ExportTest.reports[name] = Expected(json.loads(report.read_text()))


def of_each_report(test):
    """The test, as a subtest for each report."""
    def of_each(self):
        for name, expected in self.reports.items():
            with self.subTest(report=name):
                test(self, self.report_folder / f"{name}.json", expected)
    return of_each


class ExportTest(unittest.TestCase):
    folder = report_folder = None
    reports, run_times = {}, {}

    def execute(self, *command, status=0):
        done = subprocess.run([str(part) for part in command], capture_output=True, timeout=TIME_LIMIT_S,
                              cwd=self.folder)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def export(self, to, report, *more, status=0):
        return self.execute(ARGUMENTS.cistern, "export", "--to", to, report, *more, status=status)

    def need(self, tool, setup="scripts/setup"):
        if not shutil.which(tool):
            self.skipTest(f"no {tool} here ({setup})")

    def need_package(self, package):
        if not (package / "complete").exists():
            self.skipTest(f"no {package.parent.name}/{package.name} (scripts/python-packages)")


def folded_sums(text, kind_of):
    sums = collections.Counter()
    for line in text.splitlines():
        found = re.fullmatch(r"(.+) ([1-9][0-9]*)", line)
        sums[kind_of(found[1].split(";"))] += int(found[2])
    return dict(sums)


class Folded(ExportTest):
    @of_each_report
    def test_stacks_add_up_to_the_kinds(self, report, expected):
        for value in VALUES:
            text = self.export("folded", report, "--sample", value).stdout.decode()
            self.assertEqual(folded_sums(text, lambda stack: stack[0]), expected.bytes_of(value))
        live = {kind: figures["live_bytes"] for kind, figures in expected.report["kinds"].items()}
        self.assertEqual(expected.bytes_of("live"), {kind: bytes_ for kind, bytes_ in live.items() if bytes_})

    def test_a_leak_has_its_stack(self):
        text = self.export("folded", self.report_folder / "opencl.json", "--sample", "lost").stdout.decode()
        self.assertIn("opencl;main;load_weights 3145728\n", text)

    def test_of_a_folder_each_process_is_outermost(self):
        text = self.export("folded", self.report_folder).stdout.decode()
        for expected in self.reports.values():
            process = expected.report["cistern"]
            name = f"{pathlib.Path(process['command'].split(' ')[0]).name} (pid {process['pid']})"
            own = "".join(line + "\n" for line in text.splitlines() if line.startswith(name + ";"))
            self.assertEqual(folded_sums(own, lambda stack: stack[1]), expected.bytes_of("live"))


class Csv(ExportTest):
    @of_each_report
    def test_the_table_adds_up(self, report, expected):
        text = self.export("csv", report).stdout.decode()
        sums = {value: collections.Counter() for value in VALUES}
        for row in csv.DictReader(io.StringIO(text), strict=True):
            self.assertNotIn(None, row.values())
            for value in VALUES:
                sums[value][row["kind"]] += int(row[f"{value}_bytes"])
        for value in VALUES:
            self.assertEqual({kind: bytes_ for kind, bytes_ in sums[value].items() if bytes_}, expected.bytes_of(value))

    def test_it_says_when_a_process_started(self):
        for name, (began, ended) in self.run_times.items():
            text = self.export("csv", self.report_folder / f"{name}.json").stdout.decode()
            for row in csv.DictReader(io.StringIO(text)):
                self.assertLess(began - 0.1, float(row["start_unix_s"]))
                self.assertLess(float(row["start_unix_s"]), ended)

    def test_a_database_reads_it(self):
        self.need("sqlite3")
        self.export("csv", self.report_folder / "opencl.json", "-o", "a.csv")
        lost = self.execute("sqlite3", ":memory:", ".import --csv a.csv t",
                            "select sum(lost_bytes), stack from t where kind = 'opencl' group by stack order by 1 desc")
        self.assertEqual(lost.stdout.decode().splitlines()[0], "3145728|main;load_weights")


class Parquet(ExportTest):
    READ = """
import json, sys
import pyarrow.parquet
table = pyarrow.parquet.read_table(sys.argv[1])
types = {field.name: [str(field.type), field.nullable] for field in table.schema}
json.dump({"types": types, "rows": table.to_pylist()}, sys.stdout)
"""
    TYPES = dict.fromkeys(("run", "program", "kind", "class", "object", "call", "owner", "file", "stack"),
                          ["string", True]) | dict.fromkeys(("rank", "line"), ["int64", True]) | dict.fromkeys(
                              ("start_unix_s", "first_s", "last_s"), ["double", True]) | {"suppressed": ["bool", False]}

    def setUp(self):
        self.need_package(PYARROW)

    def rows(self, *reports):
        """The rows that Arrow reads. Their columns have the types that the page says."""
        out = self.folder / "a.parquet"
        self.execute(ARGUMENTS.cistern, "export", "--to", "parquet", *reports, "-o", out)
        read = json.loads(self.execute(PYARROW / "bin" / "python", "-c", self.READ, out).stdout)
        self.assertEqual(read["types"], {name: self.TYPES.get(name, ["int64", False]) for name in read["types"]})
        return read["rows"]

    @staticmethod
    def function(frame):
        if frame.get("function"):
            return frame["function"]
        if frame.get("module"):
            return f"{frame['module'].rpartition('/')[2]}+{frame['offset']:#x}"
        return "?" if frame.get("file") else f"{frame['address']:#x} (generated code)"

    def of_site(self, row):
        frames = row.get("frames") or [{"function": "(no call site)"}]
        return {"file": frames[0].get("file") or frames[0].get("module") or None, "line": frames[0].get("line") or None,
                "stack": ";".join(self.function(frame).replace(";", ":") for frame in reversed(frames))}

    def expected(self, run, report):
        """The table's rows, from the JSON alone."""
        process = report["cistern"]
        none = {"run": run, "program": process["command"].split(" ")[0].rpartition("/")[2] or None,
                "pid": process["pid"], "rank": process.get("rank"),
                "start_unix_s": process.get("start_unix_s"), "class": None, "object": None, "call": None,
                "owner": None, "suppressed": False, "first_s": None, "last_s": None, "file": None, "line": None} | {
                    f"{value}_{figure}": 0 for value in VALUES for figure in ("blocks", "bytes")}
        for row in report["leaks"]:
            lost = row["class"] in ("lost", "indirectly lost") or (
                row["class"] == "held only by the driver" and row["kind"] != "host")
            lost = lost and not row.get("suppressed")
            yield none | self.of_site(row) | {
                "kind": row["kind"], "class": row["class"], "object": row["object"] or None,
                "call": row.get("api") or None, "owner": row.get("owner") or None,
                "suppressed": bool(row.get("suppressed")), "live_blocks": row["blocks"], "live_bytes": row["bytes"],
                "lost_blocks": row["blocks"] * lost, "lost_bytes": row["bytes"] * lost, "first_s": row["first_s"],
                "last_s": row["last_s"]}
        if rest := report.get("host_without_site", {}).get("bytes"):
            yield none | {"kind": "host", "live_blocks": report["host_without_site"]["blocks"], "live_bytes": rest,
                          "stack": "(no call site)"}
        named = collections.Counter()
        for row in report["at_peak"]:
            named[row["kind"]] += row["peak_bytes"]
            yield none | self.of_site(row) | {"kind": row["kind"], "peak_blocks": row["peak_blocks"],
                                              "peak_bytes": row["peak_bytes"]}
        for kind, figures in report["kinds"].items():
            rest = figures["peak_bytes"] - named[kind]
            if f"kinds.{kind}.peak_bytes" not in report["estimated"] and rest > 0:
                yield none | {"kind": kind, "peak_bytes": rest, "stack": "(other call sites)"}

    @of_each_report
    def test_every_value_is_that_of_the_report(self, report, expected):
        self.assertEqual(self.rows(report), list(self.expected("reports", expected.report)))

    def test_empty_long_and_foreign_texts(self):
        folder = self.folder / "strange runs ü"
        folder.mkdir()
        report = json.loads((self.report_folder / "opencl.json").read_text())
        leak = report["leaks"][0]
        report["cistern"] |= {"rank": 2 ** 31, "command": ""}
        report["leaks"] = [leak | change for change in (
            {"owner": "", "object": "", "frames": []},
            {"owner": "größe 内存 🦆", "frames": [{"function": "λ<T>(x, \"y\")", "file": "ñ.cpp", "line": 2 ** 32}]},
            {"blocks": 2 ** 63 - 1, "bytes": 2 ** 62, "frames": [{"function": "f" * 3_000_000, "file": "/" * 5000}]},
            {"first_s": 0, "last_s": 1e-6, "suppressed": True, "frames": leak["frames"] * 200})]
        (folder / "a.json").write_text(json.dumps(report))
        self.assertEqual(self.rows(folder), list(self.expected(folder.name, report)))
        report["leaks"] = report["at_peak"] = []
        report["kinds"] = {}
        report.pop("host_without_site", None)
        (folder / "a.json").write_text(json.dumps(report))
        self.assertEqual(self.rows(folder), [])

    def test_texts_of_all_numbers_of_bits_and_groups(self):
        report = json.loads((self.report_folder / "opencl.json").read_text())
        leak = report["leaks"][0]
        for count in (1, 2, 3, 9, 257, 66_000):
            report["leaks"] = [leak | {"bytes": i, "owner": f"o{i % 1000}" if i % 3 else "",
                                       "frames": [{"function": str(i), "module": "m"}]} for i in range(count)]
            (self.folder / "many.txt").write_text(json.dumps(report))
            self.assertEqual(self.rows("many.txt"), list(self.expected(self.folder.name, report)))

    def test_of_a_folder_it_has_the_rows_of_each(self):
        rows = self.rows(self.report_folder)
        each = [row for name in sorted(self.reports) for row in self.rows(self.report_folder / f"{name}.json")]
        self.assertEqual(rows, each)
        table = list(csv.DictReader(io.StringIO(self.export("csv", self.report_folder).stdout.decode())))
        self.assertEqual([list(row)[1:] for row in rows], [list(row) for row in table])


class Pprof(ExportTest):
    NAMES = {"live": "inuse", "lost": "lost", "peak": "peak"}

    def setUp(self):
        self.need("go", "scripts/setup --long")

    def pprof(self, *arguments):
        return self.execute("go", "tool", "pprof", "-unit=B", *arguments).stdout.decode()

    @of_each_report
    def test_each_value_adds_up(self, report, expected):
        out = self.folder / "a.pb.gz"
        self.export("pprof", report, "-o", out)
        for value, name in self.NAMES.items():
            for figure, what in enumerate(("objects", "space")):
                top = self.pprof("-top", f"-sample_index={name}_{what}", out)
                total = re.search(r"Total samples = (\d+)", top)
                self.assertEqual(int(total[1]), expected.total(value, figure), top)

    @of_each_report
    def test_kinds_are_tags_roots_and_values(self, report, expected):
        out = self.folder / "b.pb.gz"
        self.export("pprof", report, "-o", out)
        tags = self.pprof("-tags", out)
        kinds = tags[tags.index(" kind: Total"):].split("\n\n")[0]
        shown = {kind: int(float(bytes_)) for bytes_, kind in re.findall(r"([\d.]+)B \([^)]*\): (\S+)", kinds)}
        live = expected.bytes_of("live")
        self.assertEqual({kind: bytes_ for kind, bytes_ in shown.items() if bytes_}, live)
        for kind, bytes_ in live.items():
            top = self.pprof("-top", "-nodefraction=0", f"-tagfocus=kind=^{kind}$", out)
            self.assertRegex(top, rf"\b{bytes_}B +\S+ +{kind}\n")
            top = self.pprof("-top", f"-sample_index={kind.split(':')[0]}_space", out)
            self.assertIn(f"Total samples = {bytes_}B", top)

    def test_frames_have_names_and_lines(self):
        out = self.folder / "c.pb.gz"
        self.export("pprof", self.report_folder / "opencl.json", "-o", out, "--sample", "lost")
        traces = self.pprof("-traces", "-lines", out)
        self.assertIn("Type: lost_space", traces)
        self.assertRegex(traces, r"3145728B +load_weights \S*leaky\.cpp:\d+\n +main \S*leaky\.cpp:\d+\n +opencl\n")
        self.assertIn("File: leaky\n", traces)
        self.assertRegex(traces, r"Build ID: [0-9a-f]{8,}\n")
        self.assertIn(self.reports["opencl"].report["cistern"]["command"], self.pprof("-comments", out))

    def test_of_a_folder_each_process_is_a_tag(self):
        out = self.folder / "folder.pb.gz"
        self.export("pprof", self.report_folder, "-o", out)
        for expected in self.reports.values():
            pid = expected.report["cistern"]["pid"]
            top = self.pprof("-top", "-nodefraction=0", f"-tagfocus=process=pid {pid}", out)
            self.assertRegex(top, rf"\b{expected.total('live')}B +\S+ +\S+ \(pid {pid}\)\n")

    def test_two_runs_are_compared(self):
        runs = [self.folder / "opencl.pb.gz", self.folder / "python.pb.gz"]
        for run in runs:
            self.export("pprof", self.report_folder / run.name.replace(".pb.gz", ".json"), "-o", run)
        self.assertIn("Showing nodes accounting for 0,", self.pprof("-top", f"-diff_base={runs[0]}", runs[0]))
        others = self.pprof("-top", "-sample_index=lost_space", f"-diff_base={runs[1]}", runs[0])
        self.assertRegex(others, r"3145728B +\S+ +\S+ +3145728B +\S+ +load_weights\n")


class Heaptrack(ExportTest):
    def setUp(self):
        self.need("heaptrack_print")

    def read(self, report, value):
        """The bytes by kind, the lines of the summary by name, and all that it says."""
        out, stacks = self.folder / "a.heaptrack.gz", self.folder / "stacks"
        self.export("heaptrack", report, "-o", out, "--sample", value)
        said = self.execute("heaptrack_print", "--disable-builtin-suppressions", "-f", out, "-F", stacks,
                            "--flamegraph-cost-type", "leaked").stdout.decode()
        summary = dict(re.findall(r"^([a-z][^:\n]*): (\S+)", said, re.M))
        sums = folded_sums(re.sub("; (?=[0-9]+$)", " ", stacks.read_text(), flags=re.M), lambda stack: stack[-1])
        return sums, summary, said

    @of_each_report
    def test_blocks_and_bytes_are_those_of_the_report(self, report, expected):
        for value in ("live", "lost"):
            sums, summary, _ = self.read(report, value)
            self.assertEqual(sums, expected.bytes_of(value))
            self.assertEqual(int(summary["calls to allocation functions"]), expected.total(value, 0))
        self.assertEqual(self.read(report, "peak")[0], expected.bytes_of("peak"))

    def test_frames_have_names_and_lines(self):
        said = self.read(self.report_folder / "opencl.json", "lost")[2]
        self.assertRegex(said, r"load_weights\n +at \S*leaky\.cpp:\d+\n +in \S*leaky\n +main\n +at \S*leaky\.cpp:\d+")


class Speedscope(ExportTest):
    @of_each_report
    def test_it_keeps_the_schema_and_adds_up(self, report, expected):
        schema = json.loads((HERE / "speedscope.schema.json").read_text())
        file = json.loads(self.export("speedscope", report).stdout)
        jsonschema.Draft202012Validator(schema).validate(file)
        self.assertEqual(file["profiles"][file["activeProfileIndex"]]["name"], "live at the end, bytes")
        names = [frame["name"] for frame in file["shared"]["frames"]]
        found = {}
        for profile in file["profiles"]:
            self.assertEqual(len(profile["samples"]), len(profile["weights"]))
            self.assertEqual(sum(profile["weights"]), profile["endValue"])
            sums = collections.Counter()
            for stack, weight in zip(profile["samples"], profile["weights"]):
                sums[names[stack[0]]] += weight
            found[profile["name"]] = dict(sums)
        for value, title in (("live", "live at the end"), ("lost", "lost"), ("peak", "at the peak")):
            self.assertEqual(found.get(f"{title}, bytes", {}), expected.bytes_of(value))
            self.assertEqual(sum(found.get(f"{title}, blocks", {}).values()), expected.total(value, 0))


class Perfetto(ExportTest):
    def setUp(self):
        self.need_package(PERFETTO)

    def trace(self, report):
        """The trace, all of whose fields Perfetto's description knows, and the description."""
        return self.parsed(self.export("perfetto", report).stdout)

    def parsed(self, raw):
        protos = perfetto_protos()
        trace = protos.Trace()
        trace.ParseFromString(raw)
        known = protos.Trace()
        known.CopyFrom(trace)
        known.DiscardUnknownFields()
        self.assertEqual(known.ByteSize(), len(raw))
        return trace, protos

    @of_each_report
    def test_heaps_add_up_and_name_what_is_there(self, report, expected):
        trace, protos = self.trace(report)
        interned = [packet.interned_data for packet in trace.packet if packet.HasField("interned_data")]
        self.assertEqual(len(interned), 1)
        texts = {text.iid for names in ("function_names", "mapping_paths", "source_paths", "build_ids")
                 for text in getattr(interned[0], names)}
        mappings = {mapping.iid for mapping in interned[0].mappings}
        frames = {frame.iid: frame for frame in interned[0].frames}
        stacks = {stack.iid: stack.frame_ids for stack in interned[0].callstacks}
        for frame in frames.values():
            self.assertIn(frame.function_name_id, texts)
            self.assertIn(frame.mapping_id, mappings)
        for stack in stacks.values():
            self.assertTrue(stack)
            self.assertLessEqual(set(stack), set(frames))
        dumps = [packet.profile_packet for packet in trace.packet if packet.HasField("profile_packet")]
        self.assertEqual([dump.index for dump in dumps], list(range(len(dumps))))
        sums = {}
        for dump in dumps:
            heap, = dump.process_dumps
            self.assertEqual(heap.pid, expected.report["cistern"]["pid"])
            ids = [sample.callstack_id for sample in heap.samples]
            self.assertEqual(len(ids), len(set(ids)))
            self.assertLessEqual(set(ids), set(stacks))
            self.assertNotIn(heap.heap_name, sums)
            sums[heap.heap_name] = sum(sample.self_allocated for sample in heap.samples)
        self.assertEqual(sums, {kind + end: bytes_ for value, end in
                                (("live", ""), ("lost", " lost"), ("peak", " at the peak"))
                                for kind, bytes_ in expected.bytes_of(value).items()})

    def test_of_a_folder_each_process_has_its_heaps(self):
        trace, _ = self.trace(self.report_folder)
        heaps = collections.defaultdict(set)
        for packet in trace.packet:
            for heap in packet.profile_packet.process_dumps:
                heaps[heap.pid].add(heap.heap_name)
        self.assertEqual(heaps.keys(), {expected.report["cistern"]["pid"] for expected in self.reports.values()})
        for expected in self.reports.values():
            self.assertLessEqual(expected.bytes_of("live").keys(), heaps[expected.report["cistern"]["pid"]])

    @staticmethod
    def start_us(expected):
        return round(expected.report["cistern"]["start_unix_s"] * 1e6)

    def archive(self, *reports, to="ranks.tar"):
        """The manifest, and the members before it by their names."""
        self.export("perfetto", *reports, "-o", to)
        with tarfile.open(self.folder / to) as archive:
            members = [(member.name, archive.extractfile(member).read()) for member in archive]
        self.assertEqual(len({name for name, _ in members}), len(members))
        name, manifest = members.pop()
        self.assertEqual(name, "perfetto_manifest.json")
        self.assertTrue(manifest.startswith(b'{"perfetto_manifest":'))
        return json.loads(manifest)["perfetto_manifest"], dict(members)

    def test_an_archive_has_a_trace_of_each_machine(self):
        manifest, members = self.archive(self.report_folder)
        names = sorted(self.reports)
        pids = [self.reports[name].report["cistern"]["pid"] for name in names]
        first = min(names, key=lambda name: self.start_us(self.reports[name]))
        self.assertEqual(manifest, {
            "version": 1,
            "trace_time": {"clock": "BOOTTIME", "file": f"pid {pids[names.index(first)]}.pftrace"},
            "files": [{"path": f"pid {pid}.pftrace", "machine": {"name": f"pid {pid}"}} for pid in pids]})
        for name, (path, raw) in zip(names, members.items(), strict=True):
            self.assertEqual(raw, self.export("perfetto", self.report_folder / f"{name}.json").stdout)
            trace, protos = self.parsed(raw)
            pids = {packet.track_descriptor.process.pid for packet in trace.packet
                    if packet.track_descriptor.HasField("process")}
            self.assertEqual(path, f"pid {pids.pop()}.pftrace")
            clocks = {clock.clock_id: clock.timestamp for clock in trace.packet[0].clock_snapshot.clocks}
            self.assertEqual(round(clocks[protos.BUILTIN_CLOCK_REALTIME] / 1e3), self.start_us(self.reports[name]))

    def test_ranks_of_an_archive_have_their_names(self):
        ranks, report = self.folder / "ranks", json.loads((self.report_folder / "opencl.json").read_text())
        ranks.mkdir()
        for name, rank in (("a", 3), ("b", 3), ("c", 0), ("d", 3)):
            report["cistern"]["rank"] = rank
            report["cistern"].pop("start_unix_s", None)
            (ranks / f"{name}.json").write_text(json.dumps(report))
        manifest, members = self.archive(ranks, to="ranks.tar.gz")
        self.assertEqual([file["machine"]["name"] for file in manifest["files"]],
                         ["rank 3", "rank 3 (2)", "rank 0", "rank 3 (3)"])
        self.assertEqual(manifest["trace_time"]["file"], "rank 3.pftrace")
        self.assertEqual([file["path"] for file in manifest["files"]], list(members))
        again = [self.export("perfetto", ranks, "-o", name) and (self.folder / name).read_bytes()
                 for name in ("1.tar", "2.tar")]
        self.assertEqual(*again)

    def test_clocks_and_flags_let_packets_be_read(self):
        trace, protos = self.trace(self.report_folder / "opencl.json")
        first = trace.packet[0]
        clocks = {clock.clock_id: clock.timestamp for clock in first.clock_snapshot.clocks}
        start = clocks.pop(protos.BUILTIN_CLOCK_REALTIME)
        self.assertEqual(round(start / 1e3), self.start_us(self.reports["opencl"]))
        self.assertEqual(clocks, {protos.BUILTIN_CLOCK_MONOTONIC_COARSE: 0, protos.BUILTIN_CLOCK_BOOTTIME: 0})
        self.assertEqual(first.sequence_flags, protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED)
        self.assertEqual({packet.trusted_packet_sequence_id for packet in trace.packet}, {1})

    @of_each_report
    def test_counters_end_with_what_is_live(self, report, expected):
        trace, protos = self.trace(report)
        tracks, values = {}, collections.defaultdict(list)
        for packet in trace.packet:
            if packet.HasField("track_descriptor"):
                tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            if packet.HasField("track_event"):
                self.assertEqual(packet.track_event.type, protos.TrackEvent.TYPE_COUNTER)
                values[packet.track_event.track_uuid].append((packet.timestamp, packet.track_event.counter_value))
        wall = round(expected.report["cistern"]["wall_s"] * 1e9)
        for uuid, points in values.items():
            track = tracks[uuid]
            self.assertEqual(track.counter.unit, protos.CounterDescriptor.UNIT_SIZE_BYTES)
            self.assertEqual(tracks[track.parent_uuid].process.pid, expected.report["cistern"]["pid"])
            kind = expected.report["kinds"][track.name.removesuffix(" live")]
            self.assertEqual(points, sorted(points))
            self.assertEqual(points[-1][1], kind["live_bytes"])
            self.assertLess(abs(points[-1][0] - wall), 2)
            if track.name != "host live" and "peak_at_s" in kind:
                self.assertEqual(max(value for _, value in points), kind["peak_bytes"])


def perfetto_protos():
    packages, = PERFETTO.glob("lib/python*/site-packages")
    sys.path.insert(0, str(packages))
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
        return perfetto_trace_pb2
    finally:
        sys.path.remove(str(packages))


class Command(ExportTest):
    """Where it writes, and what it says when it cannot."""

    def line_of(self, *arguments, status=2):
        done = self.execute(ARGUMENTS.cistern, "export", *arguments, status=status)
        lines = done.stderr.decode().splitlines()
        self.assertEqual(len(lines), 1, lines)
        return lines[0]

    def test_a_file_is_packed_by_its_name(self):
        report = self.report_folder / "opencl.json"
        plain = self.export("folded", report).stdout
        for name, packed in (("a.folded", False), ("a.folded.gz", True)):
            self.export("folded", report, "-o", name)
            content = (self.folder / name).read_bytes()
            self.assertEqual(gzip.decompress(content) if packed else content, plain)
        self.assertEqual(self.export("pprof", report).stdout[:2], b"\x1f\x8b")

    def test_nothing_is_written_to_a_terminal(self):
        ours, theirs = pty.openpty()
        with open(theirs, "wb") as terminal:
            done = subprocess.run([ARGUMENTS.cistern, "export", "--to", "pprof", "reports/opencl.json"],
                                  cwd=self.folder, stdout=terminal, stderr=subprocess.PIPE, text=True,
                                  timeout=TIME_LIMIT_S)
        os.close(ours)
        self.assertEqual((done.returncode, done.stderr), (0, "cistern: opencl.pb.gz, for go tool pprof\n"))
        self.assertTrue((self.folder / "opencl.pb.gz").exists())

    def test_what_cannot_be_written_is_one_line(self):
        report = "reports/opencl.json"
        self.assertEqual(self.line_of("--to", "folded", report, "-o", "/dev/full"),
                         "cistern: /dev/full: No space left on device")
        self.assertEqual(self.line_of("--to", "folded", report, "-o", "nowhere/a"),
                         "cistern: nowhere/a: No such file or directory")
        with open("/dev/full", "wb") as full:
            done = subprocess.run([ARGUMENTS.cistern, "export", "--to", "folded", self.folder / report], stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=TIME_LIMIT_S)
        self.assertEqual((done.returncode, done.stderr), (2, "cistern: standard output: No space left on device\n"))

    def test_a_bad_report_leaves_what_was_there(self):
        (self.folder / "bad.txt").write_text('{"cistern": {"schema": 4')
        (self.folder / "there").write_text("before")
        line = self.line_of("--to", "pprof", "bad.txt", "-o", "there")
        self.assertEqual(line, "cistern: bad.txt is damaged or cut off: its JSON does not end")
        self.assertEqual((self.folder / "there").read_text(), "before")

    def test_more_blocks_than_heaptrack_has_lines_for(self):
        report = json.loads((self.report_folder / "opencl.json").read_text())
        report["leaks"][0]["blocks"] = 10 ** 12
        (self.folder / "many.txt").write_text(json.dumps(report))
        line = self.line_of("--to", "heaptrack", "many.txt", "-o", "many.heaptrack")
        self.assertEqual(line, "cistern: many.txt has more than 50000000 blocks, and heaptrack's format has a line for "
                               "each")

    def test_an_unknown_format_is_refused(self):
        done = self.execute(ARGUMENTS.cistern, "export", "--to", "svg", "reports/opencl.json", status=2)
        self.assertIn(b"svg", done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("cistern")
    parser.add_argument("shim")
    parser.add_argument("leaky", help="an OpenCL program")
    parser.add_argument("--cuda", help="a CUDA program")
    parser.add_argument("--libraries", default="", help="the folders of its driver and runtime")
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
