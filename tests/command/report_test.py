"""`cistern report` and `cistern diff`, on reports that a leaking OpenCL program and small ones wrote.

usage: report_test.py CISTERN SHIM LEAKY
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CISTERN, SHIM, LEAKY = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
ENVIRONMENT = {**os.environ, "LIBCISTERN_LIBRARY": str(SHIM)}
SOURCE = pathlib.Path(__file__).resolve().parent.parent / "demo" / "leaky.cpp"


def cistern(*arguments, **options):
    return subprocess.run([str(CISTERN), *map(str, arguments)], check=False, capture_output=True, text=True,
                          env=ENVIRONMENT, timeout=300, **options)


class Reports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.ran = cistern("run", "-o", cls.folder / "leaky", "--", LEAKY)
        cls.clean = cistern("run", "-o", cls.folder / "clean", "--", "/bin/true")
        [cls.report] = (cls.folder / "leaky").glob("*.json")
        cls.json = json.loads(cls.report.read_text())

    def leaks(self):
        return [leak for leak in self.json["leaks"] if leak["kind"] == "opencl"]


class Text(Reports):
    def test_the_screen(self):
        shown = cistern("report", self.folder / "leaky").stdout
        self.assertIn("VERDICT  5 blocks, 3.8 MiB lost at 3 sites\n", shown)
        self.assertIn(f"cistern: 5 blocks, 3.8 MiB lost at 3 sites\n", self.ran.stderr)
        self.assertIn(" 1  opencl  3.0 MiB in 3 blocks (buffer, clCreateBuffer)  lost\n     load_weights  ", shown)
        self.assertIn("HINT  cistern run --fail-on lost makes a test fail for this; known leaks: --suppressions FILE "
                      "with lines such as leak:load_weights\n", shown)
        self.assertLess(len(shown.splitlines()), 25)

    def test_fewer_sites(self):
        shown = cistern("report", "-n", "1", self.report).stdout
        self.assertIn("LEAKS BY SITE (1 of 3)\n", shown)
        self.assertNotIn("share_result", shown)

    def test_the_source(self):
        line = next(frame["line"] for frame in self.leaks()[0]["frames"] if frame.get("function") == "load_weights")
        text = SOURCE.read_text().splitlines()[line - 1].strip()
        self.assertIn(f":{line}  {text}\n", cistern("report", "--source", self.report).stdout)

    def test_the_full_text_is_the_programs_own(self):
        self.assertEqual(cistern("report", "--full", self.report).stdout, self.json["text"])
        self.assertTrue(self.json["text"].startswith("cistern "))

    def test_a_report_without_the_full_text(self):
        without = self.folder / "without.json"
        without.write_text(json.dumps({key: value for key, value in self.json.items() if key != "text"}))
        shown = cistern("report", "--full", without)
        self.assertEqual((shown.returncode, shown.stderr), (
            2, f"cistern: the report of pid {self.json['cistern']['pid']} has no full text: "
               "CISTERN_REPORT_FORMAT=both writes it, and so does cistern run\n"))
        self.assertEqual(cistern("report", "--full", self.report, without).stdout, "")  # not a part of the answer

    def test_groups_add_up(self):
        rows = [leak for leak in self.json["leaks"] if not leak.get("suppressed")]
        for by in ("site", "module", "file", "python", "kind"):
            groups = json.loads(cistern("report", "--by", by, "--json", self.report).stdout)["groups"]
            for member in ("bytes", "blocks"):
                self.assertEqual(sum(group[member] for group in groups),
                                 sum(row[member] for row in [*rows, self.json["host_without_site"]]), by)
            table = cistern("report", "--by", by, self.report).stdout.splitlines()
            self.assertEqual(len(table), len(groups) + 1)
        kinds = {group["name"]: group for group in groups}
        self.assertEqual(kinds["opencl"]["lost_bytes"], sum(leak["bytes"] for leak in self.leaks()))

    def test_for_a_machine(self):
        shown = json.loads(cistern("report", "--json", self.report).stdout)
        self.assertEqual(shown["verdict"], "5 blocks, 3.8 MiB lost at 3 sites")
        self.assertEqual(sum(leak["bytes"] for leak in shown["leaks"] if leak["kind"] == "opencl"),
                         sum(leak["bytes"] for leak in self.leaks()))
        self.assertEqual(shown["kinds"]["opencl"]["live_bytes"], self.json["kinds"]["opencl"]["live_bytes"])

    def test_several_processes(self):
        copy = self.folder / "copy.json"
        copy.write_bytes(self.report.read_bytes())
        twice = json.loads(cistern("report", "--json", self.report, copy).stdout)
        self.assertEqual(twice["processes"], 2)
        once = json.loads(cistern("report", "--json", self.report).stdout)
        self.assertEqual([leak["bytes"] for leak in twice["leaks"]], [2 * leak["bytes"] for leak in once["leaks"]])
        self.assertEqual({leak["processes"] for leak in twice["leaks"]}, {2})
        # A peak is a moment of one process: two of them have no sum.
        self.assertEqual(twice["kinds"]["opencl"]["peak_bytes_max"], once["kinds"]["opencl"]["peak_bytes_max"])


class Changes(Reports):
    def changes(self, *arguments):
        ran = cistern("diff", "--json", *arguments)
        self.assertEqual(ran.stderr, "")
        return ran.returncode, json.loads(ran.stdout)["changes"]

    def test_nothing_has_changed(self):
        ran = cistern("diff", self.report, self.report)
        self.assertEqual((ran.returncode, ran.stdout), (0, "nothing has changed\n"))

    def test_what_is_new_and_what_is_gone(self):
        code, changes = self.changes("--by", "kind", self.folder / "clean", self.folder / "leaky")
        self.assertEqual(code, 1)
        [opencl] = [change for change in changes if change["name"] == "opencl"]
        self.assertEqual((opencl["change"], opencl["before"]["bytes"]), ("new", 0))
        code, changes = self.changes("--by", "kind", "--lost", self.folder / "leaky", self.folder / "clean")
        self.assertEqual(code, 0)
        self.assertEqual([change["change"] for change in changes if change["name"] == "opencl"], ["gone"])

    def test_a_site_is_the_same_in_the_next_build(self):
        moved = json.loads(self.report.read_text())
        for leak in moved["leaks"]:
            for frame in leak["frames"]:
                if frame.get("line"):
                    frame["line"] += 7
                if frame.get("offset"):
                    frame["offset"] += 64
        again = self.folder / "again.json"
        again.write_text(json.dumps(moved))
        self.assertEqual(self.changes(self.report, again), (0, []))

    def test_the_tolerance(self):
        grown = json.loads(self.report.read_text())
        leak = next(leak for leak in grown["leaks"] if leak["kind"] == "opencl")
        before = leak["bytes"]
        leak["bytes"] += 1 << 20
        more = self.folder / "more.json"
        more.write_text(json.dumps(grown))
        for tolerance, code in (("0", 1), ("1023KiB", 1), ("1MiB", 0), (f"{100 * (1 << 20) / before + 1}%", 0),
                                ("1%", 1)):
            ran = cistern("diff", "--tolerance", tolerance, self.report, more)
            self.assertEqual(ran.returncode, code, tolerance)
            self.assertIn("+1.0 MiB", ran.stdout)
        ran = cistern("diff", "--tolerance", "a bit", self.report, more)
        self.assertEqual((ran.returncode, ran.stderr), (
            2, "cistern: --tolerance: 'a bit' is neither a size such as 1MiB nor a percentage such as 5%\n"))


class BadInput(Reports):
    def refused(self, text, why, name="bad.json"):
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        for command in (("report", path), ("diff", self.report, path)):
            ran = cistern(*command)
            self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (2, "", f"cistern: {path} {why}\n"))
        path.unlink()

    def test_files_that_are_no_reports(self):
        whole = self.report.read_text()
        self.refused("", "is empty")
        self.refused(self.json["text"], "is no JSON report")
        self.refused("[1, 2]", "is JSON, but no report of Cistern")
        self.refused(whole[:len(whole) // 2], "is damaged or cut off: its JSON does not end")
        self.refused(b"\x00\xff" * 1000, "is no JSON report")
        self.refused(whole.replace('"schema": 4', '"schema": 5'),
                     "is from a newer Cistern (schema 5, this one reads 4)")
        self.refused(whole.replace('"bytes": ', '"bytes": "', 1).replace(",", '",', 1), "is no JSON report"
                     if not whole.startswith("{") else "is damaged or cut off: its JSON does not end")

    def test_paths_that_lead_nowhere(self):
        nowhere = self.folder / "nowhere"
        ran = cistern("report", nowhere)
        self.assertEqual((ran.returncode, ran.stderr), (2, f"cistern: {nowhere}: No such file or directory\n"))
        empty = self.folder / "empty"
        empty.mkdir()
        ran = cistern("report", empty)
        self.assertEqual((ran.returncode, ran.stderr),
                         (2, f"cistern: {empty}: neither a JSON report nor a recording is in this folder\n"))

    def test_one_bad_file_of_a_folder_is_left_out(self):
        mixed = self.folder / "mixed"
        mixed.mkdir()
        (mixed / "good.json").write_text(self.report.read_text())
        (mixed / "half.json").write_text(self.report.read_text()[:1000])
        ran = cistern("report", mixed)
        self.assertEqual(ran.returncode, 0)
        self.assertEqual(ran.stderr, f"cistern: left out: {mixed}/half.json is damaged or cut off: its JSON does not "
                                     "end\n")
        self.assertIn("VERDICT  5 blocks", ran.stdout)

    def test_a_full_disk_and_a_closed_output(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            ran = subprocess.run([str(CISTERN), "report", str(self.report)], check=False, stdout=full,
                                 stderr=subprocess.PIPE, text=True)
        self.assertEqual((ran.returncode, ran.stderr), (2, "cistern: standard output: No space left on device\n"))

    def test_an_answer_does_not_overwrite_its_question(self):
        copy = self.folder / "copy.json"
        copy.write_text(self.report.read_text())
        for command in ("html", "merge"):
            ran = cistern(command, "-o", copy, copy)
            self.assertEqual((ran.returncode, ran.stderr),
                             (2, f"cistern: {copy}: it is a file that was read; name another\n"))
        self.assertEqual(copy.read_text(), self.report.read_text())

    def test_what_is_no_file(self):
        ran = cistern("report", "/dev/zero")
        self.assertEqual((ran.returncode, ran.stderr), (2, "cistern: /dev/zero: it is neither a file nor a pipe\n"))
        folder = self.folder / "with-fifo"
        folder.mkdir()
        os.mkfifo(folder / "fifo.json")
        (folder / "good.json").write_text(self.report.read_text())
        self.assertIn("VERDICT  5 blocks", cistern("report", folder).stdout)

    def test_names_do_not_steer_the_terminal(self):
        ran = cistern("report", "no\x1b[31m\nfile")
        self.assertEqual(ran.stderr, "cistern: no?[31m?file: No such file or directory\n")
        hostile = self.folder / "hostile.json"
        hostile.write_text(json.dumps({**self.json, "text": "a\x1b[2J\u009b\u202e\n"}))
        self.assertEqual(cistern("report", "--full", hostile).stdout, "a?[2J??\n")

    def test_commands_that_do_not_exist(self):
        self.assertEqual(cistern("repor").returncode, 2)
        self.assertEqual(cistern().returncode, 2)
        self.assertEqual(cistern("help", "repor").stderr, "cistern: no such command: repor; see cistern help\n")


class Shells(unittest.TestCase):
    def test_completion(self):
        script = cistern("completion", "bash").stdout
        asked = script + "\nCOMP_WORDS=(cistern rep); COMP_CWORD=1; _cistern; echo ${COMPREPLY[@]}" \
                         "\nCOMP_WORDS=(cistern report --fu); COMP_CWORD=2; _cistern; echo ${COMPREPLY[@]}"
        ran = subprocess.run(["bash", "-c", asked], check=True, capture_output=True, text=True)
        self.assertEqual(ran.stdout, "report\n--full\n")
        self.assertTrue(cistern("completion", "zsh").stdout.startswith("#compdef cistern\n"))
        self.assertIn("-a report -d 'print what reports say'\n", cistern("completion", "fish").stdout)
        self.assertEqual(cistern("completion", "tcsh").returncode, 2)

    def test_help_names_every_command(self):
        shown = cistern("help").stdout
        for name in ("run", "report", "diff", "export", "doctor", "path", "options", "completion"):
            self.assertIn(f"\n  {name} ", shown)
            self.assertTrue(cistern("help", name).stdout.split("\n")[1].startswith(f"Usage: cistern {name}"), name)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[4:]])
