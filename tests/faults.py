"""Runs the hostile agents against a host as a user starts it, beside a streaming sibling.

    faults.py [--json] [--list] [--gone-within S] [AGENT]…

One after another, each in a session with two clients. It misbehaves; its turn must end
once for both; its next message must be answered; it misbehaves again where it can, and
is killed in the midst of it. `faults_report.judge` says what containment means. The
host's graces are short (below), so that it takes minutes; agents whose row needs other
bounds get a host of their own.
"""

import argparse
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from ahp_client import AhpClient, Refused, connect
from ahpd.supervisor.cli.control import ControlClient
from ahpd.supervisor.cli.failures import CommandFailed
from ahpd.supervisor.processes.kernel import Stat, read_stat
from faults_host import FaultsHost, sibling_of, started
from faults_report import (
    HEAD,
    MISBEHAVED,
    Judged,
    Observed,
    as_json,
    judge,
    last_line,
    line_of,
    pauses,
    status_of,
)
from hostile_stage import (
    CANCEL_GRACE_S,
    ENDINGS,
    HERE_IT_COMES,
    KILL_GRACE_S,
    SLACK_S,
    comparable,
    gone,
    has_ended,
    marked_pids,
    turn_in,
)
from hostile_table import NOT_CREATED, TABLE, Row, Then

Json = dict[str, Any]

#: How long an agent may go on before its turn is cancelled.
RAGE_S = 1.0

#: One agent's whole run, on a machine that is busy.
LIMIT_S = 90

#: After a kill nothing may be left when this has passed.
GONE_WITHIN_S = KILL_GRACE_S + SLACK_S


class Run:
    """One agent's run: its clients, and what is observed of it."""

    def __init__(self, row: Row, host: FaultsHost, gone_within_s: float) -> None:
        self.row = row
        self.host = host
        self.session = f"ahp-session:/{row.name}"
        self.chat = ""
        self.clients: list[AhpClient] = []
        self.endings: dict[str, list[str]] = {}
        self.saw = ("", "nothing")
        self.differs: list[str] = []
        self.left: list[str] = []
        self.unanswered: str | None = None
        self.failure: str | None = None
        self._gone_within_s = gone_within_s
        self._met: set[Stat] = set()

    async def observe(self) -> Observed:
        """Lets it happen, and answers what was seen of it, were it the end of the host."""
        before = self.host.memory_bytes()
        told: Json = {"lost": "it was not heard of any more", "pause_ms": 0.0, "way_ms": 0.0}
        try:
            await self.host.sibling.ask("speak", f"beside-{self.row.name}")
            async with connect(self.host.url, "one") as one, connect(self.host.url, "two") as two:
                self.clients = [one, two]
                await self._happen_and_end()
            told = await self.host.sibling.ask("end")
        except* Exception as failures:
            # Whatever did not go as it has to is part of what was observed.
            self.failure = self.failure or _sentence(_first_of(failures))
        return Observed(
            agent=self.row.name,
            endings=self.endings,
            saw=self.saw,
            differs=self.differs,
            left=self.left,
            lost=told["lost"],
            unanswered=self.host.death or self.unanswered,
            failure=self.failure,
            pause_ms=told["pause_ms"],
            way_ms=told["way_ms"],
            before_bytes=before,
            after_bytes=self.host.memory_bytes(),
        )

    async def _happen_and_end(self) -> None:
        try:
            with trio.fail_after(LIMIT_S):
                await self._enter()
                await self._happen()
        except (AssertionError, Refused, trio.TooSlowError, CommandFailed) as error:
            self.failure = _sentence(error)
        await self._kill()
        self._note_endings()

    async def _enter(self) -> None:
        for client in self.clients:
            await client.initialize(initialSubscriptions=["ahp-root://"])
        await self.clients[0].request("createSession", channel=self.session, provider=self.row.name)
        for client in self.clients:
            state = await client.subscribe(self.session)
            self.chat = state["defaultChat"]
            await client.subscribe(self.chat)

    async def _happen(self) -> None:
        row, (one, two) = self.row, self.clients
        for client in self.clients:
            await client.until(
                lambda client=client: self._lifecycle(client) != "creating",
                what="the end of its creation",
            )
        if not row.is_created:
            error = one.states[self.session].get("creationError") or {}
            self.saw = (error.get("errorType", ""), error.get("message", "it was created"))
            self._meet(_numbers_in(self.saw[1]))
            await self._compare()
            return
        await self._report("t1")
        await self._misbehave("t2")
        if row.then is Then.CANCEL:
            await trio.sleep(RAGE_S)
            self._meet()
            action = {"type": "chat/turnCancelled", "turnId": "t2", "duration": 1}
            await two.act(self.chat, action)
        for client in self.clients:
            await client.ended(self.chat, "t2")
        self.saw = _told_by(turn_in(one, self.chat, "t2"))
        await self._report("t3")
        await self._compare()
        if row.goes_on:
            await self._misbehave("t4")

    async def _report(self, turn_id: str) -> None:
        """A message that is answered honestly."""
        turn = await self.clients[0].say(self.chat, turn_id, "report")
        if turn["state"] != "complete":
            self.unanswered = f"the message {turn_id} was not answered: {_told_by(turn)[1]}"

    async def _misbehave(self, turn_id: str) -> None:
        await self.clients[0].start_turn(self.chat, turn_id, "misbehave")
        for client in self.clients:
            await client.until(
                lambda client=client: HERE_IT_COMES in str(turn_in(client, self.chat, turn_id)),
                what="the last honest words",
            )
            await client.until(
                lambda client=client: (
                    has_ended(client, self.chat, turn_id)
                    or len(client.states[self.session].get("inputNeeded", [])) >= self.row.parked
                ),
                what=f"{self.row.parked} parked requests",
            )
        if self.row.leaves:
            one = self.clients[0]
            await one.until(lambda: _strays_in(turn_in(one, self.chat, turn_id)), what="strays")
            strays = _strays_in(turn_in(one, self.chat, turn_id))
            assert len(strays) == self.row.leaves, f"it told of {len(strays)} processes"
            self._meet(strays)
        self._meet()

    def _meet(self, pids: Sequence[int] = ()) -> None:
        self._met |= self.host.running()
        self._met |= {stat for pid in pids if (stat := read_stat(pid)) is not None}

    async def _compare(self) -> None:
        """Each client's reduced state against a fresh snapshot."""
        for channel in (self.chat, self.session):
            fresh = comparable(await self.clients[0].snapshot(channel))
            for client in self.clients:
                try:
                    await client.until(
                        lambda client=client, channel=channel, fresh=fresh: (
                            comparable(client.states[channel]) == fresh
                        ),
                        within_s=SLACK_S,
                    )
                except AssertionError:
                    self.differs.append(f"client {client.client_id}, {channel}")

    async def _kill(self) -> None:
        """Ends the session by a client that had no part in it, and waits until all is gone."""
        try:
            with trio.fail_after(LIMIT_S):
                self._meet()
                async with connect(self.host.url, "three") as client:
                    await client.initialize()
                    await client.request("disposeSession", channel=self.session)
                    listed = (await client.request("listSessions"))["items"]
                    if any(item["resource"] == self.session for item in listed):
                        self.unanswered = "the session is still listed after it was killed"
                for held in self.clients:
                    await held.until(lambda held=held: self._was_removed(held), what="its removal")
                try:
                    await gone(lambda: self.host.left(self._met), self._gone_within_s)
                except AssertionError:
                    still = self.host.left(self._met)
                    self.left = [f"{stat.pid} {stat.name}" for stat in still]
        except (AssertionError, Refused, trio.TooSlowError, CommandFailed) as error:
            self.unanswered = self.unanswered or f"the host does not answer: {_sentence(error)}"

    def _was_removed(self, client: AhpClient) -> bool:
        return any(
            told["method"] == "root/sessionRemoved" and told["params"]["session"] == self.session
            for told in client.notifications
        )

    def _note_endings(self) -> None:
        """What each client saw end, of the misbehaviour and of the turn it was killed in."""
        for client in self.clients:
            actions = client.actions()
            who = f"client {client.client_id}"
            if not self.row.is_created:
                kinds = [one["type"] for one in actions if one["type"] == NOT_CREATED]
                if not kinds and self._lifecycle(client) == "failed":
                    kinds = [NOT_CREATED]  # it was in its snapshot
                self.endings[f"{who}, {MISBEHAVED}"] = kinds
                continue
            for turn_id, name in (("t2", MISBEHAVED), ("t4", "kill")):
                if any(one.get("turnId") == turn_id for one in actions):
                    self.endings[f"{who}, {name}"] = [
                        one["type"]
                        for one in actions
                        if one["type"] in ENDINGS and one.get("turnId") == turn_id
                    ]

    def _lifecycle(self, client: AhpClient) -> str:
        return str(client.states.get(self.session, {}).get("lifecycle"))


def _told_by(turn: Json | None) -> tuple[str, str]:
    """What a client shows of how a turn ended: an error's type, and a sentence."""
    if turn is None:
        return "", "nothing"
    for part in reversed(turn["responseParts"]):
        if part["kind"] == "error":
            return part["error"]["errorType"], part["error"]["message"]
    return "", f"the turn is {turn['state']}"


def _strays_in(turn: Json | None) -> list[int]:
    for part in (turn or {"responseParts": []})["responseParts"]:
        if str(part.get("id")).endswith("-told"):
            return list(json.loads(part["content"])["strays"])
    return []


def _numbers_in(sentence: str) -> list[int]:
    told = re.search(r"\[([\d, ]+)\]", sentence)
    return [int(number) for number in told[1].split(", ")] if told is not None else []


def _first_of(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    first = failures.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


def _sentence(error: BaseException) -> str:
    if isinstance(error, trio.TooSlowError):
        return f"it took longer than {LIMIT_S} s"
    return str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"


# -- the program ----------------------------------------------------------------------------


def run_all(rows: Sequence[Row], gone_within_s: float, *, told: bool) -> tuple[list[Judged], int]:
    """Runs these agents; answers what is thought of each, and how many processes the hosts left."""
    all_judged: list[Judged] = []
    strays = 0
    for bounds, group in _grouped(rows):
        waiting = list(group)
        # One that a host did not survive is followed by those after it on another host.
        while waiting:
            with _host(waiting, bounds) as host:
                while waiting and host.death is None:
                    row = waiting.pop(0)
                    judged = judge(row, trio.run(Run(row, host, gone_within_s).observe))
                    all_judged.append(judged)
                    if told:
                        print(line_of(judged), flush=True)
            strays += _strays_of(host.mark, gone_within_s)
    return all_judged, strays


def _strays_of(mark: str, within_s: float) -> int:
    """How many processes a host that has ended left behind."""
    try:
        trio.run(gone, lambda: marked_pids(mark), within_s)
    except AssertionError:
        return len(marked_pids(mark))
    return 0


@contextmanager
def _host(rows: Sequence[Row], bounds: Json) -> Iterator[FaultsHost]:
    limits = {"cancel_grace_s": CANCEL_GRACE_S, "kill_grace_s": KILL_GRACE_S, **bounds}
    with (
        tempfile.TemporaryDirectory(prefix="ahpd-", dir="/tmp") as folder,
        started(Path(folder), rows, limits) as (cli, until),
        ControlClient.connect(cli.state_dir) as control,
    ):
        with sibling_of(cli, until) as sibling:
            trio.run(sibling.answer)
            yield FaultsHost(cli, control, sibling)
        if cli.process.poll() is None:
            stopped = cli.run("stop")
            assert stopped.returncode == 0, stopped.stderr


def _grouped(rows: Sequence[Row]) -> Iterator[tuple[Json, list[Row]]]:
    """Those that need the same bounds together, in the table's order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(json.dumps(row.bounds, sort_keys=True), []).append(row)
    for bounds, group in groups.items():
        yield json.loads(bounds), group


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/faults", description="Runs hostile agents against a real host."
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--list", action="store_true", help="name the agents and leave")
    parser.add_argument(
        "--gone-within",
        type=float,
        default=GONE_WITHIN_S,
        metavar="S",
        help="how long after a kill a process may still be there (default %(default)s)",
    )
    parser.add_argument("agent", nargs="*", metavar="AGENT", help="all unless named")
    options = parser.parse_args()
    by_name = {row.name: row for row in TABLE}
    if options.list:
        print("\n".join(by_name))
        return 0
    unknown = [name for name in options.agent if name not in by_name]
    if unknown:
        parser.error(f"there is no agent {unknown[0]}; --list names them")
    rows = [by_name[name] for name in options.agent] or list(TABLE)
    if not options.json:
        print(
            f"Python {platform.python_version()}, {os.cpu_count()} cores; cancel grace "
            f"{CANCEL_GRACE_S:g} s, kill grace {KILL_GRACE_S:g} s\n\n{HEAD}",
            flush=True,
        )
    all_judged, strays = run_all(rows, options.gone_within, told=not options.json)
    if options.json:
        print(as_json(all_judged, strays))
        print(last_line(all_judged, strays), file=sys.stderr)
    else:
        print(f"\n{pauses(all_judged)}\n{last_line(all_judged, strays)}")
    return status_of(all_judged, strays)


if __name__ == "__main__":
    sys.exit(main())
