#!/usr/bin/python3
"""Benchmarks as series over commits: bench/results/series/NAME.tsv, and a picture of each beside it.

    bench/series.py --list
    bench/series.py --add NAME BUILD_DIRECTORY [--rounds N]   runs the benchmark, appends a row, draws
    bench/series.py --draw [NAME...]                          draws these, or all

A line of a table is a date, a commit, the machine, what else went on there, and a value for each system. The fields
are divided by tabs, and "-" says that something is not known. The lines before the heading begin with "#": the title
and the unit of all values. Rows are ordered by date. A commit that ends in "+" was measured with changes on top.

In the picture, rows of different machines are not joined: their values cannot be compared. --folder names another
folder of tables."""
import argparse
import dataclasses
import datetime
import html
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parent
FIXED = ("date", "commit", "machine", "conditions")
UNKNOWN = "-"
# The values of a series by system, out of what the benchmark wrote as JSON.
OURS = "cistern"


def renamed(values):
    return {OURS if name == "ours" else name: value for name, value in values.items()}


BENCHMARKS = {
    "host-pairs": (["host.py", "--nanoseconds", "--only", "^pair 64 B"],
                   lambda found: renamed(found["nanoseconds"]["table"]["pair 64 B"])),
    "host-instructions": (["host.py", "--instructions", "--only", "^pair 64 B"],
                          lambda found: renamed(found["instructions"]["table"]["pair 64 B"])),
    "host-workloads": (["host.py", "--workloads"], lambda found: renamed(
        {name: means["cpu_us"] for name, means in found["workloads"]["geometric_means"].items()})),
    "opencl-buffers": (["opencl.py"], lambda found: {
        {"plain": "plain", "sites off": "cistern, sites off", "sites on": OURS}[way]: value
        for way, value in found["minima"]["untouched/4096"].items()}),
}


class Broken(Exception):
    """A line of a table that cannot be read, as FILE:LINE: why."""


@dataclasses.dataclass
class Row:
    date: str
    commit: str
    machine: str
    conditions: str
    values: list  # None: not measured


@dataclasses.dataclass
class Series:
    title: str
    unit: str
    systems: list
    rows: list


# --- Tables

def value_of(text, system):
    if text == UNKNOWN:
        return None
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{system}: {text!r} is no number") from None
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{system}: {text} is no value of a measurement")
    return value


def row_of(line, systems):
    fields = line.split("\t")
    if len(fields) != len(FIXED) + len(systems):
        raise ValueError(f"{len(fields)} fields; the heading has {len(FIXED) + len(systems)}")
    date, commit, machine, conditions = fields[:len(FIXED)]
    try:
        datetime.date.fromisoformat(date)
    except ValueError:
        raise ValueError(f"{date!r} is no date (2026-11-26)") from None
    if commit != UNKNOWN and not re.fullmatch(r"[0-9a-f]{7,40}\+?", commit):
        raise ValueError(f"{commit!r} is no commit; {UNKNOWN!r} says that it is not known")
    if not machine or not conditions:
        raise ValueError(f"machine and conditions are words; {UNKNOWN!r} says that they are not known")
    values = [value_of(text, system) for text, system in zip(fields[len(FIXED):], systems)]
    return Row(date, commit, machine, conditions, values)


def heading_of(line):
    fields = line.split("\t")
    if tuple(fields[:len(FIXED)]) != FIXED or len(set(fields)) != len(fields) or len(fields) == len(FIXED):
        raise ValueError(f"the heading is {', '.join(FIXED)} and a name for each system")
    return fields[len(FIXED):]


def read(path):
    about, series = [], None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            if series is None and line.startswith("#"):
                about.append(line[1:].strip())
            elif series is None:
                if len(about) != 2:
                    raise ValueError("two lines with # come first: the title and the unit")
                series = Series(*about, heading_of(line), [])
            else:
                row = row_of(line, series.systems)
                if series.rows and row.date < series.rows[-1].date:
                    raise ValueError(f"{row.date} is before the row above")
                series.rows.append(row)
        except ValueError as why:
            raise Broken(f"{path}:{number}: {why}") from None
    if series is None or not series.rows:
        raise Broken(f"{path}: there is no row")
    return series


# --- A new row

def machine():
    processor = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{processor[1] if processor else os.uname().machine}, {os.cpu_count()} cores"


def commit():
    def git(*words):
        return subprocess.run(["git", "-C", BENCH, *words], capture_output=True, text=True, check=True).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/bench/results")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def add(name, path, build, rounds):
    series = read(path)
    command, values_of = BENCHMARKS[name]
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "result.json"
        done = subprocess.run([BENCH / command[0], build, *command[1:], "--rounds", str(rounds), "--json", result])
        if not result.exists():
            sys.exit(f"series.py: {command[0]} ended with {done.returncode} and wrote no result")
        values = values_of(json.loads(result.read_text()))
    fields = [datetime.date.today().isoformat(), commit(), machine(), f"load {load:.0f}, {rounds} rounds"]
    fields += [f"{values[system]:.4g}" if system in values else UNKNOWN for system in series.systems]
    with path.open("a") as file:
        file.write("\t".join(fields) + "\n")


# --- Pictures
# One colour for a system in all pictures: on a light ground, on a dark one. Peers that are not listed are grey.
COLOURS = {OURS: ("#0b6bcb", "#6cb6ff"), "cistern, sites off": ("#0f8a8a", "#4fd1c5"), "plain": ("#6b6b6b", "#a8a8a8"),
           "glibc": ("#6b6b6b", "#a8a8a8"), "jemalloc": ("#b8442a", "#ff8f73"), "tcmalloc": ("#3d7a1f", "#8fd06a"),
           "mimalloc": ("#8a3fa8", "#d69bf0")}
OTHER_COLOURS = ("#6b6b6b", "#a8a8a8")
WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 56, 64
LINE = 16  # between labels
DATES_MAX = 7


def ticks_up_to(most):
    """Their step is 1, 2 or 5 times a power of ten; some five reach the highest value."""
    rough = (most or 1) / 5
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough)
    return [step * i for i in range(math.ceil((most or 1) / step) + 1)]


def apart(wanted):
    """Those places for labels, moved so far that none covers another: {name: place}."""
    placed, floor = {}, -math.inf
    for name, place in sorted(wanted.items(), key=lambda one: one[1]):
        floor = placed[name] = max(place, floor + LINE)
    over = floor - (HEIGHT - BOTTOM)
    if over > 0:
        ceiling = math.inf
        for name in reversed(list(placed)):
            ceiling = placed[name] = min(placed[name], ceiling - LINE, HEIGHT - BOTTOM)
    return placed


def same_machine(one, other):
    return one.machine == other.machine != UNKNOWN


class Picture:
    def __init__(self, series):
        self.series = series
        self.ticks = ticks_up_to(max((value for row in series.rows for value in row.values if value is not None),
                                     default=1))
        self.parts = []

    def x(self, number):
        wide = WIDTH - LEFT - RIGHT
        return LEFT + wide * (number + 0.5) / len(self.series.rows)

    def y(self, value):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.ticks[-1]

    def add(self, tag, text="", **attributes):
        written = "".join(f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
                          for name, value in attributes.items())
        self.parts.append(f"<{tag}{written}>{text}</{tag}>" if text else f"<{tag}{written}/>")

    def text(self, x, y, words, **attributes):
        self.add("text", html.escape(words), x=f"{x:.1f}", y=f"{y:.1f}", **attributes)

    def draw(self):
        style, dark = [self.ground("#ffffff", "#1c1c1c", "#dcdcdc")], [self.ground("#161b22", "#e6e6e6", "#3a414a")]
        for number, system in enumerate(self.series.systems):
            for sheet, colour in zip((style, dark), COLOURS.get(system, OTHER_COLOURS)):
                sheet.append(f".s{number} {{ stroke: {colour}; fill: {colour} }}")
        self.parts.append("<style>" + "\n".join([
            "text { font: 12px system-ui, sans-serif } .title { font-size: 15px }",
            *style, "@media (prefers-color-scheme: dark) {", *dark, "}",
            ".line { fill: none; stroke-width: 2 } .leader { stroke-width: 1 }"]) + "</style>")
        self.add("rect", class_="ground", width=WIDTH, height=HEIGHT)
        self.text(LEFT, 22, self.series.title, class_="title")
        self.axes()
        for number in range(len(self.series.systems)):
            self.line(number)
        self.labels()
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
                f'aria-label="{html.escape(self.series.title)}">')
        return "\n".join([head, *self.parts, "</svg>"]) + "\n"

    @staticmethod
    def ground(ground, text, grid):
        return f".ground {{ fill: {ground} }} text {{ fill: {text} }} .grid {{ stroke: {grid} }}"

    def axes(self):
        self.text(LEFT, 42, self.series.unit, class_="unit")
        for tick in self.ticks:
            self.add("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{self.y(tick):.1f}",
                     y2=f"{self.y(tick):.1f}")
            self.text(LEFT - 8, self.y(tick) + 4, f"{tick:g}", text_anchor="end", class_="tick")
        for number, row in enumerate(self.series.rows):
            if (len(self.series.rows) - 1 - number) % math.ceil(len(self.series.rows) / DATES_MAX) == 0:
                self.text(self.x(number), HEIGHT - BOTTOM + 18, row.date, text_anchor="middle", class_="date")
                commit = row.commit if row.commit != UNKNOWN else ""
                self.text(self.x(number), HEIGHT - BOTTOM + 34, commit, text_anchor="middle", class_="commit")
            if number and not same_machine(self.series.rows[number - 1], row):
                between = (self.x(number - 1) + self.x(number)) / 2
                self.add("line", class_="grid machine", x1=f"{between:.1f}", x2=f"{between:.1f}", y1=TOP,
                         y2=HEIGHT - BOTTOM, stroke_dasharray="3 4")
                unknown = UNKNOWN in (row.machine, self.series.rows[number - 1].machine)
                words = "machine not known" if unknown else "another machine"
                self.text(between, HEIGHT - BOTTOM + 52, words, text_anchor="middle", class_="machine")
        for place, words in ((18, "date"), (34, "commit")):
            self.text(WIDTH - RIGHT + 12, HEIGHT - BOTTOM + place, words, class_="axis")

    def line(self, system):
        runs = [run := []]
        for number, row in enumerate(self.series.rows):
            value = row.values[system]
            if value is None or (number and not same_machine(self.series.rows[number - 1], row)):
                runs.append(run := [])
            if value is None:
                continue
            run.append(f"{self.x(number):.1f},{self.y(value):.1f}")
            self.add("circle", f"<title>{html.escape(self.about(row, system))}</title>", class_=f"s{system}",
                     cx=f"{self.x(number):.1f}", cy=f"{self.y(value):.1f}", r=3.5)
        for points in runs:
            if len(points) > 1:
                self.add("polyline", class_=f"line s{system}", points=" ".join(points))

    def about(self, row, system):
        words = [f"{self.series.systems[system]}: {row.values[system]:g} {self.series.unit}", row.date, row.commit,
                 row.machine, row.conditions]
        return "; ".join(word for word in words if word != UNKNOWN)

    def labels(self):
        """Each at the height of its last value, with a line to it."""
        last = {system: max((number for number, row in enumerate(self.series.rows) if row.values[system] is not None),
                            default=None) for system in range(len(self.series.systems))}
        last = {system: number for system, number in last.items() if number is not None}
        places = apart({system: self.y(self.series.rows[number].values[system]) for system, number in last.items()})
        for system, number in last.items():
            at, place = self.y(self.series.rows[number].values[system]), places[system]
            self.add("line", class_=f"leader s{system}", x1=f"{self.x(number) + 6:.1f}", y1=f"{at:.1f}",
                     x2=WIDTH - RIGHT + 8, y2=f"{place:.1f}")
            self.text(WIDTH - RIGHT + 12, place + 4, self.series.systems[system], class_="label")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true")
    what.add_argument("--add", nargs=2, metavar=("NAME", "BUILD_DIRECTORY"))
    what.add_argument("--draw", nargs="*", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path, default=BENCH / "results" / "series")
    given = parser.parse_args()
    names = [given.add[0]] if given.add else given.draw or sorted(path.stem for path in given.folder.glob("*.tsv"))
    for name in names:
        path = given.folder / f"{name}.tsv"
        if not path.exists() or (given.add and name not in BENCHMARKS):
            sys.exit(f"series.py: there is no series {name}; --list prints those that there are")
        try:
            if given.add:
                add(name, path, pathlib.Path(given.add[1]).resolve(), given.rounds)
            series = read(path)
        except Broken as why:
            sys.exit(f"series.py: {why}")
        if given.list:
            print(f"{name}: {series.title}; {len(series.rows)} rows")
        else:
            path.with_suffix(".svg").write_text(Picture(series).draw())


if __name__ == "__main__":
    main()
