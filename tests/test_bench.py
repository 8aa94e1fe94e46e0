"""`scripts/bench` says what it found in the shape that it documents; no figure is asserted."""

import json
import math
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent / "scripts" / "bench.py"


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(BENCH), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_part_is_measured_and_said_in_json() -> None:
    done = bench("--json", "--runs", "1", "kill")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert set(said) == {"machine", "figures", "seconds"}
    assert set(said["machine"]) == {"cores", "load", "memory_mib", "python", "date"}
    (figure,) = said["figures"]
    raw = figure.pop("raw")
    value = figure.pop("value")
    assert figure.pop("spread") >= 1
    assert figure == {"part": "kill", "name": "kill to gone", "unit": "ms", "runs": 1}
    assert [limit["name"] for limit in raw] == ["a bare interpreter's death"]
    for limit in raw:
        assert set(limit) == {"name", "value", "ratio"}
        assert math.isclose(limit["ratio"], value / limit["value"])


def test_a_part_that_is_not_there_is_refused_with_those_that_are() -> None:
    done = bench("speed")
    assert done.returncode == 2
    assert "there is no part speed; there are creation, first_delta" in done.stderr
    assert done.stdout == ""
