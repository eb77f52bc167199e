"""The text report against the JSON report of the same snapshot: every figure of its tables is formatted anew here from
the JSON, so that a wrong column, unit, sum or rounding of the text shows."""
import decimal
import re

from report_rows import gpu_rows, host_rows


def rounded(value, digits):
    """Half up, of the exact value: figures are fractions of whole numbers."""
    return str(decimal.Decimal(value).quantize(decimal.Decimal(1).scaleb(-digits), decimal.ROUND_HALF_UP))


def human(count):
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{rounded(decimal.Decimal(count) / (1 << power), 1)} {unit}"
    return f"{count} B"


def in_blocks(blocks, size):
    return f"{human(size)} in {blocks:,}" if blocks else "-"


def percent_of(part, whole):
    return rounded(decimal.Decimal(100) * part / whole, 1) if whole else "-"


def row_of_kind(name, kind, bounded):
    """The columns of its row in the table of kinds, without the time of the peak."""
    driver = sum(kind["driver_" + call] for call in ("allocs", "frees", "syncs", "queries"))
    pooled = [f"{driver:,}", percent_of(kind["pool_hits"], kind["allocations"])]
    bound = ("at most " if kind["pooled"] else "about ") if name in bounded and kind["peak_bytes"] else ""
    return [name, in_blocks(kind["live_blocks"], kind["live_bytes"]), bound + human(kind["peak_bytes"]),
            f"{kind['allocations']:,}", *(pooled if kind["pooled"] else []),
            f"{kind['failed']:,}" if kind["failed"] else "-"]


def row_of_class(row):
    columns = [row["sizes"], f"{row['allocations']:,}", f"{row['live_blocks']:,}",
               in_blocks(row["cached_blocks"], row["cached_bytes"]), percent_of(row["hits"], row["allocations"]),
               f"{row['high_water_blocks']:,}"]
    waste = percent_of(row["live_bytes"] - row["requested_bytes"], row["live_bytes"]) if "live_bytes" in row else "-"
    return columns, waste


def row_of_size(row):
    size = row["block_bytes"]
    return [human(size), f"{row['allocations']:,}", in_blocks(row["live_blocks"], row["live_blocks"] * size),
            in_blocks(row["free_blocks"], row["free_blocks"] * size)]


def line_of_fragments(name, row):
    line = f"FRAGMENTATION {name}  reserved {human(row['reserved_bytes'])}  live {human(row['live_bytes'])}"
    if row["live_bytes"] and "requested_bytes" in row:
        line += f"  internal {percent_of(row['live_bytes'] - row['requested_bytes'], row['live_bytes'])} %"
    if "reserved_peak_bytes" in row:
        line += f"  high-water {human(row['reserved_peak_bytes'])}"
    if "reserved_per_live" in row:
        line += f" ({rounded(decimal.Decimal(str(row['reserved_per_live'])), 2)}x the live peak)"
    worst = row.get("worst")
    if worst and worst["reserved_bytes"] >= (1 << 20) + 2 * worst["live_bytes"]:
        at = decimal.Decimal(str(worst["at_s"]))
        line += (f"  worst {human(worst['reserved_bytes'])} reserved for {human(worst['live_bytes'])} live "
                 f"(at {rounded(at, 2 if at < 10 else 1)} s)")
    if row["free_bytes"] and "external" in row:
        line += (f"  external {percent_of(row['free_bytes'] - row['largest_free_bytes'], row['free_bytes'])} %"
                 f"  largest free block {human(row['largest_free_bytes'])}")
    return line


def columns_of(line):
    return re.split(r"\s{2,}", line.strip())


def section(text, title):
    """The indented lines after a line that begins so."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if re.match(rf"{title}( |$)", line)]
    if not starts:
        return []
    end = next((i for i in range(starts[0] + 1, len(lines)) if not lines[i].startswith("  ")), len(lines))
    return lines[starts[0] + 1:end]


# The verdict's words, and which classes they speak of.
STATES = {
    "lost": ("lost", "indirectly lost", "held only by the driver"),
    "possibly lost": ("possibly lost",),
    "reachable, never freed": ("reachable",),
    "never freed": ("unclassified", "never freed", "never freed, went with its context"),
}


def complaints(report, text):
    counted = [leak for leak in gpu_rows(report) if not leak.get("suppressed")]
    if report["cistern"]["moment"] in ("exit", "_exit"):
        for words, classes in STATES.items():
            some = [leak for leak in counted if leak["class"] in classes]
            blocks, size = (sum(leak[figure] for leak in some) for figure in ("blocks", "bytes"))
            said = re.search(rf"^VERDICT  .*\b{blocks:,} blocks?, {re.escape(human(size))} {words}\b", text, re.M)
            if some and not said and not any(leak.get("program") is False for leak in some):
                yield f"the verdict does not speak of {blocks} blocks of {human(size)} {words}"
    shown = [columns_of(re.sub(r" \(\d+\.\d+ m?s\)", "", line)) for line in section(text, "KIND")]
    for name, kind in report["kinds"].items():
        bounded = [path.split(".")[1] for path in report["estimated"] if path.endswith(".peak_bytes")]
        if row_of_kind(name, kind, bounded) not in shown:
            yield f"no row {row_of_kind(name, kind, bounded)} among {shown}"
        if kind["pooled"]:
            yield from of_pool(name, kind, text)
        yield from of_uses(report, name, kind, text)
        if "graph_memory" in kind:
            of = {key: human(count) for key, count in kind["graph_memory"].items() if key.endswith("_bytes")}
            said = (f"              driver memory for graphs: {of['used_bytes']} used, peak {of['used_peak_bytes']}; "
                    f"{of['reserved_bytes']} reserved, peak {of['reserved_peak_bytes']} (at ")
            if said not in text:
                yield f"{name}: not said: {said}"
        sizes = [row_of_size(row) for row in kind.get("sizes", [])]
        for line in section(text, f"SIZES {name}")[1:]:
            if columns_of(line) not in sizes:
                yield f"{name}: no size has the figures of {line}"
    for wait in report["waits"]:
        said = re.search(rf"^  {wait['kind']}  {wait['count']:,} calls, blocked for .* \({wait['api']}\)$", text, re.M)
        if bool(said) != (wait["count"] >= 1000):
            yield f"wrongly said, or not said: {wait}"
    alive = ", ".join(f"{name} {one['alive']:,} of {one['created']:,}" for name, one in report["objects"].items()
                      if one["alive"])
    if alive and f"LIVE OBJECTS  {alive}" not in text.splitlines():
        yield f"not said: LIVE OBJECTS  {alive}"
    for what, rows in (("GPU", gpu_rows(report)), ("host", host_rows(report))):
        known = [row for row in rows if row.get("suppressed")]
        blocks, size = (sum(row[figure] for row in known) for figure in ("blocks", "bytes"))
        error = sum(row.get("bytes_error", 0) ** 2 for row in known) ** 0.5
        size = human(size) + (f" (+- {human(int(error + 0.5))})" if error else "")
        line = (f"SUPPRESSED  {what} memory: {blocks:,} block{'s' * (blocks != 1)}, {size} at {len(known):,} "
                f"site{'s' * (len(known) != 1)}")
        if (line in text.splitlines()) != bool(known):
            yield f"wrongly said, or not said: {line}"
    used = ", ".join(rule["rule"] + (" (built in)" if rule["built_in"] else "")
                     for rule in report["suppressions"] if rule["sites"])
    if used and f"      by {used}" not in text.splitlines():
        yield f"not said: by {used}"
    unused = [rule["rule"] for rule in report["suppressions"] if not rule["sites"]]
    more = len(unused) - 10
    listed = ", ".join(unused[:10]) + f" and {more:,} other{'s' * (more != 1)}" * (more > 0)
    if unused and f"SUPPRESSIONS UNUSED  {listed}" not in text.splitlines():
        yield f"not said to be unused: {unused}"
    unknown = report.get("unknown_functions", {"names": []})["names"]
    shown, more = unknown[:4], len(unknown) - 4
    least = "at least " * ("other_look_ups" in report.get("unknown_functions", {}))
    said = ", ".join(shown + [f"{least}{more} more"] * (more > 0))
    said = f"         unknown to this version: {said}: what they do to memory is not seen"
    if unknown and said not in text.splitlines():
        yield f"not said: {said}"
    fragments = [line_of_fragments(name, row) for name, row in report["fragmentation"].items()]
    for line in re.findall(r"^FRAGMENTATION .*$", text, re.M):
        if line not in fragments:
            yield f"not what the figures say: {line}"


def of_uses(report, name, kind, text):
    """What was allocated in all, who held the peak, who allocates in loops."""
    lines = text.splitlines()
    if "allocated_bytes" in kind:
        wall = report["cistern"]["wall_s"]
        rate = f", {int(kind['allocations'] / wall):,} allocs/s" if wall >= 1 else ""
        freed = f", {kind['temporary']:,} freed right away" if kind.get("temporary", 0) > 1 else ""
        line = f"              allocated in total: {human(kind['allocated_bytes'])}{rate}{freed}"
        if line not in lines:
            yield f"{name}: not said: {line}"
    held = [site for site in report["at_peak"] if site["kind"] == name]
    title = f"PEAK BY SITE {name}  of {human(kind['peak_bytes'])}"
    if (title in lines) != bool(held and kind["peak_bytes"] > kind["live_bytes"]):
        yield f"{name}: wrongly there, or missing: {title}"
    for site in held if title in lines else ():
        blocks = f"{site['peak_blocks']:,} block{'s' * (site['peak_blocks'] != 1)}"
        line = f"  {human(site['peak_bytes'])} in {blocks} ({site['api']})"
        if line not in lines:
            yield f"{name}: not said: {line}"
    for site in (site for site in report["in_loops"] if site["kind"] == name):
        line = (f"  {name}  {site['allocations']:,} blocks, {human(site['allocated_bytes'])} in total, "
                f"{site['temporary']:,} of them freed right away ({site['api']})")
        if line not in lines:
            yield f"{name}: not said: {line}"


def of_pool(name, kind, text):
    names = {"allocs": "alloc", "frees": "free", "syncs": "sync", "queries": "query"}
    calls = ", ".join(f"{kind['driver_' + many]:,} {one if kind['driver_' + many] == 1 else many}"
                      for many, one in names.items() if kind["driver_" + many])
    whose = "calls to the system" if name == "host" else "driver calls"
    if calls and f"{whose}: {calls}" not in text:
        yield f"{name}: no {whose} {calls}"
    cached = f"retained by the pool (not a leak): {in_blocks(kind['pooled_blocks'], kind['pooled_bytes'])} block"
    if kind["pooled_blocks"] and cached not in text:
        yield f"{name}: no {cached}"
    classes = [row_of_class(row) for row in kind.get("classes", [])]
    wanted = [columns for columns, _ in classes] + [columns + [waste] for columns, waste in classes]
    for line in section(text, f"POOLS {name}")[1:]:
        if columns_of(line) not in wanted and not line.startswith("      ("):
            yield f"{name}: no class has the figures of {line}"
