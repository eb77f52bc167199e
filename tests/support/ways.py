"""Runs a program in an environment and keeps what it said and reported; shows where two texts differ. For the tests
that run one program all ways."""
import difflib
import os
import pathlib
import signal
import subprocess
import tempfile

import report_checks

TIME_LIMIT_S = 120


def run(command, environment):
    """The ended process, its stdout and stderr, and the reports by process. `environment`: makes it, given the folder
    for the reports."""
    with tempfile.TemporaryDirectory() as reports:
        process = subprocess.Popen(command, env=environment(reports), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
        try:
            stdout, stderr = process.communicate(timeout=TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its children hold the pipes too
            stdout, stderr = process.communicate()
            stderr += f"\n(killed after {TIME_LIMIT_S} s)"
        # Children that it forked or executed report too; those it forked free what they did not allocate.
        found = [report_checks.read(path, inherited=path.name != f"{process.pid}.json")
                 for path in pathlib.Path(reports).iterdir()]
    return process, stdout, stderr, {report["cistern"]["pid"]: report for report in found}


def difference(expected, got, name):
    """Of two lists of lines."""
    lines = difflib.unified_diff(expected, got, "expected", name, lineterm="", n=2)
    return "\n".join(list(lines)[:40])
