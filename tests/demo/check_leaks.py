"""Checks the JSON report of leaky.cpp: three leaks with function, file, line, counts and bytes, and nothing else."""
import json
import pathlib
import sys

SOURCE = pathlib.Path(__file__).resolve().with_name("leaky.cpp")
MIB = 1 << 20
# What the report has to say of the allocation on the line that is marked "leak: NAME".
EXPECTED = {
    "weights": {"function": "load_weights", "object": "buffer", "blocks": 3, "bytes": 3 * MIB,
                "created": 3, "retained": 0, "released": 0},
    "result": {"function": "share_result", "object": "buffer", "blocks": 1, "bytes": MIB // 4,
               "created": 1, "retained": 1, "released": 1},
    "view": {"function": "share_result", "object": "sub-buffer", "blocks": 1, "bytes": MIB // 2,
             "kept_parent_bytes": MIB // 2, "created": 1, "retained": 0, "released": 0},
}


def marked_lines():
    lines = SOURCE.read_text().splitlines()
    return {name: 1 + next(i for i, line in enumerate(lines) if line.endswith(f"// leak: {name}")) for name in EXPECTED}


def complaints_of(report):
    lines = marked_lines()
    unexplained = list(report["leaks"])
    for name, expected in EXPECTED.items():
        def here(leak):
            frame = (leak["frames"] or [{}])[0]
            return pathlib.Path(frame.get("file", "")).name == SOURCE.name and frame.get("line") == lines[name]
        found = [leak for leak in unexplained if here(leak)]
        if len(found) != 1:
            yield f"{name}: {len(found)} leaks at {SOURCE.name}:{lines[name]}"
            continue
        leak = found[0]
        unexplained.remove(leak)
        function = leak["frames"][0]["function"]
        if expected["function"] not in function:
            yield f"{name}: in function {function}"
        for key, value in expected.items():
            if key != "function" and leak.get(key) != value:
                yield f"{name}: {key} is {leak.get(key)}, not {value}"
        if leak["kind"] != "opencl" or not leak["program"]:
            yield f"{name}: not an OpenCL leak of the program: {leak}"
    for leak in unexplained:
        yield f"not a leak of this program: {leak}"
    for kind, counts in report.get("objects", {}).items():
        if counts["alive"]:
            yield f"{counts['alive']} of type {kind} said to be alive"


def main(path):
    report = json.loads(pathlib.Path(path).read_text())
    complaints = list(complaints_of(report))
    for complaint in complaints:
        print("wrong:", complaint)
    if complaints:
        return 1
    for name, line in marked_lines().items():
        print(f"right: {EXPECTED[name]['function']} {SOURCE.name}:{line} {name}, {EXPECTED[name]['blocks']} block(s)")
    print("right: nothing else")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
