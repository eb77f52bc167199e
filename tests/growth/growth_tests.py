"""What grows: programs that grow linearly, in steps, up to a bound, at first only, late, not at all: each named
rightly, with the rate that the program has."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "host"))
import host_tests  # noqa: E402
from host_tests import HostTest  # noqa: E402

LENGTH_MS, TRIES = 1500, 20
TRENDS = {"linear": "growing", "steps": "growing", "bounded": "constant", "warm-up": "constant", "late": "growing",
          "busy": "constant", "once": "one-off"}


class GrowthTest(HostTest):
    def grown(self, program, kind, shape, **settings):
        """The program's rate, and its report."""
        environment = {"LD_LIBRARY_PATH": os.environ["SIMULATOR"]} if program == "grower_cuda" else {}
        environment |= {f"CISTERN_{name}": str(value) for name, value in settings.items()}
        for _ in range(TRIES):
            done, reports = self.reported(self.program(program), kind, shape, str(LENGTH_MS), environment=environment)
            self.assertEqual(len(reports), 1)
            rate, held_up = map(float, done.out.split())
            if held_up < 0.05:
                return rate, reports[0]
        self.fail("the machine is so busy that the program does not do what it says")

    @staticmethod
    def of_maker(rows, kind):
        """Those of the function that allocates what is meant."""
        return [row for row in rows
                if row["kind"].startswith(kind) and any(f.get("function") == "make" for f in row["frames"])]


class Trends(GrowthTest):
    def programs(self):
        yield "grower", "host", {}
        yield "grower", "host", {"SITES": "all"}
        yield "grower", "opencl", {}
        if os.environ["SIMULATOR"]:
            yield "grower_cuda", "device", {}

    def test_each_is_named_rightly(self):
        for program, kind, settings in self.programs():
            for shape, trend in TRENDS.items():
                with self.subTest(kind=kind, shape=shape, settings=settings):
                    for _ in range(3):  # of estimates that change, now and then nothing is said
                        rate, report = self.grown(program, kind, shape, **settings)
                        row, = self.of_maker(report["leaks"], kind)
                        if "trend" in row:
                            break
                    self.assertEqual(row["trend"], trend)
                    growing = self.of_maker(report["growing"], kind)
                    self.assertEqual(len(growing), trend == "growing")
                    if growing:
                        self.assertAlmostEqual(growing[0]["bytes_per_s"], rate, delta=0.1 * rate)
                        self.assertEqual(row["bytes_per_s"], growing[0]["bytes_per_s"])
                    if shape == "late":
                        self.assertAlmostEqual(row["since_s"], LENGTH_MS / 2000, delta=LENGTH_MS / 8000 + 0.1)

    def test_what_is_freed_at_the_end_has_grown(self):
        for program, kind, settings in self.programs():
            with self.subTest(kind=kind, settings=settings):
                rate, report = self.grown(program, kind, "linear-freed", **settings)
                self.assertFalse(self.of_maker(report["leaks"], kind))
                row, = self.of_maker(report["growing"], kind)
                self.assertAlmostEqual(row["bytes_per_s"], rate, delta=0.1 * rate)
                self.assertLessEqual(len(row["live_bytes"]["least"]), 33)

    def test_what_only_moves_to_another_site_does_not_grow(self):
        for program, kind, settings in self.programs():
            with self.subTest(kind=kind, settings=settings):
                _, report = self.grown(program, kind, "moved", **settings)
                self.assertEqual([row for row in report["growing"] if row["kind"].startswith(kind)], [])

    def test_who_held_the_peak(self):
        for program, kind, settings in self.programs():
            with self.subTest(kind=kind, settings=settings):
                rate, report = self.grown(program, kind, "linear-freed", **settings)
                row, = self.of_maker(report["at_peak"], kind)
                # 420 blocks at the end of the time; the program looks at its clock every 2 ms.
                block = (600 if kind == "host" else 64) << 10
                self.assertAlmostEqual(row["peak_bytes"], 420 * block, delta=420 * block // 20)


class Words(GrowthTest):
    def test_the_text_says_how_fast_and_since_when(self):
        text = self.text_of("grower", "opencl", "linear-freed")
        self.assertRegex(text, r"GROWING BY SITE  \(until exit began\)\n"
                               r"  opencl  1[5-8]\.\d MiB/s since \d\.\d\d s, by 2[0-9]\.\d MiB \(clCreateBuffer\)\n"
                               r"     make_on_device ")
        text = self.text_of("grower", "opencl", "linear")
        self.assertRegex(text, r" 1  opencl .*  growing 1[5-8]\.\d MiB/s since ")
        self.assertRegex(text, r"VERDICT  .*; GROWING by 2[0-9]\.\d MiB at 1 site \(opencl\)      \(exit")
        self.assertNotIn("GROWING", self.text_of("grower", "opencl", "bounded"))

    def text_of(self, *command):
        path = self.folder / "report.txt"
        path.unlink(missing_ok=True)
        self.shimmed(self.program(command[0]), *command[1:], str(LENGTH_MS), environment={"CISTERN_REPORT": str(path)})
        return path.read_text()


class ExitCodes(GrowthTest):
    def test_the_exit_code_may_depend_on_it(self):
        for shape, fail_on, code in (("linear-freed", "growing", 23), ("linear-freed", "growing:10MiB", 23),
                                     ("linear-freed", "growing:1GiB", 0), ("bounded", "growing", 0),
                                     ("linear-freed", "any,growing", 23), ("linear-freed", "any", 0),
                                     ("bounded", "any,growing:1GiB", 23), ("moved", "growing", 0)):
            with self.subTest(shape=shape, fail_on=fail_on):
                done = self.shimmed(self.program("grower"), "opencl", shape, str(LENGTH_MS),
                                    environment={"CISTERN_FAIL_ON": fail_on, "CISTERN_REPORT": "none"})
                self.assertEqual(done.status, code)


if __name__ == "__main__":
    host_tests.main()
