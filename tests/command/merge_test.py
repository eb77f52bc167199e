"""`cistern merge`, and `cistern export --to parquet`: 10,000 simulated ranks, in bounded memory; and the page's example
with Dask.

usage: merge_test.py CISTERN SHIM PAGE
"""
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import unittest

CISTERN, SHIM, PAGE = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
RANKS = 10_000
OUTLIER = 4711


def cistern(*arguments, **options):
    return subprocess.run([str(CISTERN), *map(str, arguments)], check=False, capture_output=True, text=True,
                          timeout=300, **options)


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        ran = cistern("run", "-o", cls.folder / "one", "--sites", "all", "--", sys.executable, "-c", "pass",
                      env={**os.environ, "LIBCISTERN_LIBRARY": str(SHIM)})
        [path] = [path for path in (cls.folder / "one").glob("*.json")]
        assert ran.returncode == 0, ran.stderr
        cls.one = json.loads(path.read_text())
        del cls.one["text"]
        cls.one["kinds"]["host"]["peak_bytes"] = 100_000_000

    def write(self, name, ranks):
        folder = self.folder / name
        folder.mkdir()
        host = self.one["kinds"]["host"]
        for rank in ranks:
            self.one["cistern"]["rank"] = rank
            host["live_bytes"] = 1000 + rank % 7
            host["peak_bytes"] = 900_000_000 if rank == OUTLIER else 100_000_000 + rank
            (folder / f"rank-{rank}.json").write_text(json.dumps(self.one))
        return folder

    def bounded(self, what, *arguments):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = cistern(*arguments)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        print(f"{what}: {after.ru_utime - before.ru_utime:.1f} s, {after.ru_maxrss >> 10} MiB", file=sys.stderr)
        self.assertLess(after.ru_maxrss << 10, 64 << 20)
        return ran

    def test_ten_thousand_in_bounded_memory(self):
        folder = self.write("many", range(RANKS))
        bytes_read = sum(path.stat().st_size for path in folder.iterdir())
        out = self.folder / "merged.json"
        ran = self.bounded(f"merge of {RANKS} ranks, {bytes_read >> 20} MiB", "merge", "-o", out, folder)
        merged = json.loads(out.read_text())
        host = merged["kinds"]["host"]
        self.assertEqual(merged["cistern_merge"]["processes"], RANKS)
        self.assertEqual(host["live_bytes"]["sum"], sum(1000 + rank % 7 for rank in range(RANKS)))
        self.assertEqual(host["peak_bytes"]["most"], {"value": 900_000_000, "process": f"rank {OUTLIER}"})
        self.assertEqual(host["peak_bytes"]["least"], {"value": 100_000_000, "process": "rank 0"})
        self.assertIn(f"outlier: rank {OUTLIER} peaks at 858.3 MiB, 9.0 times the mean", ran.stdout)
        live = [leak for leak in self.one["leaks"] if not leak.get("suppressed")]
        self.assertEqual(sum(site["bytes"]["sum"] for site in merged["sites"]),
                         RANKS * sum(leak["bytes"] for leak in live))
        table = self.folder / "all.parquet"
        self.bounded("the table of them", "export", "--to", "parquet", "-o", table, folder)
        self.assertLess(table.stat().st_size, bytes_read // 50)
        self.assertEqual(table.read_bytes()[-4:], b"PAR1")

    def test_parts_merge_to_the_whole(self):
        whole, parts = self.folder / "whole.json", [self.folder / "first.json", self.folder / "second.json"]
        folders = [self.write("even", range(0, 40, 2)), self.write("odd", range(1, 40, 2))]
        self.assertEqual(cistern("merge", "-o", whole, *folders).returncode, 0)
        for part, folder in zip(parts, folders):
            self.assertEqual(cistern("merge", "-o", part, folder).returncode, 0)
        again = self.folder / "again.json"
        shown = cistern("merge", "-o", again, *reversed(parts))
        self.assertEqual(again.read_text(), whole.read_text())
        self.assertEqual(shown.stdout, cistern("merge", whole).stdout)

    def test_a_file_counts_once(self):
        folder, out = self.write("linked", range(3)), self.folder / "once.json"
        (folder / "alias.json").symlink_to("rank-0.json")
        os.link(folder / "rank-1.json", folder / "another.json")
        cistern("merge", "-o", out, folder, folder, folder / "rank-2.json")
        self.assertEqual(json.loads(out.read_text())["cistern_merge"]["processes"], 3)

    def test_sums_do_not_wrap(self):
        folder, out = self.write("enormous", range(2)), self.folder / "enormous.json"
        for path in folder.iterdir():
            report = json.loads(path.read_text())
            report["kinds"]["host"] |= {"live_bytes": 2 ** 63 + 5, "live_blocks": 1}
            path.write_text(json.dumps(report))
        cistern("merge", "-o", out, folder)
        self.assertEqual(json.loads(out.read_text())["kinds"]["host"]["live_bytes"]["sum"], 2 ** 64 - 1)

    def test_bad_files(self):
        bad = self.folder / "bad.json"
        bad.write_text('{"cistern_merge": {"schema": 9}}')
        ran = cistern("merge", bad)
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr),
                         (2, "", f"cistern: {bad} is a merged report of another version of Cistern\n"))
        whole = self.folder / "sound.json"
        cistern("merge", "-o", whole, self.write("two", range(2)))
        for change in ({"processes": 0}, {"processes": 3}, {"sum": 1}, {"least": {"value": 10 ** 9, "process": "x"}}):
            merged = json.loads(whole.read_text())
            merged["kinds"]["host"]["peak_bytes"] |= change
            bad.write_text(json.dumps(merged))
            ran = cistern("merge", bad)
            self.assertEqual((ran.returncode, ran.stdout), (2, ""))
            self.assertRegex(ran.stderr, f"cistern: {bad} is no merged report: (processes|peak_bytes)\n")
        out = self.folder / "none" / "out.json"
        ran = cistern("merge", "-o", out, self.write("few", range(2)))
        self.assertEqual((ran.returncode, ran.stdout), (2, ""))
        self.assertIn(str(out), ran.stderr)

    def test_the_example_with_dask(self):
        try:
            import dask.bag  # noqa: F401
        except ImportError:
            self.skipTest("no Dask (python3-dask)")
        folder = self.write("reports", range(100))
        [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        subprocess.run([sys.executable, "-c", example], check=True, cwd=self.folder, timeout=300,
                       env={**os.environ, "PATH": f"{CISTERN.parent}:{os.environ['PATH']}"})
        expected = self.folder / "expected.json"
        cistern("merge", "-o", expected, folder)
        self.assertEqual((self.folder / "all.json").read_text(), expected.read_text())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[4:]])
