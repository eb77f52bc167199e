"""Promises of the source tree: the rooms that each room may include, and the plain rules of style."""
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDERS = ("pool", "stats", "backends", "shim", "tests", "bench", "scripts", "cmake")
CODE = {".cpp", ".hpp", ".h", ".c", ".S", ".def", ".in", ".py", ".cmake", ".sh", ".cl", ".js", ".css"}
COLUMNS_MAX = 120
COMMENT = re.compile(r"//|/\*|#(?!include|pragma|define|if)|\"\"\"")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
# The folders of the library are its rooms: one file of each says what it is for and which others it may include. The
# entry points in shim itself may include all.
LIBRARY = ("pool", "stats", "backends", "shim")
SOURCES = {".cpp", ".hpp", ".h"}
RULE = re.compile(r"^// Room: .+\n(?:// .+\n)*?// May include: ((?:.|\n//  )+?)\.$", re.MULTILINE)
# Public headers and tables include nothing of ours.
ROOMS_WITHOUT_RULE = {"shim/include/cistern": (), "shim/symbols": ()}
# The room that makes code of a table's rows; all.def is for the entry points.
TABLES = {"shim/options.def": "shim/process", "shim/kinds.def": "shim/core", "shim/symbols/host.def": "shim/host",
          "shim/symbols/opencl.def": "shim/opencl", "shim/symbols/cuda.def": "shim/cuda",
          "shim/symbols/cuda_known.def": "shim/cuda", "shim/symbols/library.def": "shim/library"}
# Declarations of our own stand in for these (backends/): one binary serves every version of them.
FOREIGN = re.compile(r"^(CL/|cuda|nv)")


def sources_of(root):
    """Every file with code in a room, with the room's name."""
    for folder in LIBRARY:
        for path in sorted((root / folder).rglob("*")):
            room = str(path.parent.relative_to(root))
            if path.suffix in SOURCES and room != "shim":
                yield path, room


def rules(root):
    """Room -> the rooms that it may include, and what is wrong with the rules themselves."""
    found, wrong = dict(ROOMS_WITHOUT_RULE), []
    for path, room in sources_of(root):
        for rule in RULE.findall(path.read_text()):
            if room in found:
                wrong.append(f"{room}: a second rule in {path.name}")
                continue
            named = {name.strip() for name in rule.replace("\n//", " ").split(",")} - {"nothing of ours"}
            found[room] = (named, "everything" in named)
    wrong += [f"{room}: no file has the lines `// Room:` and `// May include:`"
              for room in sorted({r for _, r in sources_of(root)}) if room not in found]
    kinds = {room.split("/")[1] for room in found if re.match(r"backends/", room)} | {"host"}
    for room, rule in found.items():
        kind = next((k for k in kinds if re.match(rf"(shim|backends)/{k}\b", room)), None)
        others = [name for name in (rule[0] if rule else ()) for k in kinds - {kind} if kind and f"/{k}" in name]
        wrong += [f"{room}: a kind may not include another: {name}" for name in others]
    return found, wrong


def room_of(included):
    if included in TABLES:
        return TABLES[included]
    return "shim/include/cistern" if included.startswith("cistern/") else str(pathlib.Path(included).parent)


def wrong_includes(root):
    """Every #include that leads out of its room, as "file: included", and every rule that is missing or wrong."""
    allowed, wrong = rules(root)
    for path, room in sources_of(root):
        named, everything = allowed.get(room) or ((), False)
        for mark, included in INCLUDE.findall(path.read_text()):
            if path.stem.endswith("_test") and included.startswith("tests/support/"):
                continue
            ours = mark == '"' and (everything and room_of(included) in allowed or room_of(included) in (room, *named))
            if FOREIGN.match(included) or (mark == '"' and not ours):
                wrong.append(f"{path.relative_to(root)}: {included}")
    return wrong


LOCK = re.compile(r"^[^/\n]*\b(?:Spin|Long)?Lock (\w+)(?:\{\})?;", re.MULTILINE)


# A clock of the parent is never asked in the child.
LOCKS_LEFT_BEHIND = {"backends/opencl/queue_clock.hpp: lock_"}


def forgotten_locks(root):
    """Every lock that the thread which forks neither takes nor makes new in the child, as "file: name"."""
    texts = {path.relative_to(root): path.read_text()
             for path, room in sources_of(root) if not path.stem.endswith("_test")}
    forgotten = set()
    for path, text in texts.items():
        for name in LOCK.findall(text):
            # A public member is taken by whoever has it, all others beside where they are declared.
            public = path.suffix == ".hpp" and not name.endswith("_")
            where = [t for other, t in texts.items() if public or other.with_suffix("") == path.with_suffix("")]
            taken = all(any(re.search(rf"\b{name}\.{call}\(\)", t) for t in where)
                        for call in ("lock_for_fork", "unlock_after_fork"))
            if not taken and not any(re.search(rf"new \(&(?:\w+\.)?{name}\) (?:Spin|Long)?Lock", t) for t in where):
                forgotten.add(f"{path}: {name}")
    return sorted(forgotten - LOCKS_LEFT_BEHIND)


def files_with_rules(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            script = folder == "scripts" and path.is_file() and not path.suffix
            if path.suffix in CODE or path.name == "CMakeLists.txt" or script:
                yield path
    yield root / "CMakeLists.txt"


def breaches_of_style(path):
    text = path.read_text()
    lines = text.split("\n")
    first = lines[1] if lines[0].startswith("#!") and len(lines) > 1 else lines[0]
    if not COMMENT.match(first):
        yield "does not begin with a comment that says what the file is for"
    if not text.endswith("\n") or text.endswith("\n\n"):
        yield "does not end with one newline"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX:
            yield f"line {number} has {len(line)} columns"
        if line != line.rstrip():
            yield f"line {number} ends with a space"
        if "\t" in line:
            yield f"line {number} has a tab"
        if re.search(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b", line):
            yield f"line {number} puts something off"


# Tests of what happens to an option that does not exist.
WRONG_ON_PURPOSE = {"CISTERN_DEVICE_LIMITS", "CISTERN_POOOL", "CISTERN_REPROT", "CISTERN_XYZZY"}


def options_of(root):
    return set(re.findall(r"^OPTION\(\w+, \w+, (CISTERN_\w+)", (root / "shim/options.def").read_text(), re.MULTILINE))


def options_in_tests(root):
    """The options that the tests set, under their whole names; some pass it as OPENCL_POOL="off"."""
    found = set()
    for path in (root / "tests").rglob("*.py"):
        text = path.read_text() if path != pathlib.Path(__file__).resolve() else ""
        found |= set(re.findall(r"\bCISTERN_(?!TEST_)[A-Z_]+\b", text))
        short = re.findall(r"\b([A-Z]+(?:_[A-Z]+)*)=(?=[f\"])", text)
        found |= {"CISTERN_" + name for name in short} & options_of(root)
    return found - WRONG_ON_PURPOSE


class Options(unittest.TestCase):
    """A test that sets an option which is gone would test nothing, and hold."""

    def test_those_that_tests_set_exist(self):
        self.assertEqual(sorted(options_in_tests(ROOT) - options_of(ROOT)), [],
                         "tests set these, and shim/options.def has no such option")

    def test_each_is_set_by_a_test(self):
        self.assertGreater(len(options_of(ROOT)), 20)
        self.assertEqual(sorted(options_of(ROOT) - options_in_tests(ROOT)), [],
                         "a test in Python must set each option to a text: CISTERN_NAME,"
                         " NAME=\"...\" or NAME=f\"...\", "
                         "not NAME=2")

    def test_one_that_is_gone_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "shim").mkdir()
            (root / "tests").mkdir()
            (root / "shim/options.def").write_text('OPTION(on_off, new, CISTERN_NEW, "on", "x")\n')
            (root / "tests/a.py").write_text("# A test.\nrun(environment={'CISTERN_GONE': 'off'})\n")
            self.assertEqual(options_in_tests(root) - options_of(root), {"CISTERN_GONE"})
            self.assertEqual(options_of(root) - options_in_tests(root), {"CISTERN_NEW"})


class Layers(unittest.TestCase):
    def test_no_include_leads_out_of_its_layer(self):
        found = wrong_includes(ROOT)
        self.assertTrue(not found, "\n" + "\n".join(found) +
                        "\nA line `FILE: INCLUDED` is an include that the room of FILE does not allow. One file of the "
                        "room lists the rooms that it may include, in a line `// May include:`.")

    def test_the_library_names_no_kind(self):
        # But host memory, which is the other side of every copy.
        named = re.compile(r"\bCISTERN_(?:DEVICE|OPENCL|PINNED|MANAGED)\b|\b(?:cuda|opencl|host)::")
        self.assertEqual([f"{path.name}: {hit}" for path, room in sources_of(ROOT) if room == "shim/library"
                          for hit in named.findall(path.read_text())], [],
                         "shim/library asks the kind through the tables of kind_memory.hpp instead")

    def test_the_page_of_the_rooms_names_all(self):
        page = (ROOT / "shim/README.md").read_text()
        self.assertEqual([room for room in rules(ROOT)[0] if f"`{room}`" not in page], [],
                         "the table of shim/README.md has a row for each folder with code")

    def test_each_breach_is_seen(self):
        rule = "// A file.\n//\n// Room: x.\n// May include: {}.\n"
        rooms = {"pool/base": "nothing of ours", "pool": "pool/base", "stats": "pool/base,\n//   pool",
                 "backends/cuda": "pool", "backends/opencl": "pool", "shim/process": "stats",
                 "shim/cuda": "backends/cuda, shim/process", "shim/opencl": "backends/opencl, shim/cuda",
                 "shim/core": "everything"}
        right = ("stats/ok.cpp: pool/base/lock.hpp", "shim/core/ok.cpp: shim/cuda/state.hpp",
                 "shim/cuda/ok.cpp: shim/symbols/cuda.def", "pool/ok_test.cpp: tests/support/fake.hpp",
                 "shim/core/ok2.cpp: shim/kinds.def", "shim/entry_x.cpp: shim/lifecycle.hpp")
        wrong = ("backends/cuda/a.hpp: backends/opencl/api.hpp", "backends/opencl/c.cpp: CL/cl.h",
                 "pool/a.hpp: stats/sites.hpp", "pool/base/b.hpp: pool/source.hpp",
                 "pool/h.cpp: tests/support/fake.hpp",
                 "shim/core/d.cpp: shim/lifecycle.hpp", "shim/cuda/e.cpp: shim/opencl/state.hpp",
                 "shim/cuda/f.cpp: shim/symbols/opencl.def", "shim/cuda/g.cpp: shim/symbols/all.def",
                 "shim/process/i.cpp: shim/host/hooks/hooks.hpp", "stats/f.cpp: f.hpp")
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for room, included in rooms.items():
                (root / room).mkdir(parents=True, exist_ok=True)
                (root / room / "rule.hpp").write_text(rule.format(included))
            for name, included in (one.split(": ") for one in (*right, *wrong)):
                marks = "<>" if included.startswith("CL/") else '""'
                (root / name).write_text(f"// A file.\n#include {marks[0]}{included}{marks[1]}\n")
            (root / "stats/second.hpp").write_text(rule.format("pool"))
            (root / "pool/heap").mkdir()
            (root / "pool/heap/no_rule.cpp").write_text("// A file.\n")
            self.assertEqual(sorted(wrong_includes(root)), sorted([
                *wrong, "pool/heap: no file has the lines `// Room:` and `// May include:`",
                "stats: a second rule in second.hpp",
                "shim/opencl: a kind may not include another: shim/cuda"]))


class Locks(unittest.TestCase):
    def test_every_lock_is_thought_of_at_a_fork(self):
        found = forgotten_locks(ROOT)
        self.assertTrue(not found, "\n" + "\n".join(found) +
                        "\nA fork must take each of these locks (lock_for_fork) and return it (unlock_after_fork), or "
                        "make it again in the child: see shim/core/fork.cpp.")

    def test_a_forgotten_lock_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in (("pool/a.cpp", "constinit Lock a_lock;  // of a\n"),
                               ("pool/b.cpp", "Lock b_lock;\nb_lock.lock_for_fork(); b_lock.unlock_after_fork();\n"),
                               ("pool/c.hpp", "  mutable Lock lock_;\n"), ("pool/c.cpp", "new (&lock_) Lock;\n"),
                               ("pool/d.hpp", "  SpinLock lock{};\nshard.lock.lock_for_fork();\n"),
                               ("pool/e_test.cpp", "Lock of_a_test;\n"), ("pool/f.cpp", "Lock& reference;\n")):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            self.assertEqual(forgotten_locks(root), ["pool/a.cpp: a_lock", "pool/d.hpp: lock"])


IN_THE_ROOT = {"backends", "bench", "build", "pool", "scripts", "shim", "stats", "tests", "CMakeLists.txt",
               "CMakePresets.json", "LICENSE", "README.md", "THIRD-PARTY"}


class Style(unittest.TestCase):
    def test_the_page_of_the_tests_names_each_folder(self):
        page = (ROOT / "tests/README.md").read_text()
        folders = {path.parent.name for path in (ROOT / "tests").glob("*/CMakeLists.txt")} | {"support"}
        self.assertEqual([folder for folder in sorted(folders) if f"`{folder}`" not in page], [],
                         "a table of tests/README.md has a row for each folder with tests")

    def test_every_file_keeps_the_rules(self):
        found = [f"{path.relative_to(ROOT)}: {breach}"
                 for path in files_with_rules(ROOT) for breach in breaches_of_style(path)]
        self.assertTrue(not found, "\n" + "\n".join(found))

    def test_the_root_has_nothing_else(self):
        found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
        self.assertEqual(found - IN_THE_ROOT, set(), "tools leave things where they run")

    def test_breaches_are_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.cpp"
            path.write_text("int a; \n\tint b;\n" + "c" * 121)
            self.assertEqual(len(list(breaches_of_style(path))), 5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=2)
