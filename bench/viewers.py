"""From a program to an answer: memray, heaptrack and `cistern run` + `cistern html` beside each other.

Prints the seconds of the run and of the answer (least of several, in turn) and the size of the file. It also says
whether the answer names the function that holds the memory.

usage: viewers.py BUILD [--rounds N] [--memray PATH] [--torch PYTHON]
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TORCH = """
import torch
torch.set_num_threads(1)
kept = []
def train_step(model, batch):
    loss = model(batch).sum()
    loss.backward()
    kept.append(torch.zeros(65536) + loss.detach())
model = torch.nn.Linear(512, 512)
for _ in range(400): train_step(model, torch.randn(64, 512))
"""


def seconds(command, folder, environment):
    began = time.monotonic()
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=False)
    if done.returncode:
        print(done.stderr.decode(errors="replace")[-500:], file=sys.stderr)
    return time.monotonic() - began


def size_of(paths):
    return sum(path.stat().st_size for path in paths)


class Tool:
    """`run` and `answer` are commands, `written` finds their files, and `text` is searched for a name."""

    def __init__(self, name, run, answer, written, text):
        self.name, self.run, self.answer, self.written, self.text = name, run, answer, written, text
        self.run_s = self.answer_s = float("inf")

    def measure(self, folder, environment):
        self.run_s = min(self.run_s, seconds(self.run, folder, environment))
        self.answer_s = min(self.answer_s, seconds(self.answer, folder, environment))


def tools(build, memray, command, is_python):
    yield Tool("cistern", [build / "cistern", "run", "-o", "cistern", "--", *command],
               [build / "cistern", "html", "cistern", "-o", "cistern.html"],
               lambda folder: [folder / "cistern.html"], [build / "cistern", "report", "cistern"])
    if shutil.which("heaptrack"):
        yield Tool("heaptrack", ["heaptrack", "-o", "heaptrack", *command],
                   ["sh", "-c", "heaptrack_print heaptrack.* > printed.txt"],
                   lambda folder: [*folder.glob("heaptrack.*")], ["cat", "printed.txt"])
    if memray and is_python:
        yield Tool("memray", [memray, "run", "--native", "-f", "-q", "-o", "memray.bin", command[1]],
                   [memray, "flamegraph", "-f", "-o", "memray.html", "memray.bin"],
                   lambda folder: [folder / "memray.html"], ["cat", "memray.html"])


def row(tool, folder, environment, name):
    shown = subprocess.run([str(word) for word in tool.text], cwd=folder, env=environment, capture_output=True,
                           check=False).stdout.decode(errors="replace")
    size = size_of(path for path in tool.written(folder) if path.exists())
    print(f"  {tool.name:<10} run {tool.run_s:6.2f} s  answer {tool.answer_s:6.2f} s  {size / 1024:8.0f} KiB  "
          f"{'names' if name in shown else 'does not name'} {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memray", type=pathlib.Path, help="memray of an environment that sees pyopencl")
    parser.add_argument("--torch", type=pathlib.Path, help="a Python that has PyTorch and memray")
    given = parser.parse_args()
    build = given.build.resolve()
    memray_of_pyopencl, torch = given.memray and given.memray.absolute(), given.torch and given.torch.absolute()
    python = memray_of_pyopencl.parent / "python" if memray_of_pyopencl else "/usr/bin/python3"
    with tempfile.TemporaryDirectory() as temporary:
        torch_program = pathlib.Path(temporary) / "torch_program.py"
        torch_program.write_text(TORCH)
        train = ROOT / "tests/demo/train.py"
        programs = [("pyopencl, tests/demo/train.py", [python, train], memray_of_pyopencl, "backward"),
                    ("C++ with OpenCL, tests/demo/leaky", [build / "tests/demo/leaky"], None, "load_weights")]
        if torch:
            memray = torch.parent / "memray"
            programs.append(("PyTorch on the CPU", [torch, torch_program], memray if memray.exists() else None,
                             "train_step"))
        for title, command, memray, name in programs:
            environment = {**os.environ, "LIBCISTERN_LIBRARY": str(build / "libcistern.so")}
            plain = min(seconds(command, temporary, environment) for _ in range(given.rounds))
            print(f"{title}: plain {plain:.2f} s")
            each = list(tools(build, memray, command, memray is not None))
            folders = [pathlib.Path(tempfile.mkdtemp(dir=temporary)) for _ in each]
            for _ in range(given.rounds):
                for tool, folder in zip(each, folders):
                    shutil.rmtree(folder)
                    folder.mkdir()
                    tool.measure(folder, environment)
            for tool, folder in zip(each, folders):
                row(tool, folder, environment, name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
