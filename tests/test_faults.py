"""`scripts/faults`: what it calls contained, what it says last, and that a host's death is told."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

import faults
from ahpd.supervisor.processes.kernel import read_tree
from faults_report import Observed, as_json, judge, last_line, line_of, pauses, status_of
from hostile_table import CANCELLED, DIED, FAILED, NOT_CREATED, TABLE, Row, Then

#: Of a run with some agents, on a machine that is busy.
LIMIT_S = 240

ROW = Row(factory="hostile_deaths:exits", says=(DIED, "exited with", "status 3"))

SEEN = Observed(
    agent=ROW.name,
    endings={
        "client one, misbehaviour": ["chat/error"],
        "client two, misbehaviour": ["chat/error"],
        "client one, kill": [CANCELLED],
    },
    saw=(DIED, "The agent's process exited with status 3"),
    pause_ms=7.0,
    way_ms=9.0,
    before_bytes=50 * 1024 * 1024,
    after_bytes=51 * 1024 * 1024,
)


def test_an_agent_whose_turn_ended_once_and_that_left_nothing_is_contained() -> None:
    judged = judge(ROW, SEEN)
    assert judged.contained and judged.reasons == []
    assert line_of(judged).startswith("deaths-exits ")
    assert " yes " in line_of(judged)


@pytest.mark.parametrize(
    ("otherwise", "reason"),
    [
        ({"endings": {}}, "no client saw anything end"),
        ({"endings": {"client one, misbehaviour": []}}, "0 endings (none)"),
        (
            {"endings": {"client one, misbehaviour": ["chat/error", "chat/turnComplete"]}},
            "2 endings (chat/error, chat/turnComplete)",
        ),
        ({"endings": {"client two, kill": [CANCELLED] * 2}}, "client two, kill: 2 endings"),
        (
            {"endings": {"client one, misbehaviour": ["chat/turnComplete"]}},
            "ended by chat/turnComplete and not by chat/error",
        ),
        ({"saw": (DIED, "It had status 3 when it exited with a bang")}, "its clients were told"),
        ({"saw": ("agentError", SEEN.saw[1])}, "its clients were told agentError"),
        ({"differs": ["client two, ahp-chat:/x"]}, "client two, ahp-chat:/x: not the state"),
        ({"left": ["4711 python"]}, "left: 4711 python"),
        ({"lost": "of 9 words 8 arrived"}, "the sibling: of 9 words 8 arrived"),
        ({"unanswered": "the host died (status 1)"}, "the host died (status 1)"),
        ({"failure": "the end of turn t2 did not come"}, "the end of turn t2 did not come"),
    ],
)
def test_each_crack_in_the_walls_is_named_and_gives_status_1(
    otherwise: dict[str, Any], reason: str
) -> None:
    judged = judge(ROW, evolve(SEEN, **otherwise))
    assert not judged.contained
    assert any(reason in told for told in judged.reasons), judged.reasons
    assert reason in line_of(judged)
    held = judge(ROW, SEEN)
    assert last_line([held, judged]).startswith("1 of 2 contained, ")
    assert status_of([held, judged]) == 1
    assert reason in json.loads(as_json([held, judged]))["agents"][1]["reasons"][0]


def test_a_session_that_never_came_to_be_has_one_ending_too() -> None:
    row = Row(factory="hostile_creation:exits", ending=NOT_CREATED, says=(FAILED, "status 3"))
    seen = evolve(SEEN, endings={"client one, misbehaviour": [NOT_CREATED]})
    assert judge(row, evolve(seen, saw=(FAILED, "it exited with status 3"))).contained
    assert not judge(row, evolve(seen, saw=("", "it was created"))).contained


def test_a_long_pause_is_told_and_no_crack() -> None:
    slow = judge(ROW, evolve(SEEN, pause_ms=100.0))
    assert slow.contained
    assert pauses([judge(ROW, SEEN), slow]) == (
        "the sibling's longest pause: 100 ms, beside deaths-exits; 1 of 2 reached 100 ms"
    )


def test_the_last_line_counts_what_hosts_left_too() -> None:
    held = judge(ROW, SEEN)
    left = judge(ROW, evolve(SEEN, left=["4711 python"]))
    assert last_line([held]) == "1 of 1 contained, 0 processes left"
    assert status_of([held]) == 0
    assert last_line([held, left]) == "1 of 2 contained, 1 process left"
    assert last_line([held, left], strays=2) == "1 of 2 contained, 3 processes left"
    assert status_of([held], strays=1) == 1
    assert status_of([]) == 1


def test_the_table_holds_agents_enough_each_under_a_name_of_its_own() -> None:
    names = [row.name for row in TABLE]
    assert len(names) == len(set(names)) >= 22
    assert {row.then for row in TABLE} == set(Then)


# -- the program --------------------------------------------------------------------------


def program(*arguments: str) -> list[str]:
    return [sys.executable, faults.__file__, *arguments]


def test_two_agents_are_run_against_a_host_and_contained() -> None:
    done = subprocess.run(
        program("strays-leaves-and-waits", "creation-exits"),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "2 of 2 contained, 0 processes left"


def test_a_host_that_dies_beside_an_agent_is_no_containment_and_the_next_gets_another() -> None:
    command = program("deaths-exits", "hangs-loops", "hangs-stopped", "deaths-aborts")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            for line in running.stdout:
                if line.startswith("deaths-exits "):
                    break
            os.kill(host_of(running.pid), signal.SIGKILL)
            told, _ = running.communicate(timeout=LIMIT_S)
        finally:
            running.kill()
    assert running.returncode == 1, told
    assert "the host died (status -9)" in told
    assert told.splitlines()[-1] == "3 of 4 contained, 0 processes left"


def host_of(pid: int) -> int:
    """The host that a running `faults.py` started."""
    for stat in read_tree(pid):
        words = Path(f"/proc/{stat.pid}/cmdline").read_bytes().split(b"\0")
        if b"start" in words and any(word.endswith(b"ahpd-supervisor") for word in words):
            return stat.pid
    raise AssertionError("no host runs")


def test_an_agent_that_is_not_there_is_refused_with_a_sentence() -> None:
    done = subprocess.run(
        program("nobody"), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "there is no agent nobody; --list names them" in done.stderr
