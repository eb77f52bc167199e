"""Checks reports that the library's own tests wrote: JSON against the schema, sums that must agree, and the text beside
it, whose figures are formatted anew: validate.py EVERY_FIELD.json REPORT.json... Also that each of these checks can
fail, and that each field of the schema has an example; of the first report the schema alone is checked."""

import copy
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import report_checks  # noqa: E402
import text_checks  # noqa: E402


def accepts(report):
    return report_checks.VALIDATOR.is_valid(report)


def without_teeth(report):
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
    return [name for name, value in broken.items() if accepts(value)]


# Figures that are sums, differences or bounds of others in the same report.
BOUND = ("allocations", "frees", "live_blocks", "pool_hits", "pooled_blocks", "pooled_bytes", "hits", "cached_blocks",
         "reserved_bytes", "live_bytes", "free_bytes", "internal", "external", "driver_owned_bytes")


def figures_in(value):
    """(owner, key) of each figure of those names, wherever it lies."""
    if isinstance(value, list):
        for item in value:
            yield from figures_in(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in BOUND and isinstance(item, (int, float)):
                yield value, key
            yield from figures_in(item)


def sums_without_teeth(report):
    """Figures of a report that may be changed without any sum's noticing."""
    changed = copy.deepcopy(report)
    for owner, key in figures_in({name: changed[name] for name in ("kinds", "fragmentation", "device_memory")}):
        before = owner[key]
        # Far, and both ways: some are bounds.
        held = []
        for other in (before + (1 << 40), max(before - (1 << 40), 0) if before else 0):
            owner[key] = other if isinstance(before, int) else (before + 0.5) % 1
            held.append(owner[key] == before or not report_checks.complaints(changed))
        owner[key] = before
        if all(held) and "classes" not in owner and "high_water_blocks" not in owner and "block_bytes" not in owner:
            yield key


def text_without_teeth(report, text):
    """Numbers of the text's tables that may be changed without being noticed."""
    for match in re.finditer(r"^(?:  (?=[a-z]+:?\d* +\d|\d)|FRAGMENTATION).*?(\d)\S*$", text, re.MULTILINE):
        at = match.start(1)
        broken = text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1:]
        if not list(text_checks.complaints(report, broken)):
            yield match[0]


def complaints(path):
    report = json.loads(path.read_text())
    yield from report_checks.complaints(report)
    yield from (f"the schema accepts {name}" for name in without_teeth(report))
    yield from (f"no sum notices a wrong {key}" for key in sums_without_teeth(report))
    text = path.with_suffix(".txt").read_text()
    yield from text_checks.complaints(report, text)
    yield from (f"nobody notices a wrong digit in: {line}" for line in text_without_teeth(report, text))


def fields_in(value, schema):
    """(object, field) of each field of a report that the schema names."""
    definitions = report_checks.VALIDATOR.schema["$defs"]
    name = schema.get("$ref", "").rpartition("/")[2]
    schema = definitions[name] if name else schema
    for item in value if isinstance(value, list) else ():
        yield from fields_in(item, schema["items"])
    for key, item in value.items() if isinstance(value, dict) else ():
        if key in schema.get("properties", {}):
            yield name, key
            yield from fields_in(item, schema["properties"][key])
        else:
            yield from fields_in(item, schema["additionalProperties"])


def without_example(reports):
    """Fields of the schema that no report has."""
    schema = report_checks.VALIDATOR.schema
    found = {field for report in reports for field in fields_in(report, schema)}
    objects = {"": schema, **schema["$defs"]}
    return sorted({(name, key) for name, described in objects.items() for key in described["properties"]} - found)


def main():
    every_field, *paths = (pathlib.Path(argument) for argument in sys.argv[1:])
    failures = 0 if paths else 1
    example = json.loads(every_field.read_text())
    wrong = [f"{error.json_path}: {error.message}" for error in report_checks.VALIDATOR.iter_errors(example)]
    wrong += [f"no report has {field} of {name or 'the report'}"
              for name, field in without_example([example, *(json.loads(path.read_text()) for path in paths)])]
    if ("", "kinds") not in without_example([]):
        wrong.append("a missing example is not noticed")
    for text in wrong:
        print(f"{every_field}: {text}")
        failures += 1
    for path in paths:
        for text in complaints(path):
            print(f"{path}: {text}")
            failures += 1
    print(f"{len(paths)} reports, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
