"""Measures the host: `bench.py [--json] [--runs N] [PART]…`; prints a table, or JSON.

Each figure stands beside the raw limit that was measured in the same run, and how
many times that limit it comes to. The JSON is one object:

    {"machine": {"cores", "load", "memory_mib", "python", "date"},
     "figures": [{"part", "name", "value", "unit", "runs", "spread",
                  "raw": [{"name", "value", "ratio"}]}],
     "seconds": …}

`unit` is `ms`, `1/s` or `MiB`; `value` is a median over `runs`, `spread` the greatest
of them over the least; `ratio` is 1 where there is nothing more to have.
"""

import argparse
import json
import os
import platform
import sys
import time
from datetime import UTC, datetime
from typing import Any

from benchmarks.host import running_host
from benchmarks.parts import PARTS, Figure

DEFAULT_RUNS = 5


def main() -> int:
    """Runs the parts that are named, all unless any is; answers the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measures the host.")
    parser.add_argument("--json", action="store_true", help="JSON in the place of the table")
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS, help="of each figure (5)")
    parser.add_argument("part", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    options = parser.parse_args()
    unknown = [name for name in options.part if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]}; there are {', '.join(PARTS)}")
    if options.runs < 1:
        parser.error("--runs is at least 1")
    began_s, machine = time.monotonic(), _machine()
    figures: list[Figure] = []
    if not options.json:
        print(_heading(machine), flush=True)
    for name in options.part or PARTS:
        # What one part leaves in a host's memory is not the next one's.
        with running_host() as host:
            found = PARTS[name](host, options.runs)
        figures += found
        if not options.json:
            print(*(row for figure in found for row in _rows(figure)), sep="\n", flush=True)
    seconds = time.monotonic() - began_s
    if options.json:
        rows = [figure.row() for figure in figures]
        print(json.dumps({"machine": machine, "figures": rows, "seconds": round(seconds, 1)}))
    else:
        print(f"\n{seconds:.0f} s; load {_load()} at the end")
    return 0


def _machine() -> dict[str, Any]:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "memory_mib": pages // 1024**2,
        "python": platform.python_version(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def _load() -> str:
    return f"{os.getloadavg()[0]:.2f}"


def _heading(machine: dict[str, Any]) -> str:
    return (
        f"{machine['date']}, {machine['cores']} cores, {machine['memory_mib']} MiB, "
        f"Python {machine['python']}, load {_load()} at the start\n\n"
        f"{'figure':<36} {'median':>13}   {'raw limit':<34} {'median':>13} {'ratio':>7}"
    )


def _rows(figure: Figure) -> list[str]:
    rows = []
    name, value = figure.name, _said(figure.value, figure.unit)
    for limit in figure.raw:
        raw = _said(limit.value, figure.unit)
        rows.append(f"{name:<36} {value:>13}   {limit.name:<34} {raw:>13} {limit.ratio:>7.1f}")
        name = value = ""
    return rows


def _said(value: float, unit: str) -> str:
    digits = 0 if value >= 1000 else 1 if value >= 10 else 3
    return f"{value:,.{digits}f} {unit}"


if __name__ == "__main__":
    sys.exit(main())
