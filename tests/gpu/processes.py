"""Child processes that cannot outlive their time: started in a session of their own, ended with all descendants."""
import os
import pathlib
import signal
import subprocess
import time


class Ended:
    """What a process left behind. `code` is None where it was ended for its time."""

    def __init__(self, code, stdout, stderr, seconds):
        self.code, self.stdout, self.stderr, self.seconds = code, stdout, stderr, seconds

    def how(self):
        if self.code is None:
            return f"ended after {self.seconds:.0f} s"
        if self.code < 0:
            return f"signal {-self.code}"
        return f"exit code {self.code}"

    def last_words(self):
        lines = [line for line in (self.stderr or self.stdout).splitlines() if line.strip()]
        return lines[-1][:200] if lines else ""


def descendants(root):
    """Also those in sessions of their own: by parent, from /proc."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
    found, level = [], {root}
    while level:
        level = {child for child, parent in parents.items() if parent in level}
        found += level
    return found


def end(process):
    for identity in [*descendants(process.pid), process.pid]:
        try:
            os.kill(identity, signal.SIGKILL)
        except OSError:
            continue


def run(command, environment, seconds, folder=None):
    start = time.monotonic()
    process = subprocess.Popen([str(part) for part in command], env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                               start_new_session=True, cwd=folder)
    try:
        stdout, stderr = process.communicate(timeout=max(seconds, 0.1))
        code = process.returncode
    except subprocess.TimeoutExpired:
        end(process)
        try:
            stdout, stderr = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:  # stuck in the driver: not even a kill ends it
            stdout, stderr = "", ""
        code = None
    return Ended(code, stdout, stderr, time.monotonic() - start)
