"""`cistern diff --html` in a real browser: the page has the figures of `cistern diff --json`, whatever is in the
reports, and is small."""
import collections
import copy
import json
import pathlib
import re
import subprocess
import tempfile
import unittest

from pages import ARGUMENTS, BrowserTest, cistern, example, human, main, report_of, row_of

VIEWS = {"live": "bytes", "lost": "lost_bytes"}
SIDES = ("before", "after")


def compare(before, after, page, *options):
    """(the changes as `cistern diff --json` has them, the exit code)"""
    done = subprocess.run([ARGUMENTS.command, "diff", "--json", *map(str, (before, after, "--html", page)), *options],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done
    assert re.fullmatch(rf"cistern: {re.escape(str(page))}  \d+ KB\n", done.stderr), done
    return json.loads(done.stdout)["changes"], done.returncode


def signed(value):
    return f"{'+' if value > 0 else '-'}{human(abs(value))}" if value else "0 B"


class ChangePage(BrowserTest):
    def open(self, before, after, options=(), **view):
        page = self.folder / "page.html"
        changes, _ = compare(before, after, page, *options)
        self.load(page, **view)
        return changes

    def write(self, name, *reports):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        for i, report in enumerate(reports):
            (folder / f"{i}.json").write_text(json.dumps(report))
        return folder

    def open_examples(self, before, after, **view):
        return self.open(self.write("before", before), self.write("after", after), **view)

    def headline(self):
        return self.browser.run("document.querySelector('.headline').textContent")

    def rows(self):
        """The table's, all of them: (before, after, change, what kind of change)."""
        self.browser.run("while (document.querySelector('.more')) document.querySelector('.more').click()")
        return [tuple(row) for row in self.browser.run(
            "Array.from(document.querySelectorAll('.sites tbody tr'), row => [...['before', 'after', 'change'].map("
            "name => Number(row.querySelector(`[data-figure=\"site.${name}\"]`)?.dataset.value ?? 0)), "
            "row.querySelector('.change').textContent])")]

    def assert_shows(self, changes):
        """Each view has every call site that changed, and the sums."""
        for view, name in VIEWS.items():
            self.choose(view)
            expected = [tuple(change[side][name] for side in SIDES) for change in changes]
            rows = self.rows()
            self.assertEqual(collections.Counter(row[:2] for row in rows if row[2]),
                             collections.Counter(pair for pair in expected if pair[0] != pair[1]))
            for before, after, change, _ in rows:
                self.assertEqual(change, after - before)
            growth = [row[2] for row in rows]
            self.assertEqual(growth, sorted(growth, reverse=True))
            for i, side in enumerate(SIDES):
                self.assertEqual(self.browser.run(f"flame.root.{side}?.bytes ?? 0"), sum(row[i] for row in rows))
            self.assertEqual(self.browser.run("flame.root.value"), sum(max(row[:2]) for row in rows))
            self.assert_growth(view, name, changes)
        self.choose("live")
        words = collections.Counter(row[3] for row in self.rows())
        for word in ("new", "gone", "grown", "shrunk"):
            self.assertEqual(words[word], sum(change["change"] == word for change in changes), word)

    def assert_growth(self, view, name, changes):
        shown = self.shown()
        for family in ("gpu", "host"):
            growth = [change["after"][name] - change["before"][name] for change in changes
                      if change["name"].startswith("host  ") == (family == "host")]
            for part, of in (("grown", [by for by in growth if by > 0]), ("shrunk", [-by for by in growth if by < 0])):
                found = [shown.get(f"growth.{family}_{view}.{part}_{what}", [0])[0] for what in ("sites", "bytes")]
                self.assertEqual(found, [len(of), sum(of)])

    def assert_kinds(self, before, after):
        shown = self.shown()
        for kind in before["kinds"].keys() | after["kinds"].keys():
            for name in ("live_bytes", "live_blocks", "peak_bytes"):
                values = [report["kinds"].get(kind, {}).get(name, 0) for report in (before, after)]
                for place, value in (*zip(SIDES, values), ("change", values[1] - values[0])):
                    self.assertEqual(shown[f"kinds.{kind}.{name}.{place}"][0], value)

    # --- What is shown

    def run_cuda(self, name):
        if not ARGUMENTS.cuda_program:
            self.skipTest("no CUDA headers")
        return report_of(self.folder / name, ARGUMENTS.cuda_program, LD_LIBRARY_PATH=ARGUMENTS.cuda_libraries)

    def test_two_programs(self):
        before = self.run_cuda("before.json")
        after = report_of(self.folder / "after.json", ARGUMENTS.opencl_program)
        changes = self.open(before, after)
        self.assert_shows(changes)
        self.assert_kinds(json.loads(before.read_text()), json.loads(after.read_text()))
        self.assertEqual(self.headline(), "+3.8 MiB lost on the GPU at 2 sites")

    def test_the_same_program_twice(self):
        changes = self.open(self.run_cuda("before.json"), self.run_cuda("after.json"))
        self.assert_shows(changes)
        self.assertEqual([change for change in changes if not change["name"].startswith("host")], [])
        self.assertIn(self.headline(), ("nothing grew", "nothing grew on the GPU"))

    def test_the_next_build_of_a_program(self):
        before = example([row_of("grows", 100), row_of("stays", 50), row_of("goes", 30), row_of("shrinks", 20)])
        after = copy.deepcopy(before)
        leaks = after["leaks"]
        leaks[0].update(bytes=100 + (2 << 20), blocks=3)
        leaks[2]["frames"][0]["function"] = "comes"
        leaks[3]["bytes"] = 5
        for leak in leaks:
            for frame in leak["frames"]:
                frame.update(line=frame["line"] + 7, offset=frame["offset"] + 64, file="/new" + frame["file"])
        changes = self.open_examples(before, after)
        self.assert_shows(changes)
        self.assertEqual(self.headline(), "+2.0 MiB lost on the GPU at 2 sites")
        self.assertEqual([row[3] for row in self.rows()], ["grown", "new", "unchanged", "shrunk", "gone"])
        self.assertEqual(self.browser.run("flame.root.children.map(kind => kind.children.map(of => of.name))"),
                         [["main"]])
        self.assertEqual(self.browser.run("Array.from(document.querySelectorAll('.largest b'), of => of.textContent)"),
                         ["grows", "comes"])
        self.assertEqual(self.shown()["largest.change"], [2 << 20, "+2.0 MiB"])
        self.assertTrue(self.browser.run("document.getElementById('time').hidden"))

    def test_an_empty_side(self):
        full, empty = example([row_of("make", 100), row_of("other", 50)]), example()
        self.assert_shows(self.open_examples(empty, full))
        self.assertEqual(self.headline(), "+150 B lost on the GPU at 2 sites")
        self.assert_shows(self.open_examples(full, empty))
        self.assertEqual(self.headline(), "nothing grew")
        self.assertEqual({row[3] for row in self.rows()}, {"gone"})
        self.assert_shows(self.open_examples(empty, empty))
        self.assertEqual(self.headline(), "nothing grew")
        self.open_examples({"cistern": {"schema": 4}}, {"cistern": {"schema": 4}, "leaks": [{}], "at_peak": [{}]})

    def test_host_memory_is_no_verdict_on_the_gpu(self):
        before, after = (example([row_of("make", size, kind="host", api="malloc")]) for size in (10, 30))
        self.open_examples(before, after)
        self.assertEqual(self.headline(), "nothing grew on the GPU")
        self.assertEqual(self.shown()["growth.host_lost.grown_bytes"], [20, "+20 B"])
        self.assertEqual(self.shown()["largest.change"][0], 20)
        for report in (before, after):
            report["cistern"]["gpu_memory_used"] = False
        self.open_examples(before, after)
        self.assertEqual(self.headline(), "+20 B lost at 1 site")

    def test_a_peak_that_one_report_names(self):
        before, after = example(), example()
        before["at_peak"] = [row_of("one", 0) | {"peak_bytes": 100, "peak_blocks": 1}]
        after["at_peak"] = [row_of("one", 0) | {"peak_bytes": 300, "peak_blocks": 1},
                            row_of("two", 0) | {"peak_bytes": 70, "peak_blocks": 1}]
        self.open_examples(before, after)
        self.choose("peak")
        self.assertEqual(self.rows(), [(100, 300, 200, "grown"), (0, 70, 70, "named after only")])
        self.assertEqual(self.browser.run("Array.from(document.querySelectorAll('[data-figure=\"site.change\"]'), "
                                          "of => of.textContent)"), ["+200 B", "up to +70 B"])
        self.assertIn("named before only", self.browser.run("document.getElementById('legend').textContent"))
        self.browser.run("document.querySelectorAll('.sites tbody tr')[1].click()")
        self.assertIn("at the peak not named \u2192 70 B in 1 block",
                      self.browser.run("document.querySelector('.opened').textContent"))

    def test_several_processes(self):
        before = [example([row_of("make", 100)]) for _ in range(2)]
        after = [example([row_of("make", 100 * (i + 1))]) for i in range(3)]
        for report in after:
            report["sites"]["mode"] = "gpu:sampled"
        changes = self.open(self.write("before", *before), self.write("after", *after))
        self.assert_shows(changes)
        self.assertEqual(self.rows(), [(200, 600, 400, "grown")])
        self.assertEqual(self.shown()["kinds.device:0.peak_bytes.after"][0], 300)
        self.assertEqual(self.browser.run("Array.from(document.querySelectorAll('#verdict .warn'), "
                                          "of => of.textContent)"),
                         ["2 processes before, 3 after",
                          "the runs knew different call sites: gpu:all before, gpu:sampled after"])

    def test_estimates_are_marked(self):
        before, after = (example([row_of("make", size, kind="host")]) | {"estimated": ["leaks.host"]}
                         for size in (10, 30))
        self.open_examples(before, after)
        self.assertEqual(self.shown()["site.change"], [20, "about +20 B"])

    # --- Hostile and large reports

    def test_no_text_of_a_report_runs(self):
        bad = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>\"'&\n\u202e"
        after = example([row_of(bad, 100, api=bad, owner=bad, **{"class": bad, "object": bad}),
                         row_of("x" * 10_000, 50, kind="__proto__"), row_of("constructor", 5, kind="constructor")])
        after["cistern"].update(command=bad, moment=bad)
        after["kinds"] |= {bad: after["kinds"]["device:0"], "__proto__": {}, "constructor": {}}
        after["estimated"], after["sites"]["mode"] = [bad], bad
        changes = self.open_examples(example(), after)
        self.assert_shows(changes)
        self.browser.run("document.querySelectorAll('.sites tbody tr').forEach(row => row.click())")
        self.assertEqual(self.browser.complaints, [])
        self.assertIsNone(self.browser.run("window.broken"))
        self.assertEqual(self.browser.run("document.querySelectorAll('img').length"), 0)
        self.assertEqual(self.browser.run("document.documentElement.scrollWidth"), 1400)
        evil = self.folder / "<img src=x onerror='window.broken = 1'>"
        evil.write_text(json.dumps(after))
        self.open(evil, evil)
        self.assertIsNone(self.browser.run("window.broken"))
        self.assertIn(str(evil), self.browser.run("document.getElementById('command').textContent"))

    def test_reports_with_100000_rows(self):
        before, after = (example([row_of(f"make_{i}", 1 + i * prime % 97) for i in range(100_000)]) for prime in (3, 5))
        after["leaks"][1234]["bytes"] = 10**9
        changes = self.open_examples(before, after)
        self.assertLess((self.folder / "page.html").stat().st_size, 5_000_000)
        self.assert_growth("lost", "lost_bytes", changes)
        self.assertEqual(self.shown()["left_out.rows"][0], 80_000)
        for side, report in (("before", before), ("after", after)):
            self.assertEqual(self.browser.run(f"flame.root.{side}.bytes"), sum(row["bytes"] for row in report["leaks"]))
        self.assertEqual(self.shown()["largest.change"][0], 10**9 - before["leaks"][1234]["bytes"])
        compare(self.folder / "before", self.folder / "after", self.folder / "small.html", "--max-size", "150kb")
        self.assertLess((self.folder / "small.html").stat().st_size, 150_000)

    # --- A user's keys and clicks

    def open_two(self):
        self.open_examples(example([row_of("first", 100), row_of("second", 100)]),
                           example([row_of("first", 400), row_of("second", 50)]))

    def test_keys_move_in_the_graph(self):
        self.open_two()
        self.browser.run("document.getElementById('flame').focus()")
        said = "document.getElementById('flame_status').textContent"
        for key, words in (("ArrowDown", "main  +250 B (grown):  200 B in 2 blocks before, 450 B in 2 blocks after"),
                           ("ArrowDown", "first  first.cpp:3  +300 B (grown):  100 B in 1 block before, "
                                         "400 B in 1 block after"),
                           ("ArrowRight", "second  second.cpp:3  -50 B (shrunk):  100 B in 1 block before, "
                                          "50 B in 1 block after")):
            self.browser.press(key)
            self.assertEqual(self.browser.run(said).replace("  main.cpp:9", ""), words)
        self.browser.press("Enter")
        self.assertEqual(self.shown()["flame.value"][0], 100)

    def test_a_search_says_how_much_changed(self):
        self.open_two()
        self.search("second")
        self.assertEqual([row[2] for row in self.rows()], [-50])
        self.assertEqual(self.shown()["flame.matched"], [100, "  search: -50 B in what matches"])

    def test_the_largest_growth_leads_to_its_stack(self):
        self.open_two()
        self.browser.run("document.querySelector('.largest button').click()")
        opened = self.browser.run("document.querySelector('.opened').textContent")
        self.assertIn("/src/first.cpp:3", opened)
        self.assertIn("lost 100 B in 1 block \u2192 400 B in 1 block", opened)

    def test_columns_sort(self):
        self.open_two()
        for column, expected in (("change", [-50, 300]), ("before", [300, -50]), ("call site", [300, -50]),
                                 ("", [300, -50])):
            self.browser.run("Array.from(document.querySelectorAll('.sites th button')).find("
                             f"of => of.textContent === '{column}').click()")
            self.assertEqual([row[2] for row in self.rows()], expected, column)

    # --- How it looks

    def test_it_fits_every_width_in_both_themes(self):
        before = self.run_cuda("before.json")
        report = json.loads(before.read_text())
        gpu = [leak for leak in report["leaks"] if leak["kind"] != "host"]
        gpu[0]["bytes"] += 2 << 20
        gpu[1]["bytes"] //= 2
        gpu[2]["frames"][0]["function"] = "renamed"
        after = self.write("after", report)
        self.assert_fits(lambda **view: self.open(before, after, **view), "diff")

    def test_it_prints(self):
        self.open_two()
        self.assertGreater(len(self.browser.call("Page.printToPDF")["data"]), 10_000)
        self.assertEqual(self.browser.complaints, [])


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.before, self.after = self.folder / "before.json", self.folder / "after.json"
        self.before.write_text(json.dumps(example([row_of("make", 100)])))
        self.after.write_text(json.dumps(example([row_of("make", 300)])))
        self.page = self.folder / "page.html"

    def refused(self, *words):
        before = sorted(self.folder.rglob("*"))
        done = cistern("diff", *words, code=2)
        self.assertEqual((done.stdout, sorted(self.folder.rglob("*"))), ("", before))
        self.assertTrue(done.stderr.startswith("cistern: ") and done.stderr.count("\n") == 1, done.stderr)
        return done.stderr[len("cistern: "):-1]

    def test_the_table_is_as_without_the_page(self):
        table = cistern("diff", self.before, self.after, code=1).stdout
        done = cistern("diff", self.before, self.after, "--html", self.page, code=1)
        self.assertEqual(done.stdout, f"{table}{self.page}  {-(-self.page.stat().st_size // 1000)} KB\n")
        self.assertIn(f"<title>{self.before} -&gt; {self.after} - Cistern</title>", self.page.read_text())
        cistern("diff", self.before, self.before, "--html", self.page)

    def test_what_cannot_be_made_is_refused(self):
        both = (self.before, self.after, "--html")
        self.assertEqual(self.refused(*both, "/dev/full"), "/dev/full: No space left on device")
        self.assertEqual(self.refused(*both, self.folder), f"{self.folder}: Is a directory")
        self.assertRegex(self.refused(*both, self.page, "--max-size", "1kb"), r"^the page would have \d+ bytes, and "
                         r"may have 1000: give --max-size, or fewer files$")
        self.assertIn("--html", self.refused(self.before, self.after, "--max-size", "1mb"))
        self.after.write_text("{")
        self.assertEqual(self.refused(*both, self.page), f"{self.after} is damaged or cut off: its JSON does not end")


if __name__ == "__main__":
    main()
