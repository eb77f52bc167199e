#!/usr/bin/python3
"""Copies that are held back (CISTERN_GATHER=on): how few the driver is asked for, what sends them, where none is held;
and that without the option the driver gets each copy in its call."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SHIM, SIMULATOR, PROGRAM, FORWARDS = sys.argv[1:5]


def run(case, preload=SHIM, **options):
    """The lines of the program, and the part of its report about small copies."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CISTERN_", "SIMCUDA_"))}
        environment = {**kept, "LD_LIBRARY_PATH": SIMULATOR, "LD_PRELOAD": preload,
                       "CISTERN_REPORT": str(report), "CISTERN_REPORT_FORMAT": "json", **options}
        done = subprocess.run([PROGRAM, case], env=environment, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError(f"{case}: {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout.splitlines(), json.loads(report.read_text()).get("gathered")


def gathering(case, **options):
    return run(case, CISTERN_GATHER="on", **options)


class Gather(unittest.TestCase):
    def test_many_copies_become_few(self):
        lines, gathered = gathering("many")
        self.assertEqual(lines, ["driver copies: 40", "right: yes"])  # a bounce buffer holds 682 slices
        self.assertEqual(gathered, {"copies": 26677, "bytes": 26677 * 3072, "submissions": 40,
                                    "sent": {"full": 39, "driver-call": 1}})

    def test_off_each_copy_is_the_drivers(self):
        lines, gathered = run("many")
        self.assertEqual((lines, gathered), (["driver copies: 26677", "right: yes"], None))

    def test_an_error_is_told_once_by_a_call_that_may_tell_it(self):
        self.assertEqual(gathering("refused")[0], ["errors: copy 0, allocation 0, wait 1", "then: CUDA_SUCCESS"])

    def test_fork_sends(self):
        lines, gathered = gathering("forks")
        self.assertEqual((lines, gathered["sent"]), (["before the fork: yes"], {"fork": 1}))

    def test_exit_sends(self):
        self.assertEqual(gathering("ends")[1]["sent"], {"exit": 1})

    def test_polling_is_why_it_is_off(self):
        held, plain = gathering("polls")[0], run("polls")[0]
        self.assertEqual(held, ["arrives without a further call: no", "arrives by then: yes"])
        self.assertEqual(plain, ["arrives without a further call: yes", "arrives by then: yes"])

    def test_functions_without_a_hook_send(self):
        self.assertEqual(gathering("looked_up")[0], ["copies before the call: 0, after it: 1"])

    def test_functions_out_of_sight_end_it(self):
        lines, gathered = gathering("by_dlsym")
        self.assertEqual(lines, ["found: yes", "copies: 1"])
        self.assertEqual((gathered["off"], gathered["off_for"]), ("unseen-function", "cuProfilerStart"))

    def test_deep_binding_ends_it(self):
        lines, gathered = gathering("deep_binding")
        self.assertEqual((lines, gathered["off"]), (["opened: yes", "copies: 1"], "deep-binding"))

    def test_an_unknown_table_of_functions_ends_it(self):
        lines, gathered = gathering("export_table")
        self.assertEqual(lines, ["copies after a table of the runtime's: 0", "after another one: 1"])
        self.assertEqual(gathered["off"], "export-table")

    def test_a_linked_copy_of_cistern_ends_it(self):
        lines, gathered = gathering("linked")
        self.assertEqual((lines, gathered["off"]), (["copies: 1"], "linked-library"))

    def test_not_behind_another_interposer(self):
        lines, gathered = gathering("many", preload=f"{FORWARDS}:{SHIM}")
        self.assertEqual((lines, gathered["off"]), (["driver copies: 26677", "right: yes"], "another-interposer"))

    def test_before_another_interposer(self):
        lines, gathered = gathering("many", preload=f"{SHIM}:{FORWARDS}")
        self.assertEqual(lines, ["driver copies: 40", "right: yes"])
        self.assertNotIn("off", gathered)

    def test_not_without_staging(self):
        self.assertEqual(gathering("ends", CISTERN_STAGING="off")[1]["off"], "staging-off")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
