"""The tests of pages share this: reports, a browser with the page that a command made of them, and what it shows."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import browser

ARGUMENTS = argparse.Namespace()


def human(count):
    """As stats/format.cpp has it."""
    if count < 1024:
        return f"{count} B"
    value, units = count / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while value >= 1023.95:
        value, units = value / 1024, units[1:]
    return f"{int(value * 10 + 0.5) / 10:.1f} {units[0]}"


def cistern(*words, code=0):
    done = subprocess.run([ARGUMENTS.command, *map(str, words)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (words, done)
    return done


def report_of(path, *command, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CISTERN", "LD_"))}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300,
                   env=clean | {"LD_PRELOAD": str(ARGUMENTS.shim), "CISTERN_REPORT": str(path),
                                "CISTERN_REPORT_FORMAT": "json", "CISTERN_SITES": "all"} | environment)
    return path


def example(rows=()):
    """A small report by hand."""
    live = sum(row["bytes"] for row in rows)
    return {"cistern": {"version": "0.1.0", "schema": 4, "pid": 7, "gpu_memory_used": True, "command": "./app --fast",
                        "wall_s": 2.0, "moment": "exit"},
            "kinds": {"device:0": {"pooled": True, "live_blocks": len(rows), "live_bytes": live, "peak_bytes": live,
                                   "allocations": len(rows), "peak_at_s": 1.0, "live_over_time":
                                   {"start_s": 0.5, "interval_s": 0.5, "least": [0, 0, live],
                                    "last": [0, live, live]}}},
            "leaks": list(rows), "sites": {"mode": "gpu:all", "count": 1}, "estimated": []}


def row_of(name, size, **more):
    return {"kind": "device:0", "class": "lost", "object": "block", "blocks": 1, "bytes": size, "api": "cudaMalloc",
            "first_s": 1.0, "last_s": 1.0,
            "frames": [{"function": name, "file": f"/src/{name}.cpp", "line": 3, "module": "/app", "offset": 5},
                       {"function": "main", "file": "/src/main.cpp", "line": 9, "module": "/app", "offset": 9}]} | more


@unittest.skipUnless(browser.program(), "no Chromium")
class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def load(self, page, **view):
        self.browser.load(page, **view)
        self.assertEqual(self.browser.complaints, [])

    def shown(self):
        """place -> [value, text]; of places that occur more than once the first."""
        found = self.browser.run("Array.from(document.querySelectorAll('[data-figure]'), "
                                 "of => [of.dataset.figure, Number(of.dataset.value), of.textContent])")
        return {place: [value, text] for place, value, text in reversed(found)}

    def choose(self, view):
        self.browser.run(f"document.querySelector('[data-view={view}]').click()")

    def search(self, words):
        self.browser.run(f"document.getElementById('search').value = {json.dumps(words)}; "
                         "document.getElementById('search').dispatchEvent(new Event('input'))")

    def assert_fits(self, show, name):
        """In three widths and both themes. `show` makes the page and loads it."""
        for width in (400, 1024, 1920):
            backs = set()
            for dark in (False, True):
                show(width=width, dark=dark)
                self.assertEqual(self.browser.run("document.documentElement.scrollWidth"), width)
                backs.add(self.browser.run("getComputedStyle(document.body).backgroundColor"))
                if ARGUMENTS.pictures:
                    self.browser.picture(ARGUMENTS.pictures / f"{name}-{width}-{'dark' if dark else 'light'}.png")
            self.assertEqual(len(backs), 2)
            self.browser.run("document.getElementById('theme').click()")
            self.assertIn(self.browser.run("getComputedStyle(document.body).backgroundColor"), backs)
        self.assertEqual(self.browser.complaints, [])


def main():
    parser = argparse.ArgumentParser()
    for argument in ("command", "shim", "--opencl-program", "--cuda-program"):
        parser.add_argument(argument, type=pathlib.Path)
    parser.add_argument("--cuda-libraries")
    parser.add_argument("--pictures", type=pathlib.Path, help="a folder for screenshots")
    rest = parser.parse_known_args(namespace=ARGUMENTS)[1]
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
