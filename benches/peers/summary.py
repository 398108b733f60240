"""Medians of what `compare` has measured, as a table, each beside signalbox on SQLite."""

import json
import statistics
import sys

lines = [json.loads(line) for line in open(sys.argv[1])]


def median(contender: str, conc: int, field) -> float | None:
    values = [field(line) for line in lines if line["contender"] == contender and line["conc"] == conc]
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


FIELDS = {
    "steps a second": (lambda line: line["calls_s"], "{:,.0f}"),
    "CPU s per 1,000 steps": (lambda line: line["cpu_s_per_kcall"]["total"], "{:.3f}"),
    "a run, median ms": (lambda line: line["p50_ms"], "{:,.1f}"),
    "a run, p99 ms": (lambda line: line["p99_ms"], "{:,.1f}"),
    "memory, MiB": (lambda line: line["rss_mib"], "{:,.0f}"),
}

print("| runs at once | who | " + " | ".join(FIELDS) + " | steps beside signalbox | CPU beside signalbox |")
print("| --- " * (len(FIELDS) + 4) + "|")
for conc in sorted({line["conc"] for line in lines}):
    for contender in dict.fromkeys(line["contender"] for line in lines):
        cells = []
        for field, shape in FIELDS.values():
            value = median(contender, conc, field)
            cells.append("" if value is None else shape.format(value))
        ratios = []
        for name in list(FIELDS)[:2]:
            ours, theirs = (median(who, conc, FIELDS[name][0]) for who in ("signalbox", contender))
            ratios.append(f"{theirs / ours:.2f}" if ours and theirs else "")
        print(f"| {conc} | {contender} | " + " | ".join(cells + ratios) + " |")
