#!/usr/bin/python3
"""What Python frames in call sites cost, in a script that allocates nearly all the time.

    bench/python.py [SHIM] [--rounds N] [--python PYTHON]

Ways, interleaved; CPU seconds, minima of the rounds, and each as a ratio of plain and of the shim without call sites:
plain; the shim without sites, with samples (the default), with samples and native frames only, with all sites, with all
sites and native frames only; LeakSanitizer preloaded, which keeps the native stack of every block. Nobody looks for
leaks. Then the mean cost of a capture at two depths of Python calls, and of one frame. Needs g++'s liblsan."""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCRIPT = """
import json, sys
def texts(n):
    return [str(i) * 100 for i in range(n)]
def rows(n):
    return [bytearray(600 + 37 * i % 3000) for i in range(n)]
def document(n):
    return json.loads(json.dumps({str(i): list(range(40)) for i in range(n)}))
class Model:
    def forward(self, n):
        return len(texts(n)) + len(rows(n)) + len(document(n // 20))
def step(model, n):
    return model.forward(n)
def main(turns):
    model = Model()
    return sum(step(model, 2000) for _ in range(turns))
print(main(int(sys.argv[1])))
"""
CAPTURE = """
import sys
def loop(n):
    for i in range(n): bytearray(4096)
def call(depth, n):
    return call(depth - 1, n) if depth else loop(n)
call(int(sys.argv[1]), 300000)
"""
SHALLOW, DEEP = 1, 31


def seconds(command, environment):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CISTERN_", "LD_PRELOAD", "PYTHON"))}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, env=kept | environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def capture_ns(given, folder, depth, frames):
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    seconds([given.python, folder / "capture.py", depth],
            {"LD_PRELOAD": given.shim, "CISTERN_SITES": "all", "CISTERN_LEAK_CHECK": "0", "CISTERN_FRAMES": frames,
             "CISTERN_REPORT": str(report), "CISTERN_REPORT_FORMAT": "json"})
    return json.loads(report.read_text())["self"]["capture_mean_ns"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shim", nargs="?", default=str(ROOT / "build/release/libcistern.so"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=2500)
    parser.add_argument("--python", default="/usr/bin/python3")
    given = parser.parse_args()
    sanitizer = subprocess.run(["g++", "-print-file-name=liblsan.so"], capture_output=True, text=True, check=True)
    shim = {"LD_PRELOAD": given.shim, "CISTERN_LEAK_CHECK": "0"}
    ways = {
        "plain": {},
        "shim, no sites": shim | {"CISTERN_SITES": "off"},
        "samples, native": shim | {"CISTERN_FRAMES": "native"},
        "samples": shim,
        "all, native": shim | {"CISTERN_SITES": "all", "CISTERN_FRAMES": "native"},
        "all": shim | {"CISTERN_SITES": "all"},
        "LeakSanitizer": {"LD_PRELOAD": sanitizer.stdout.strip(), "LSAN_OPTIONS": "detect_leaks=0"},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "script.py").write_text(SCRIPT)
        (folder / "capture.py").write_text(CAPTURE)
        best = dict.fromkeys(ways, 1e9)
        for _ in range(given.rounds):
            for way, environment in ways.items():
                best[way] = min(best[way], seconds([given.python, folder / "script.py", given.turns], environment))
        print(f"{'CPU seconds':<18} {'least':>7}  {'of plain':>8}  {'of no sites':>11}")
        for way, least in best.items():
            print(f"{way:<18} {least:>7.3f}  {least / best['plain']:>8.3f}  {least / best['shim, no sites']:>11.3f}")
        cost = {(depth, frames): min(capture_ns(given, folder, depth, frames) for _ in range(given.rounds))
                for depth in (SHALLOW, DEEP) for frames in ("native", "python")}
    print("\ncapture, ns        native  with Python")
    for depth in (SHALLOW, DEEP):
        print(f"{depth:>2} calls deep     {cost[depth, 'native']:>8.0f}  {cost[depth, 'python']:>11.0f}")
    more = [cost[depth, "python"] - cost[depth, "native"] for depth in (SHALLOW, DEEP)]
    print(f"one Python frame: {(more[1] - more[0]) / (DEEP - SHALLOW):.1f} ns")


if __name__ == "__main__":
    main()
