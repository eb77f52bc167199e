"""Runs a program plain and preloaded: same stdout, stderr and exit code, and a JSON report with its allocations."""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import report_checks  # noqa: E402


def run(command, **more):
    done = subprocess.run(command, env={**os.environ, **more}, capture_output=True)
    return {"stdout": done.stdout, "stderr": done.stderr, "exit code": done.returncode}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shim", required=True)
    parser.add_argument("--allocations-min", type=int, required=True)
    parser.add_argument("--kind", default="opencl")
    parser.add_argument("--hits-min", type=float, default=0, help="of all allocations, those that the pool served")
    parser.add_argument("--check", help="a script that is run on the report")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report.json"
        plain = run(arguments.command)
        shimmed = run(arguments.command, LD_PRELOAD=arguments.shim, CISTERN_REPORT=str(path),
                      CISTERN_REPORT_FORMAT="json")
        for part, value in plain.items():
            assert shimmed[part] == value, f"{part}: plain {value!r}, preloaded {shimmed[part]!r}"
        assert plain["exit code"] == 0, plain
        kind = report_checks.read(path)["kinds"][arguments.kind]
        assert kind["allocations"] >= arguments.allocations_min, kind
        assert kind["pool_hits"] > arguments.hits_min * kind["allocations"], kind
        print("allocations", kind["allocations"], "pool hits", kind["pool_hits"])
        if arguments.check:
            subprocess.run([sys.executable, arguments.check, str(path)], check=True)


if __name__ == "__main__":
    main()
