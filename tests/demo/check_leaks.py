"""Checks the JSON report of a leaky program: its leaks with function, file, line, counts and bytes, nothing else."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from report_rows import gpu_rows  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
# What the report has to say of the allocation on the line that is marked "leak: NAME", by source.
EXPECTED = {
    "leaky.cpp": {
        "weights": {"function": "load_weights", "kind": "opencl", "object": "buffer", "blocks": 3, "bytes": 3 * MIB,
                    "created": 3, "retained": 0, "released": 0},
        "result": {"function": "share_result", "kind": "opencl", "object": "buffer", "blocks": 1, "bytes": MIB // 4,
                   "created": 1, "retained": 1, "released": 1},
        "view": {"function": "share_result", "kind": "opencl", "object": "sub-buffer", "blocks": 1, "bytes": MIB // 2,
                 "kept_parent_bytes": MIB // 2, "created": 1, "retained": 0, "released": 0},
    },
    "leaky_cuda.cpp": {
        "weights": {"function": "load_weights", "kind": "device:0", "blocks": 3, "bytes": 3 * MIB},
        "result": {"function": "keep_result", "kind": "device:0", "blocks": 1, "bytes": 100000},
        "staging": {"function": "keep_result", "kind": "pinned", "blocks": 1, "bytes": MIB // 4},
    },
}


def marked_lines(source):
    lines = (HERE / source).read_text().splitlines()
    return {name: 1 + next(i for i, line in enumerate(lines) if line.endswith(f"// leak: {name}"))
            for name in EXPECTED[source]}


def complaints_of(report, source):
    lines = marked_lines(source)
    # NVIDIA's own libraries keep memory for the life of the process; the program's leaks are what is checked here.
    unexplained = [leak for leak in gpu_rows(report) if leak["program"]]
    for name, expected in EXPECTED[source].items():
        def here(leak):
            frame = (leak["frames"] or [{}])[0]
            return pathlib.Path(frame.get("file", "")).name == source and frame.get("line") == lines[name]
        found = [leak for leak in unexplained if here(leak)]
        if len(found) != 1:
            yield f"{name}: {len(found)} leaks at {source}:{lines[name]}"
            continue
        leak = found[0]
        unexplained.remove(leak)
        function = leak["frames"][0]["function"]
        if expected["function"] not in function:
            yield f"{name}: in function {function}"
        for key, value in expected.items():
            if key != "function" and leak.get(key) != value:
                yield f"{name}: {key} is {leak.get(key)}, not {value}"
    for leak in unexplained:
        yield f"not a leak of this program: {leak}"
    for kind, counts in report.get("objects", {}).items():
        if counts["alive"]:
            yield f"{counts['alive']} of type {kind} said to be alive"


def main(path):
    report = json.loads(pathlib.Path(path).read_text())
    source = "leaky_cuda.cpp" if "leaky_cuda" in report["cistern"]["command"] else "leaky.cpp"
    complaints = list(complaints_of(report, source))
    for complaint in complaints:
        print("wrong:", complaint)
    if complaints:
        return 1
    for name, line in marked_lines(source).items():
        expected = EXPECTED[source][name]
        print(f"right: {expected['function']} {source}:{line} {name}, {expected['blocks']} block(s)")
    print("right: nothing else")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
