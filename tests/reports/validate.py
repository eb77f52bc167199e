"""Checks JSON reports against the schema: validate.py SCHEMA REPORT... Also that the schema can fail."""

import copy
import json
import sys

import jsonschema


def accepts(validator, report):
    return next(validator.iter_errors(report), None) is None


def without_teeth(validator, report):
    """Broken copies of a report that the schema takes for a good one."""
    missing, added, text = (copy.deepcopy(report) for _ in range(3))
    del missing["kinds"]
    added["cistern"]["surprise"] = 1
    text["cistern"]["pid"] = "4242"
    broken = {"a missing part": missing, "an unknown key": added, "a wrong type": text}
    for leak in range(min(1, len(report["leaks"]))):
        broken["a leak without bytes"] = copy.deepcopy(report)
        del broken["a leak without bytes"]["leaks"][leak]["bytes"]
        broken["a device block with references"] = copy.deepcopy(report)
        broken["a device block with references"]["leaks"][leak].update(kind="device:0", created=1)
    for transfer in range(min(1, len(report["transfers"]))):
        broken["an unheard-of direction"] = copy.deepcopy(report)
        broken["an unheard-of direction"]["transfers"][transfer]["direction"] = "device to nowhere"
        broken["an asynchronous copy with a time"] = copy.deepcopy(report)
        broken["an asynchronous copy with a time"]["transfers"][transfer].update(asynchronous=True, seconds=1)
    return [name for name, value in broken.items() if accepts(validator, value)]


def main():
    schema_path, *report_paths = sys.argv[1:]
    with open(schema_path, encoding="utf-8") as file:
        schema = json.load(file)
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    validator = kind(schema)
    failures = 0 if report_paths else 1
    for path in report_paths:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        for error in validator.iter_errors(report):
            print(f"{path}: {error.json_path}: {error.message}")
            failures += 1
        for name in without_teeth(validator, report):
            print(f"{path}: the schema accepts {name}")
            failures += 1
    print(f"{len(report_paths)} reports, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
