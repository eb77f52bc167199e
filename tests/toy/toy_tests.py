"""A kind of memory that only a folder and a row make known: its program sees what it sees plain, its blocks are pooled,
and the report has its figures, its leaks by line, and those of a forked child."""
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


def run(preload, **options):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CISTERN_")}
    environment.pop("LD_PRELOAD", None)
    environment |= options
    if preload:
        environment["LD_PRELOAD"] = str(ARGUMENTS.shim)
    return subprocess.run([ARGUMENTS.program], env=environment, capture_output=True, text=True, timeout=50)


class ToyKind(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plain = run(False)
        with tempfile.TemporaryDirectory() as folder:
            cls.preloaded = run(True, CISTERN_REPORT=f"{folder}/%p.json", CISTERN_REPORT_FORMAT="json")
            reports = [json.loads(path.read_text()) for path in pathlib.Path(folder).iterdir()]
        cls.reports = sorted(reports, key=lambda report: report["cistern"]["pid"])

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
        schema = json.loads(ARGUMENTS.schema.read_text())
        for report in self.reports:
            jsonschema.validate(report, schema)

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


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("shim", "program", "schema"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.parse_args(namespace=ARGUMENTS, args=sys.argv[1:7])
    unittest.main(argv=sys.argv[:1], verbosity=2)
