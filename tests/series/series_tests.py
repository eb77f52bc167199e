"""bench/series.py: a picture of a planted table says what that says, and a broken row gives one line that names it.
The tables of this tree can be read, and their pictures are drawn from them."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
SVG = "{http://www.w3.org/2000/svg}"
ABOUT = ["# Pairs of <calls> & \"more\"", "# nanoseconds"]
HEADING = "date\tcommit\tmachine\tconditions\tcistern\tglibc\tmine"
ROWS = ["2026-01-02\t-\told, 2 cores\t-\t9\t12.5\t-",
        "2026-01-03\t0123abc\told, 2 cores\tload 3\t8\t12\t-",
        "2026-01-03\t0123abd+\tnew, 4 cores\t-\t4\t6\t4.1",
        "2026-02-01\t0123abe\tnew, 4 cores\t-\t3\t6\t-"]


class Series(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_series(self, *arguments):
        return subprocess.run([sys.executable, ROOT / "bench" / "series.py", "--folder", self.folder, *arguments],
                              capture_output=True, text=True)

    def plant(self, *lines):
        self.table = self.folder / "planted.tsv"
        self.table.write_text("".join(line + "\n" for line in lines))

    def drawn(self, *lines):
        self.plant(*lines)
        done = self.run_series("--draw", "planted")
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("", "", 0))
        return xml.etree.ElementTree.parse(self.folder / "planted.svg").getroot()

    def words(self, picture, kind):
        return [text.text for text in picture.iter(f"{SVG}text") if kind in text.get("class").split()]

    def test_a_picture_says_what_the_table_says(self):
        picture = self.drawn(*ABOUT, HEADING, *ROWS)
        self.assertEqual(self.words(picture, "title"), ["Pairs of <calls> & \"more\""])
        self.assertEqual(self.words(picture, "unit"), ["nanoseconds"])
        self.assertEqual(self.words(picture, "axis"), ["date", "commit"])
        self.assertEqual(self.words(picture, "date"), ["2026-01-02", "2026-01-03", "2026-01-03", "2026-02-01"])
        self.assertEqual(self.words(picture, "commit"), [None, "0123abc", "0123abd+", "0123abe"])
        self.assertEqual(self.words(picture, "tick"), ["0", "5", "10", "15"])
        self.assertEqual(self.words(picture, "label"), ["cistern", "glibc", "mine"])
        points = [title.text for title in picture.iter(f"{SVG}title")]
        self.assertEqual(points[:2], ["cistern: 9 nanoseconds; 2026-01-02; old, 2 cores",
                                      "cistern: 8 nanoseconds; 2026-01-03; 0123abc; old, 2 cores; load 3"])
        self.assertEqual(len(points), 9)

    def test_heights_are_in_proportion(self):
        picture = self.drawn(*ABOUT, HEADING, *ROWS)
        heights = [float(point.get("cy")) for point in picture.iter(f"{SVG}circle") if point.get("class") == "s0"]
        self.assertAlmostEqual(heights[3] - heights[2], heights[1] - heights[0], delta=0.2)
        self.assertAlmostEqual(heights[2] - heights[1], 4 * (heights[1] - heights[0]), delta=0.5)

    def test_machines_are_not_joined(self):
        picture = self.drawn(*ABOUT, HEADING, *ROWS)
        lines = [line for line in picture.iter(f"{SVG}polyline")]
        self.assertEqual([(line.get("class"), len(line.get("points").split())) for line in lines],
                         [("line s0", 2), ("line s0", 2), ("line s1", 2), ("line s1", 2)])
        self.assertEqual(self.words(picture, "machine"), ["another machine"])
        unknown = [row.replace("new, 4 cores", "-") for row in ROWS]
        picture = self.drawn(*ABOUT, HEADING, *unknown)
        self.assertEqual(self.words(picture, "machine"), ["machine not known", "machine not known"])

    def test_it_can_be_read_on_light_and_dark_ground(self):
        picture = self.drawn(*ABOUT, HEADING, *ROWS)
        style = picture.find(f"{SVG}style").text
        light, dark = style.split("@media (prefers-color-scheme: dark)")
        colours = []
        for sheet in (light, dark):
            ground, = re.findall(r"\.ground { fill: (#\w+)", sheet)
            text, = re.findall(r"text { fill: (#\w+)", sheet)
            systems = re.findall(r"\.s\d { stroke: (#\w+); fill: (#\w+) }", sheet)
            self.assertEqual(len(systems), 3)
            for colour in (text, *(stroke for stroke, _ in systems)):
                self.assertGreater(contrast(colour, ground), 4.0, (colour, ground))
            colours.append(systems)
        self.assertNotEqual(*colours)
        # Words have the colour of text, and not that of what they name.
        self.assertFalse([text for text in picture.iter(f"{SVG}text") if re.search(r"\bs\d", text.get("class"))])

    def test_labels_do_not_cover_each_other(self):
        row = "2026-01-02\t-\told\t-" + "\t1" * 12
        names = "\t".join(f"system {number}" for number in range(12))
        picture = self.drawn(*ABOUT, f"date\tcommit\tmachine\tconditions\t{names}", row)
        places = sorted(float(text.get("y")) for text in picture.iter(f"{SVG}text") if text.get("class") == "label")
        self.assertGreaterEqual(min(b - a for a, b in zip(places, places[1:])), 15)
        self.assertLess(places[-1], 360)

    def test_long_series_name_some_dates(self):
        rows = [f"2026-01-{day:02}\t-\told\t-\t1\t1\t1" for day in range(1, 31)]
        dates = self.words(self.drawn(*ABOUT, HEADING, *rows), "date")
        self.assertEqual(dates[-1], "2026-01-30")
        self.assertEqual(len(dates), 6)

    def test_a_broken_row_gives_one_line(self):
        good = [*ABOUT, HEADING, *ROWS]
        for number, was, becomes, why in (
                (5, "\t8\t12\t-", "\t8\t12", "6 fields; the heading has 7"),
                (5, "\t8\t", "\teight\t", "cistern: 'eight' is no number"),
                (5, "\t8\t", "\tnan\t", "cistern: nan is no value of a measurement"),
                (5, "2026-01-03", "2026-13-03", "'2026-13-03' is no date (2026-11-26)"),
                (5, "0123abc", "HEAD", "'HEAD' is no commit; '-' says that it is not known"),
                (5, "load 3", "", "machine and conditions are words; '-' says that they are not known"),
                (7, "2026-02-01", "2025-02-01", "2025-02-01 is before the row above"),
                (3, "date", "day", "the heading is date, commit, machine, conditions and a name for each system"),
                (3, HEADING, ROWS[0], "the heading is date, commit, machine, conditions and a name for each system")):
            with self.subTest(why=why):
                lines = list(good)
                lines[number - 1] = lines[number - 1].replace(was, becomes, 1)
                self.plant(*lines)
                done = self.run_series("--draw")
                self.assertEqual((done.stdout, done.returncode), ("", 1))
                self.assertEqual(done.stderr, f"series.py: {self.table}:{number}: {why}\n")
                self.assertFalse((self.folder / "planted.svg").exists())
        self.plant(*ABOUT, HEADING)
        self.assertEqual(self.run_series("--draw").stderr, f"series.py: {self.table}: there is no row\n")

    def test_an_unknown_name_is_said(self):
        self.plant(*ABOUT, HEADING, *ROWS)
        for arguments in (("--draw", "other"), ("--add", "planted", "build")):
            done = self.run_series(*arguments)
            self.assertEqual(done.stderr, f"series.py: there is no series {arguments[1]}; "
                                          "--list prints those that there are\n")
            self.assertEqual(done.returncode, 1)

    def test_tables_of_this_tree(self):
        tables = sorted((ROOT / "bench" / "results" / "series").glob("*.tsv"))
        self.assertTrue(tables)
        for table in tables:
            with self.subTest(table=table.name):
                (self.folder / table.name).write_text(table.read_text())
                done = self.run_series("--draw", table.stem)
                self.assertEqual((done.stderr, done.returncode), ("", 0))
                drawn = (self.folder / table.name).with_suffix(".svg").read_text()
                self.assertEqual(table.with_suffix(".svg").read_text(), drawn, "bench/series.py --draw")


def contrast(one, other):
    """As WCAG 2 defines it, from 1 to 21."""
    def luminance(colour):
        parts = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
        parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


if __name__ == "__main__":
    unittest.main(verbosity=2)
