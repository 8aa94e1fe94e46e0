"""The stage for hostile agents: one real host, one of them, two clients, and a streaming sibling.

The sibling is a session of a well-behaved agent in the same host; it streams
numbered words all the while and must lose none of them. What is left of the
hostile one is found twice: by the processes that were met while it lived, and
by the mark that a host puts into the environment of all its workers.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sized
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from ahp_client import AhpClient, text_of
from ahpd.supervisor.processes.kernel import Stat, read_stat, read_tree
from hostile_sibling import Sibling
from live_host import LiveHost, live_host

Json = dict[str, Any]

#: The graces of the host on this stage. What is waited for beyond them gets `SLACK_S`.
CANCEL_GRACE_S = 0.5
KILL_GRACE_S = 0.5
SLACK_S = 5.0

#: The words of `hostile_base` before a misbehaviour.
HERE_IT_COMES = "here it comes"

_MARK = "AHPD_MARK"

ENDINGS = ("chat/turnComplete", "chat/error", "chat/turnCancelled")

#: The actions that settle what is parked, and what they say.
SETTLED_CALL = {"type": "chat/toolCallConfirmed", "approved": False, "reason": "skipped"}
SETTLED_QUESTION = {"type": "chat/inputCompleted", "response": "cancel"}


class Stage:
    """A hostile session with its two clients, and how to look at what becomes of it."""

    def __init__(
        self,
        live: LiveHost,
        clients: tuple[AhpClient, AhpClient],
        session: str,
        chat: str,
        sibling: Sibling,
        mark: str,
    ) -> None:
        self.live = live
        self.one, self.two = clients
        self.clients = clients
        self.session = session
        self.chat = chat
        self.sibling = sibling
        self.met: set[Stat] = set()
        self._mark = mark

    # -- talking ----------------------------------------------------------------------

    async def report(self, turn_id: str) -> Json:
        """A message that is answered honestly: the process, its `resume` and its `seed`."""
        turn = await self.one.say(self.chat, turn_id, "report")
        await self.two.ended(self.chat, turn_id)
        assert turn["state"] == "complete", turn
        return dict(json.loads(text_of(turn)))

    async def misbehave(self, turn_id: str, *, parked: int = 0) -> None:
        """A message that is answered by the misbehaviour; returns when both clients see it."""
        await self.one.start_turn(self.chat, turn_id, "misbehave")
        for client in self.clients:
            await client.until(
                lambda client=client: HERE_IT_COMES in str(turn_in(client, self.chat, turn_id)),
                what="the last honest words",
            )
            await client.until(
                lambda client=client: (
                    has_ended(client, self.chat, turn_id)
                    or len(client.states[self.session].get("inputNeeded", [])) >= parked
                ),
                what=f"{parked} parked requests",
            )
        self.meet()

    async def told(self, turn_id: str) -> Json:
        """What the hostile agent told of its misbehaviour."""

        def parts() -> list[str]:
            found = turn_in(self.one, self.chat, turn_id) or {"responseParts": []}
            return [
                part["content"]
                for part in found["responseParts"]
                if str(part.get("id")).endswith("-told")
            ]

        await self.one.until(parts, what="what it has to tell")
        return dict(json.loads(parts()[0]))

    async def cancel(self, turn_id: str, *, by: AhpClient | None = None) -> None:
        """One client cancels; its echo is waited for."""
        action = {"type": "chat/turnCancelled", "turnId": turn_id, "duration": 1}
        echo = await (by or self.one).act(self.chat, action)
        assert "rejectionReason" not in echo, echo

    async def ended(self, turn_id: str) -> Json:
        """Waits until the turn has ended for both clients, who see the same; answers it."""
        one, two = [await client.ended(self.chat, turn_id) for client in self.clients]
        assert one == two
        return one

    async def dispose(self) -> None:
        """A client ends the session, and both hear that it is gone."""
        self.meet()
        await self.one.request("disposeSession", channel=self.session)
        for client in self.clients:
            await client.until(
                lambda client=client: any(
                    note["method"] == "root/sessionRemoved"
                    and note["params"]["session"] == self.session
                    for note in client.notifications
                ),
                what="root/sessionRemoved",
            )
        assert self.chat not in self.live.host._by_uri

    # -- what clients saw -------------------------------------------------------------

    def actions_of(self, client: AhpClient, turn_id: str) -> list[Json]:
        """What a client received on the chat from the start of that turn to the next one's."""
        actions = client.actions(self.chat)
        starts = [n for n, one in enumerate(actions) if one["type"] == "chat/turnStarted"]
        first = next(n for n in starts if actions[n]["turnId"] == turn_id)
        return actions[first : next((n for n in starts if n > first), len(actions))]

    def saw_it_end(self, turn_id: str, ending: str, *, parked: int = 0) -> Json:
        """Holds the order of things for both clients: settled, then ended, once, then nothing.

        Answers the ending.
        """
        seen: list[Json] = []
        for client in self.clients:
            seen = self.actions_of(client, turn_id)
            assert [one["type"] for one in seen if one["type"] in ENDINGS] == [ending]
            last = next(n for n, one in enumerate(seen) if one["type"] == ending)
            assert [one for one in seen[last + 1 :] if one.get("turnId") == turn_id] == []
            assert [one for one in seen if _settles(one)] == seen[last - parked : last]
            assert open_in(turn_in(client, self.chat, turn_id)) == []
            assert not client.states[self.session].get("inputNeeded")
        return next(one for one in seen if one["type"] == ending)

    async def all_see_the_same(self) -> None:
        """Each client's reduced state equals a fresh snapshot."""
        for channel in (self.chat, self.session):
            fresh = comparable(await self.one.snapshot(channel))
            for client in self.clients:
                await client.until(
                    lambda client=client, channel=channel, fresh=fresh: (
                        comparable(client.states[channel]) == fresh
                    ),
                    what=f"the state of {channel}",
                )

    # -- processes --------------------------------------------------------------------

    def meet(self, pids: Iterable[int] = ()) -> None:
        """Remembers the processes of the session that run now, and those named."""
        for pid in [*self.live.pids(self.session), *pids]:
            stat = read_stat(pid)
            if stat is not None:
                self.met.add(stat)

    def left(self) -> list[str]:
        """Processes of the hostile session: those met before, and those that bear the mark."""
        spared = {stat.pid for stat in self._spared()}
        marked = {pid for pid in marked_pids(self._mark) if pid not in spared}
        met = {stat.pid for stat in self.met if same_process(stat)}
        found = [read_stat(pid) for pid in marked | met]
        return [f"{stat.pid} {stat.name}" for stat in found if stat is not None]

    async def nothing_is_left(self, within_s: float) -> None:
        """Waits until no process of the session is left."""
        await gone(self.left, within_s)

    async def only_runs(self, pid: int, within_s: float) -> None:
        """Waits until of everything met before only that process is left."""
        await gone(
            lambda: [str(stat) for stat in self.met if stat.pid != pid and same_process(stat)],
            within_s,
        )

    def _spared(self) -> list[Stat]:
        catalogues = [worker.process for _, worker in self.live.host.agents.workers()]
        pids = [*self.live.pids(self.sibling.session)]
        pids += [process.pid for process in catalogues if process is not None]
        return [stat for pid in pids for stat in read_tree(pid)]


class Theatre:
    """The host of a test, its clients, and the sibling that streams all the while."""

    def __init__(
        self, live: LiveHost, clients: tuple[AhpClient, AhpClient], sibling: Sibling, mark: str
    ) -> None:
        self.live = live
        self.clients = clients
        self.sibling = sibling
        self.mark = mark

    async def enter(self, agent: str = "hostile", *, create: bool = True) -> Stage:
        """A session of a hostile agent, seen by both clients.

        Args:
            create: False for an agent that cannot be created: its session is made, not waited for.
        """
        one, two = self.clients
        session, chat = await self.live.session(one, agent, ready=create)
        await two.subscribe(session)
        await two.subscribe(chat)
        return Stage(self.live, self.clients, session, chat, self.sibling, self.mark)


@asynccontextmanager
async def theatre(
    state_dir: Path, factories: Mapping[str, str], *, sibling_survives: bool = True, **bounds: Any
) -> AsyncIterator[Theatre]:
    """A host that serves hostile agents, by name, while a sibling streams.

    On leaving, the sibling must have lost nothing and the host must end in order,
    with no process of it left.
    """
    until = state_dir / "until"
    agents = {**factories, "steady": "steady:create"}
    limits: Json = {"cancel_grace_s": CANCEL_GRACE_S, "kill_grace_s": KILL_GRACE_S, **bounds}
    steady = {"until": str(until)}
    async with live_host(state_dir, agents, options={"steady": steady}, **limits) as live:
        # Connections are the host's to close: each is opened before the watch begins.
        beside, one, two = [await live.client(name) for name in ("beside", "one", "two")]
        sibling = Sibling(beside, *await live.session(beside, "steady"), until)
        await sibling.speak("steady")
        mark = mark_of(live.pids(sibling.session)[0])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sibling.watch)
            yield Theatre(live, (one, two), sibling, mark)
            nursery.cancel_scope.cancel()
        if sibling_survives:
            lost = await sibling.end()
            assert lost is None, lost
            print(f"sibling: longest pause {sibling.longest_pause_s * 1000:.0f} ms")
    assert marked_pids(mark) == []


@asynccontextmanager
async def stage(
    state_dir: Path, factory: str, *, create: bool = True, **how: Any
) -> AsyncIterator[Stage]:
    """The stage of one hostile agent: `theatre` and `Theatre.enter` in one."""
    async with theatre(state_dir, {"hostile": factory}, **how) as house:
        yield await house.enter(create=create)


def open_in(turn: Json | None) -> list[Json]:
    """The requests of a turn that still wait on a person."""
    found = []
    for part in (turn or {"responseParts": []})["responseParts"]:
        if part["kind"] == "toolCall" and part["toolCall"]["status"].startswith("pending"):
            found.append(part)
        if part["kind"] == "inputRequest" and "response" not in part:
            found.append(part)
    return found


def mark_of(pid: int) -> str:
    """The mark of the host that a worker belongs to."""
    for variable in Path(f"/proc/{pid}/environ").read_text().split("\0"):
        name, _, value = variable.partition("=")
        if name == _MARK:
            return value
    raise AssertionError(f"{pid} bears no mark")


def marked_pids(mark: str) -> list[int]:
    """Every process whose environment bears that mark."""
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def same_process(met: Stat) -> bool:
    """Whether that process is still there, were it a zombie."""
    now = read_stat(met.pid)
    return now is not None and now.identity == met.identity


async def gone(left: Callable[[], Sized], within_s: float) -> None:
    """Polls until nothing is left, and says what is when it is not gone in time."""
    with trio.move_on_after(within_s):
        while left():  # noqa: ASYNC110  # nobody tells of another process
            await trio.sleep(0.01)
    assert not left(), left()


def comparable(state: Json) -> Json:
    """A state without what no action carries: what a session does, as its status says it."""
    return {**state, "status": state["status"] & ~31} if "lifecycle" in state else state


def turn_in(client: AhpClient, chat: str, turn_id: str) -> Json | None:
    """A turn as a client holds it, running or ended."""
    state = client.states[chat]
    running = state.get("activeTurn")
    turns = [*state["turns"], *([running] if running else [])]
    return next((turn for turn in turns if turn["id"] == turn_id), None)


def has_ended(client: AhpClient, chat: str, turn_id: str) -> bool:
    """Whether a client saw that turn end."""
    return any(turn["id"] == turn_id for turn in client.states[chat]["turns"])


def _settles(action: Json) -> bool:
    return any(
        all(action.get(key) == value for key, value in settled.items())
        for settled in (SETTLED_CALL, SETTLED_QUESTION)
    )
