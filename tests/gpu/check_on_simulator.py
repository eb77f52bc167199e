#!/usr/bin/python3
"""Runs the GPU check on the simulated driver and judges its JSON. Every rule has the assumed answer, because what
the simulator does is what is assumed. Costs and copies are there for every way, and nothing was cut off."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
COPY_BYTES = [128 << 10, 3 << 20]


def complaints_about(results):
    if not results["complete"]:
        yield "the check did not come to its end"
    yield from (f"problem: {problem}" for problem in results["problems"])
    yield from (f"{part['part']} was cut off" for part in results["parts"] if part["cut_off"])
    if results["machine"].get("simulator") is not True or "driver" not in results["machine"]:
        yield f"the machine is not described: {results['machine']}"
    rules = results["probe"]
    if len({rule["case"] for rule in rules}) < 30 or len({rule["probe"] for rule in rules}) != 3:
        yield f"too few cases: {sorted({(rule['probe'], rule['case']) for rule in rules})}"
    for rule in rules:
        name = f"{rule['probe']}: {rule['rule']}"
        if rule["measured"] is None:
            yield f"{name}: no answer: {rule['reason']}"
        elif rule["agrees"] is False:
            yield f"{name}: assumed \"{rule['assumed']}\", the simulator answers \"{rule['measured']}\""
    if len([entry for entry in results["details"] if entry["detail"] == "lookup"]) != 440:
        yield "not all 440 look-ups are there"
    yield from (f"the driver has no {entry['name']}" for entry in results["details"] if entry["detail"] == "absent")
    copied = {(entry["way"], entry["memory"], entry["direction"], entry["streams"], entry["bytes"])
              for entry in results["copies"] if entry["rate"] > 0}
    ways = [("plain", "pinned"), ("plain", "pageable"), ("plain", "pinned in place")]
    ways += [(f"staged, {threads} threads", "pageable") for threads in (1, 2, 4, 8)]
    wanted = {(*way, direction, streams, count) for way in ways for direction in ("host to device", "device to host")
              for streams in (1, 4) for count in COPY_BYTES}
    if copied != wanted:
        yield f"copies are not those that were asked for: {sorted(copied ^ wanted)}"
    ways = {}
    for entry in results["costs"]:
        ways.setdefault(entry["way"], set()).add((entry["cost"], entry["bytes"]))
        if not 0 < entry["min_ns"] <= entry["median_ns"]:
            yield f"a cost that cannot be: {entry}"
    if len(ways) != 4 or len({frozenset(calls) for calls in ways.values()}) != 1 or not ways.get("plain"):
        yield f"costs of some ways are missing: { {way: len(calls) for way, calls in ways.items()} }"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prepared", required=True)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--simulator", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as out:
        ended = subprocess.run(
            [sys.executable, str(HERE / "gpu_check.py"), "--prepared", arguments.prepared, "--out", out, "--shim",
             arguments.shim, "--library-path", arguments.simulator, "--parts", "probe,costs,copies",
             "--copy-bytes", ",".join(map(str, COPY_BYTES)), "--seconds", "400"],
            env=dict(os.environ, PROBE_SAMPLES="20"), capture_output=True, text=True)
        written = pathlib.Path(out) / "gpu-check.json"
        if not written.exists():
            print(f"no results, exit code {ended.returncode}\n{ended.stdout}\n{ended.stderr}")
            return 1
        complaints = list(complaints_about(json.loads(written.read_text())))
        if ended.returncode != 0:
            complaints.append(f"exit code {ended.returncode}: {ended.stderr[-2000:]}")
        if not (pathlib.Path(out) / "gpu-check.txt").read_text().startswith("Cistern GPU check"):
            complaints.append("the text has no heading")
    print("\n".join(complaints) or "every rule has its answer")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
