"""Replays the look-ups that a real runtime makes, and others, against the simulated driver, plain and preloaded: the
answers are the driver's, and exactly the functions with a row in symbols/cuda.def are ours."""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RECORDED = HERE.parent / "simcuda" / "driver-lookups.txt"
ARGUMENTS = argparse.Namespace()

ROWS = """
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) ROW base version stream name;
#include "shim/symbols/cuda.def"
"""
# Versions between two ABIs of a function, before its first, and of drivers to come; names that no driver has.
OTHERS = [("cuMemAlloc", 2010, 0), ("cuMemAlloc", 3010, 0), ("cuMemAlloc", 12020, 0), ("cuMemAlloc", 12020, 1),
          ("cuMemAlloc", 12020, 2), ("cuMemAlloc", 99000, 0), ("cuMemAlloc", 0, 0), ("cuMemAlloc", -1, 0),
          ("cuMemAlloc_v2", 12000, 0), ("cuMemAlloc_v2", 3020, 0), ("cuMemcpyHtoD", 5000, 0),
          ("cuMemcpyHtoD", 5000, 2), ("cuMemcpyHtoD", 12000, 1), ("cuMemcpyHtoD", 12000, 2),
          ("cuMemcpyHtoD", 12000, 3), ("cuMemcpyHtoD", 99000, 2), ("cuMemcpyHtoD_v2_ptds", 12000, 0),
          ("cuMemAllocAsync", 11010, 0), ("cuMemAllocAsync", 12000, 1), ("cuMemAllocAsync", 12000, 2),
          ("cuMemcpyBatchAsync", 12090, 0), ("cuMemcpyBatchAsync", 12090, 2), ("cuMemcpyBatchAsync", 99000, 2),
          ("cuStreamBeginCapture", 10005, 0), ("cuStreamBeginCapture", 13000, 2), ("cuCtxCreate", 12000, 0),
          ("cuCtxCreate", 99000, 0), ("cuCtxSynchronize", 12090, 0), ("cuCtxSynchronize", 99000, 0),
          ("cuIpcOpenMemHandle", 10020, 0), ("cuIpcOpenMemHandle", 12020, 0), ("cuGetProcAddress", 11040, 0),
          ("cuGetProcAddress", 99000, 0), ("cuMemAllo", 12000, 0), ("cuMemAllocate", 12000, 0),
          ("CUMEMALLOC", 12000, 0),
          ("cudaMalloc", 12000, 0), ("cudnnCreate", 12000, 0), ("malloc", 12000, 0), ("", 0, 0), ("", 12000, 0),
          ("x" * 300, 12000, 0)]

Answer = collections.namedtuple(
    "Answer", "result status pointer result_without same_without result_before_12 before_12")


class Row(collections.namedtuple("Row", "base version stream name")):
    def serves(self, flags):
        return self.stream == "any" or (self.stream == "per_thread") == bool(flags & 2)


def rows_of_the_table():
    command = [ARGUMENTS.compiler, "-E", "-P", "-x", "c++", "-I", str(ROOT), "-"]
    text = subprocess.run(command, input=ROWS, check=True, capture_output=True, text=True).stdout
    return [Row(base, int(version), stream, name)
            for base, version, stream, name in re.findall(r"ROW (\w+) (\d+) (\w+) (\w+);", text)]


def recorded_queries():
    """Lines like "cuMemAlloc v=3020 f=0"; the name of the first is empty."""
    found = re.findall(r"^(\w*) ?v=(\d+) f=(\d+) *$", RECORDED.read_text(), re.MULTILINE)
    return [(name, int(version), int(flags)) for name, version, flags in found]


def replay(queries, preload):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(ARGUMENTS.driver.parent), "CISTERN_REPORT": "none"}
    environment.pop("LD_PRELOAD", None)
    if preload:
        environment["LD_PRELOAD"] = str(ARGUMENTS.shim)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(f"{name} {version} {flags}\n" for name, version, flags in queries))
        file.flush()
        done = subprocess.run([ARGUMENTS.replay, file.name], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the replay ended with {done.returncode}: {done.stdout}{done.stderr}")
    answers, wrong_calls = {}, []
    for line in done.stdout.splitlines():
        fields = line.split("|")
        if len(fields) == 10:
            name, version, flags, result, status, pointer, without, same, before, pointer_before = fields
            answers[name, int(version), int(flags)] = Answer(
                int(result), int(status), pointer, int(without), same, int(before), pointer_before)
        else:
            wrong_calls.append(line)
    return answers, wrong_calls, done.stderr


class LookUps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rows = rows_of_the_table()
        cls.recorded = recorded_queries()
        of_rows = [(row.base, row.version, flags) for row in cls.rows for flags in (0, 1, 2)]
        queries = list(dict.fromkeys(cls.recorded + OTHERS + of_rows))
        cls.plain, cls.plain_wrong, _ = replay(queries, preload=False)
        cls.ours, cls.ours_wrong, cls.said = replay(queries, preload=True)
        cls.shim = ARGUMENTS.shim.name

    def row_of(self, query):
        """The row whose very function the driver means, by what it answers for the row's own version."""
        name, version, flags = query
        rows = [row for row in self.rows if row.base == name and row.version <= version and row.serves(flags)]
        if not rows or self.plain[query].pointer == "null 0":
            return None
        row = max(rows, key=lambda row: row.version)
        same = self.plain[row.base, row.version, flags].pointer == self.plain[query].pointer
        return row if same else None

    def test_the_recorded_look_ups_are_all_here(self):
        self.assertEqual(len(self.recorded), 440)
        self.assertEqual(self.recorded[0], ("", 0, 0))
        self.assertEqual(set(self.plain), set(self.ours))
        answered = [query for query in self.recorded if self.plain[query].pointer != "null 0"]
        self.assertGreater(len(answered), 400, "the simulated driver answers too few of them")

    def assert_no_difference(self, differences):
        shown = "\n".join(map(str, differences[:20]))
        self.assertEqual(len(differences), 0, f"\n{shown}\n({len(differences)} in all)")

    def test_result_status_and_null_are_those_of_the_driver(self):
        def without_pointers(answer):
            return answer._replace(pointer=answer.pointer == "null 0", before_12=answer.before_12 == "null 0")

        self.assert_no_difference([(query, plain, self.ours[query]) for query, plain in self.plain.items()
                                   if without_pointers(plain) != without_pointers(self.ours[query])])

    def test_exactly_the_rows_of_the_table_are_substituted(self):
        wrong = []
        for query, plain in self.plain.items():
            row = self.row_of(query)
            for pointer, real in ((self.ours[query].pointer, plain.pointer),
                                  (self.ours[query].before_12, plain.before_12)):
                ours = row and real != "null 0"
                if ours and pointer.split()[0] != self.shim or not ours and pointer != real:
                    wrong.append((query, "expected: " + (str(row) if ours else real), "answered: " + pointer))
        self.assert_no_difference(wrong)

    def test_the_recorded_look_ups_of_rows_are_substituted(self):
        # By the rows alone: a runtime asks for the versions that introduced an ABI.
        keys = {(row.base, row.version, row.stream) for row in self.rows}
        wrong = []
        for query in self.recorded:
            name, version, flags = query
            expected = any((name, version, stream) in keys
                           for stream in ("any", "per_thread" if flags & 2 else "legacy"))
            pointer = self.ours[query].pointer
            if pointer != "null 0" and pointer.startswith(self.shim + " ") != expected:
                wrong.append((query, pointer, "has a row" if expected else "has no row"))
        self.assert_no_difference(wrong)

    def test_every_row_has_one_function_of_its_own(self):
        pointers = collections.defaultdict(set)
        for query, answer in self.ours.items():
            row = self.row_of(query)
            if row:
                pointers[row.name].add(answer.pointer)
        self.assertEqual({name: found for name, found in pointers.items() if len(found) != 1}, {})
        users = collections.defaultdict(list)
        for name, found in pointers.items():
            users[next(iter(found))].append(name)
        self.assertEqual([names for names in users.values() if len(names) > 1], [], "rows that share a hook")

    def test_rows_that_no_look_up_reaches(self):
        reached = {row.name for row in map(self.row_of, self.plain) if row}
        self.assertEqual(sorted({row.name for row in self.rows} - reached), [], "the driver never answers these")

    def test_mistaken_calls_get_the_answer_of_the_driver(self):
        self.assertEqual(len(self.plain_wrong), 6)
        self.assertEqual(self.ours_wrong[1:], self.plain_wrong[1:])
        self.assertRegex(self.plain_wrong[0], r"found by dlsym\|libcuda")
        self.assertRegex(self.ours_wrong[0], rf"found by dlsym\|{re.escape(self.shim)}")

    def test_nothing_was_said(self):
        self.assertEqual(self.said, "")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--shim", type=pathlib.Path, required=True)
    parser.add_argument("--driver", type=pathlib.Path, required=True)
    parser.add_argument("--replay", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", required=True)
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
