"""`cistern html` in a real browser: the page shows what the reports say, whatever is in them, and is small."""
import json
import pathlib
import re
import tempfile
import unittest

from pages import ARGUMENTS, BrowserTest, cistern, example, human, main, report_of, row_of

HERE = pathlib.Path(__file__).resolve().parent
LOST = ("lost", "indirectly lost", "held only by the driver")
IN_WORDS = {"held only by the driver": "driver-held"}


def figures_of(report):
    """place -> value, of all that the page names by its place in the report."""
    figures = {}

    def take(place, of, *names):
        figures.update({f"{place}.{name}": of[name] for name in names if of.get(name)})
    for kind, of in report["kinds"].items():
        take(f"kinds.{kind}", of, "live_bytes", "live_blocks", "peak_bytes", "allocations", "failed")
        figures[f"kinds.{kind}.driver_calls"] = sum(
            of[name] for name in ("driver_allocs", "driver_frees", "driver_syncs", "driver_queries"))
        if of["pooled"]:
            take(f"kinds.{kind}", of, "pooled_bytes", "pool_hits")
        for row in of.get("classes", []):
            take(f"kinds.{kind}.{row['sizes']}", row, "allocations", "live_blocks", "cached_blocks", "cached_bytes",
                 "high_water_blocks")
        for row in [] if "classes" in of else of.get("sizes", []):
            take(f"kinds.{kind}.{row['block_bytes']}", row, "allocations", "live_blocks", "free_blocks")
    for kind, of in report["fragmentation"].items():
        take(f"fragmentation.{kind}", of, "reserved_bytes", "live_bytes", "free_bytes", "largest_free_bytes",
             "reserved_peak_bytes", "internal", "external")
    for name, of in report.get("host_classes", {}).items():
        take(f"host_classes.{name}", of, "bytes")
    for of in report["device_memory"]:
        take(f"device_memory.{of['device']}", of, "ours_bytes", "driver_owned_bytes", "free_bytes", "total_bytes")
    for of in report.get("device_ranges", []):
        take(f"device_ranges.{of['device']}", of, "mapped_bytes", "mapped_peak_bytes", "used_peak_bytes",
             "largest_free_bytes", "waiting_bytes")
    return figures


def verdict_of(report):
    """place -> value."""
    figures = {}
    for row in report["leaks"]:
        if row["kind"] == "host" or row.get("suppressed"):
            continue
        by = "libraries" if row.get("owner") and not row.get("program") else "program"
        part = ("lost" if row["class"] in LOST else "possible" if row["class"] == "possibly lost" else
                "reachable" if row["class"] == "reachable" else "unjudged")
        for name, count in (("blocks", row["blocks"]), ("bytes", row["bytes"]), ("sites", bool(row["frames"])),
                            ("kept", row.get("kept_parent_bytes", 0))):
            place = f"verdict.{by}.{part}.{name}"
            figures[place] = figures.get(place, 0) + count
    return {place: value for place, value in figures.items() if value}


class Page(BrowserTest):
    # --- What is shown

    def open(self, *inputs, options=(), **view):
        page = self.folder / "page.html"
        cistern("html", *inputs, "-o", page, *options)
        self.load(page, **view)
        return page

    def open_example(self, *reports, **view):
        for i, report in enumerate(reports):
            (self.folder / f"{i}.json").write_text(json.dumps(report))
        return self.open(*sorted(self.folder.glob("*.json")), **view)

    def rows(self):
        """The table's, all of them: (bytes, blocks, class, kind)."""
        self.browser.run("while (document.querySelector('.more')) document.querySelector('.more').click()")
        return [tuple(row) for row in self.browser.run(
            "Array.from(document.querySelectorAll('.sites tbody tr'), row => [...Array.from("
            "row.querySelectorAll('[data-figure=\"site.bytes\"], [data-figure=\"site.blocks\"]'), "
            "of => Number(of.dataset.value)), row.querySelector('.class')?.textContent ?? '', "
            "row.querySelector('.kind').dataset.kind])")]

    def assert_shows(self, report):
        shown = self.shown()
        for place, value in (figures_of(report) | verdict_of(report)).items():
            with self.subTest(place):
                self.assertEqual(shown[place][0], value)
                if place.endswith("_bytes") or place.endswith(".bytes"):
                    self.assertEqual(shown[place][1], human(value))
        self.assertEqual({place for place in shown if place.startswith("verdict.program")},
                         {place for place in verdict_of(report) if place.startswith("verdict.program")})

    def assert_lists(self, report):
        """Every row of `leaks`, with its stack and in the flame graph."""
        self.choose("live")
        expected = [(row["bytes"], row["blocks"], IN_WORDS.get(row["class"], row["class"]), row["kind"])
                    for row in report["leaks"]]
        rows, most = self.rows(), max(row["bytes"] for row in report["leaks"])
        self.assertEqual(sorted(rows), sorted(expected))
        self.assertEqual(rows[0][0], most)
        self.assertEqual(self.browser.run("flame.root.value"), sum(row["bytes"] for row in report["leaks"]))
        self.browser.run("document.querySelector('.sites tbody tr').click()")
        stack = self.browser.run("Array.from(document.querySelectorAll('.opened li b'), of => of.textContent)")
        largest = [[frame.get("function", "?") for frame in row["frames"]] for row in report["leaks"]
                   if row["bytes"] == most]
        self.assertIn(stack, largest)

    def assert_agrees_with_the_text(self, path):
        said = re.search(r"^VERDICT  (.*?)(;|$)", cistern("report", path).stdout, re.MULTILINE)[1]
        self.assertIn(said, self.browser.run("document.querySelector('#verdict > div').innerText"))

    def assert_program(self, name, *command, **environment):
        path = report_of(self.folder / f"{name}.json", *command, **environment)
        report = json.loads(path.read_text())
        self.open(path)
        self.assert_shows(report)
        self.assert_agrees_with_the_text(path)
        self.assert_lists(report)
        self.assertEqual(self.browser.run("Array.from(document.querySelectorAll('[data-figure=\"transfers.bytes\"]'), "
                                          "of => Number(of.dataset.value))"),
                         [of["bytes"] for of in report["transfers"]])
        return report

    def test_a_cuda_program(self):
        if not ARGUMENTS.cuda_program:
            self.skipTest("no CUDA headers")
        for pool in ("recycle", "ranges"):
            report = self.assert_program("cuda", ARGUMENTS.cuda_program, LD_LIBRARY_PATH=ARGUMENTS.cuda_libraries,
                                         CISTERN_DEVICE_POOL=pool)
        self.assertEqual(self.browser.run("document.querySelector('.largest button b').textContent"), "load_weights")
        self.assertEqual(self.shown()["verdict.bytes"][1], "3.3 MiB")
        self.assertEqual(len(report["device_ranges"]), 1)

    def test_an_opencl_program(self):
        self.assert_program("opencl", ARGUMENTS.opencl_program)

    def test_a_python_program(self):
        self.assert_program("python", "/usr/bin/python3", HERE.parent / "demo" / "array_job.py")
        self.search("array_job.py")
        self.assertTrue(self.rows())
        names = self.browser.run(
            "(function names(of) { return [of.name, ...of.children.flatMap(names)]; })(flameTree("
            "scope.leaks.filter(row => stackOf(row, data).some(frame => frame.python)), kViews[1], data))")
        self.assertIn("<module>", names)
        self.assertEqual([name for name in names if name.startswith("python3")], [])

    # --- Hostile and large reports

    def test_no_text_of_a_report_runs(self):
        bad = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>\"'&\n\u202e"
        report = example([row_of(bad, 100, api=bad, owner=bad, trend=bad, **{"class": bad, "object": bad}),
                          row_of("x" * 10_000, 50)])
        report["cistern"].update(command=bad, moment=bad)
        report["kinds"][bad] = report["kinds"]["device:0"] | {"unpooled": {bad: 1}}
        report["frameworks"], report["estimated"] = [bad], [bad]
        report["judging"] = {"why_not": bad, "seconds": 0}
        self.open_example(report)
        self.browser.run("document.querySelectorAll('.sites tbody tr').forEach(row => row.click())")
        self.browser.run("document.querySelectorAll('details').forEach(of => of.open = true)")
        self.assertEqual(self.browser.complaints, [])
        self.assertIsNone(self.browser.run("window.broken"))
        self.assertEqual(self.browser.run("document.querySelectorAll('img').length"), 0)
        self.assertEqual(self.browser.run("document.documentElement.scrollWidth"), 1400)
        self.assertEqual(self.browser.run("document.getElementById('command').textContent"), bad)
        self.choose("live")
        self.assertEqual(self.browser.run("document.querySelector('.sites .where b').textContent"), bad)

    def test_the_page_lets_nothing_in(self):
        self.open_example(example([row_of("make", 100)]))
        self.assertEqual(self.browser.run("fetch('data:,x').then(() => 'fetched', () => 'refused')"), "refused")
        self.browser.run("document.body.append(Object.assign(document.createElement('script'), "
                         "{textContent: 'window.broken = 1'}))")
        self.assertIsNone(self.browser.run("window.broken"))

    def test_a_report_with_200000_rows(self):
        rows = [row_of(f"make_{i}", 1 + i % 97) for i in range(200_000)]
        rows[1234]["bytes"] = 10**9
        report = example(rows)
        page = self.open_example(report)
        self.assertLess(page.stat().st_size, 5_000_000)
        shown = self.shown()
        self.assertEqual(shown["verdict.program.lost.bytes"][0], sum(row["bytes"] for row in rows))
        self.assertEqual(shown["verdict.program.lost.sites"][0], 200_000)
        self.assertEqual(shown["largest.bytes"][0], 10**9)
        self.assertEqual(shown["left_out.rows"][0], 180_000)
        smaller = self.folder / "small.html"
        cistern("html", self.folder / "0.json", "-o", smaller, "--max-size", "100kb")
        self.assertLess(smaller.stat().st_size, 100_000)

    def test_every_part_is_shown(self):
        path = HERE.parent / "reports" / "every_field.json"
        report = json.loads(path.read_text())
        self.open(path)
        shown = self.shown()
        for part, name in (("transfers", "bytes"), ("copy_sites", "bytes"), ("waits", "seconds"),
                           ("staging", "staged_bytes")):
            self.assertEqual(shown[f"{part}.{name}"][0], report[part][0][name])
        self.assertEqual(shown["host_without_site.bytes"][0], report["host_without_site"]["bytes"])
        for view, part, name in (("live", "leaks", "bytes"), ("peak", "at_peak", "peak_bytes"),
                                 ("growing", "growing", "bytes"), ("loops", "in_loops", "allocations")):
            self.choose(view)
            self.assertEqual(self.shown()["site.bytes"][0], report[part][0][name])
            self.assertEqual(self.shown()["flame.value"][0], report[part][0][name])
        self.assertEqual(self.browser.complaints, [])

    def test_hints_stand_at_the_verdict(self):
        report = example([row_of("make", 100)])
        report["transfers"] = [{"kind": "cuda", "direction": "host to device", "pageable": True, "count": 9,
                                "bytes": 2 * 10**9, "seconds": 1.0}]
        self.open_example(report)
        hint = self.browser.run("document.querySelector('#verdict .hint').textContent")
        self.assertIn(f"HINT  {hint}\n", cistern("report", self.folder / "0.json").stdout)

    def test_estimates_are_marked(self):
        host = row_of("make", 100, kind="host", api="malloc", bytes_error=20)
        report = example([host]) | {"at_peak": [host | {"peak_bytes": 90, "peak_blocks": 1}]}
        report["kinds"]["host"] = report["kinds"].pop("device:0")
        report["fragmentation"] = {"host": {"reserved_bytes": 200, "live_bytes": 100, "internal": 0.25}}
        report["estimated"] = ["kinds.host.peak_bytes", "at_peak.host", "leaks.host", "fragmentation.host.internal"]
        self.open_example(report)
        self.choose("live")
        self.assertEqual(self.shown()["site.bytes"], [100, "about 100 B \u00b1 20 B"])
        self.choose("peak")
        self.assertEqual(self.shown()["site.bytes"], [90, "about 90 B"])
        texts = self.browser.run("[document.getElementById('kinds').textContent, "
                                 "document.getElementById('fragmentation').textContent]")
        self.assertIn("about 100 B at 1.00 s", texts[0])
        self.assertIn("wasted inside blocks about 25.0 %", texts[1])

    def test_a_report_with_hardly_anything(self):
        lists = ("leaks", "at_peak", "in_loops", "growing", "transfers", "copy_sites", "waits", "staging",
                 "device_memory", "device_ranges")
        odd = {"live_over_time": {"least": [1], "last": [1, 2], "interval_s": 0}}
        self.open_example({"cistern": {"schema": 4}, "kinds": {"": odd, "__proto__": {}, "constructor": {}},
                           "fragmentation": {"x": {}}, "estimated": [""], **{name: [{}] for name in lists}})
        self.choose("live")
        self.browser.run("document.querySelector('.sites tbody tr').click()")
        self.open_example({"cistern": {"schema": 4}}, {"cistern": {"schema": 4}, "leaks": [{}]})
        self.assertEqual(self.browser.complaints, [])

    def test_an_empty_report(self):
        report = example()
        del report["kinds"]["device:0"]["live_over_time"]
        self.open_example(report)
        self.assertEqual(self.browser.run("document.querySelector('.headline').textContent"),
                         "nothing leaked on the GPU")

    # --- Several processes

    def test_processes_together_and_one_by_one(self):
        reports = [example([row_of("make", 100 * (i + 1)), row_of(f"of_{i}", 7)]) for i in range(3)]
        for i, report in enumerate(reports):
            report["cistern"].update(pid=100 + i, rank=i, ranks=3)
        self.open_example(*reports)
        names = self.browser.run("Array.from(document.querySelectorAll('#scope option'), of => of.textContent)")
        self.assertEqual(names, ["all 3 processes together"] + [f"rank {i}/3  pid {100 + i}  app" for i in range(3)])
        shown = self.shown()
        self.assertEqual(shown["verdict.program.lost.bytes"][0], 621)
        self.assertEqual(shown["verdict.program.lost.sites"][0], 4)
        self.assertEqual(shown["kinds.device:0.live_bytes"][0], 621)
        self.assertEqual(shown["kinds.device:0.peak_bytes"][0], 307)
        self.assertEqual(self.rows(), [(600, 3, "lost", "device:0")] + [(7, 1, "lost", "device:0")] * 3)
        self.browser.run("document.getElementById('scope').value = '2'; "
                         "document.getElementById('scope').dispatchEvent(new Event('change'))")
        self.assertEqual(self.shown()["verdict.program.lost.bytes"][0], 307)
        self.assertEqual([row[0] for row in self.rows()], [300, 7])

    # --- A user's keys and clicks

    def test_a_search_finds_in_graph_and_table(self):
        self.open_example(example([row_of("first", 300), row_of("second", 100)]))
        self.browser.press("/", "/")
        self.assertEqual(self.browser.run("document.activeElement.id"), "search")
        self.search("SECOND.cpp")
        self.assertEqual([row[0] for row in self.rows()], [100])
        self.assertEqual(self.shown()["flame.matched"][0], 100)
        self.browser.press("Escape")
        self.assertEqual([row[0] for row in self.rows()], [300, 100])

    def test_keys_move_in_the_graph(self):
        self.open_example(example([row_of("first", 300), row_of("second", 100)]))
        self.browser.run("document.getElementById('flame').focus()")
        said = "document.querySelector('#flame_status b').textContent"
        for key, name in (("ArrowDown", "main"), ("ArrowDown", "first"), ("ArrowRight", "second"), ("Enter", "second")):
            self.browser.press(key)
            self.assertEqual(self.browser.run(said), name)
        self.assertEqual(self.shown()["flame.value"][0], 100)
        self.assertEqual(self.browser.run("document.getElementById('path').textContent"),
                         "all kinds \u203a device:0 \u203a main \u203a second")
        self.browser.press("Escape")
        self.assertEqual(self.shown()["flame.value"][0], 400)

    def test_keys_open_a_row(self):
        self.open_example(example([row_of("first", 300), row_of("second", 100)]))
        self.browser.run("document.querySelector('.sites tbody tr').focus()")
        self.browser.press("ArrowDown")
        self.browser.press("Enter")
        self.assertEqual(self.browser.run("document.querySelector('.opened ol').innerText"),
                         "second  /src/second.cpp:3\nmain  /src/main.cpp:9")

    def test_a_time_chooses_rows(self):
        self.open_example(example([row_of("early", 300, first_s=0.2, last_s=0.4),
                                   row_of("late", 100, first_s=1.6, last_s=1.8)]))
        box = self.browser.run("(({left, top, width}) => [left, top, width])(document.querySelector('#time canvas')"
                               ".getBoundingClientRect())")
        for kind, share in (("mousePressed", 0.6), ("mouseMoved", 0.8), ("mouseMoved", 0.95), ("mouseReleased", 0.95)):
            self.browser.call("Input.dispatchMouseEvent", type=kind, x=box[0] + share * box[2], y=box[1] + 30,
                              button="left", buttons=1, clickCount=1)
        self.assertEqual([row[0] for row in self.rows()], [100])
        self.browser.run("document.querySelector('#time_filter button').click()")
        self.assertEqual([row[0] for row in self.rows()], [300, 100])

    def test_the_largest_leak_leads_to_its_stack(self):
        self.open_example(example([row_of("small", 100), row_of("large", 300)]))
        self.browser.run("document.querySelector('.largest button').click()")
        self.assertIn("/src/large.cpp:3", self.browser.run("document.querySelector('.opened').textContent"))

    def test_columns_sort(self):
        self.open_example(example([row_of("b", 300), row_of("a", 100, blocks=9)]))
        for column, expected in (("blocks", [100, 300]), ("call site", [100, 300]), ("call site", [300, 100])):
            self.browser.run("Array.from(document.querySelectorAll('.sites th button')).find("
                             f"of => of.textContent === '{column}').click()")
            self.assertEqual([row[0] for row in self.rows()], expected)

    # --- How it looks

    def test_it_fits_every_width_in_both_themes(self):
        name = "cuda" if ARGUMENTS.cuda_program else "opencl"
        path = report_of(self.folder / f"{name}.json", ARGUMENTS.cuda_program or ARGUMENTS.opencl_program,
                         LD_LIBRARY_PATH=ARGUMENTS.cuda_libraries or "")
        self.assert_fits(lambda **view: self.open(path, **view), name)

    def test_it_prints(self):
        self.open_example(example([row_of("make", 100)]), dark=True)
        self.assertGreater(len(self.browser.call("Page.printToPDF")["data"]), 10_000)
        self.assertEqual(self.browser.complaints, [])
        self.assertFalse(self.browser.run("document.documentElement.dataset.theme ?? false"))


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.report = self.folder / "run.json"
        self.report.write_text(json.dumps(example([row_of("make", 100)])))

    def refused(self, *words):
        before = sorted(self.folder.rglob("*"))
        done = cistern("html", *words, code=2)
        self.assertEqual(done.stdout, "")
        self.assertEqual(sorted(self.folder.rglob("*")), before)
        self.assertTrue(done.stderr.startswith("cistern: ") and done.stderr.count("\n") == 1, done.stderr)
        return done.stderr[len("cistern: "):-1]

    def test_the_page_is_beside_the_report(self):
        done = cistern("html", self.report)
        page = self.folder / "run.html"
        self.assertEqual(done.stdout, f"{page}  {-(-page.stat().st_size // 1000)} KB\n")
        self.assertIn("<title>./app --fast - Cistern</title>", page.read_text())
        runs = self.folder / "runs"
        runs.mkdir()
        self.report.rename(runs / "1.json")
        cistern("html", f"{runs}/")
        self.assertEqual((self.folder / "runs.html").read_text(), page.read_text())

    def test_an_output_is_written_whole_or_not(self):
        self.assertEqual(self.refused(self.report, "-o", "/dev/full"), "/dev/full: No space left on device")
        self.assertEqual(self.refused(self.report, "-o", self.folder / "none" / "x.html"),
                         f"{self.folder}/none/x.html: No such file or directory")
        self.assertEqual(self.refused(self.report, "-o", self.folder), f"{self.folder}: Is a directory")
        page, link = self.folder / "page.html", self.folder / "link.html"
        page.write_text("before")
        link.symlink_to(page)
        cistern("html", self.report, "-o", link)
        self.assertTrue(link.is_symlink())
        self.assertIn("<title>", page.read_text())
        self.assertRegex(cistern("html", self.report, "-o", "/dev/null").stdout, r"^/dev/null  \d+ KB\n$")

    def test_what_is_no_report_makes_no_page(self):
        self.assertEqual(self.refused(self.folder / "none.json"), f"{self.folder}/none.json: No such file or directory")
        self.report.write_text("{")
        self.assertEqual(self.refused(self.report), f"{self.report} is damaged or cut off: its JSON does not end")

    def test_a_page_that_cannot_be_so_small(self):
        self.assertRegex(self.refused(self.report, "--max-size", "1kb"), r"^the page would have \d+ bytes, and may "
                         r"have 1000: give --max-size, or fewer files$")


if __name__ == "__main__":
    main()
