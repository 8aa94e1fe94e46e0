"""What an operator sees of a running host and does to it: status, processes, kill, restart, logs.

Knows no wire. Answers are the shapes of `contracts.control_wire`; what cannot be
done is an `OperationRefused` with one of its codes and a sentence.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

import trio
from attrs import frozen

from ..contracts.ahp.errors import AhpError
from ..contracts.ahp.status import is_error
from ..contracts.control_wire import (
    FAILURE_AMBIGUOUS,
    FAILURE_NOT_FOUND,
    FAILURE_TIMEOUT,
    FAILURE_UNFIT,
    Access,
    AgentStatus,
    Imported,
    Killed,
    Processes,
    Restarted,
    Status,
    WorkerRow,
    WorkerStatus,
)
from .host import Host
from .processes.kernel import PAGE_BYTES
from .processes.launcher import WorkerProcess
from .processes.output_log import OutputLog
from .sessions.chat import Chat
from .sessions.conversation import BURIAL_S, Conversation
from .sessions.parked import parked_in
from .sessions.session import Session
from .sessions.turns import Phase
from .store.interface import StoreError
from .store.transfer import ImportRefused, read_export_file

#: On top of the kill grace: how long a tree that was killed may take to be gone.
GONE_LIMIT_S = BURIAL_S + 5

#: How many of the things that were meant a refusal lists.
MAX_LISTED = 10

#: How many requests of a chat a row names.
MAX_WAITS_NAMED = 3

#: How much of an agent's own words an answer repeats, in characters: agents choose them.
MAX_TEXT_CHARS = 200
MAX_FAULT_CHARS = 1000


class OperationRefused(Exception):
    """It cannot be done: a code of the control wire, and a sentence for a person."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@frozen(kw_only=True)
class Surroundings:
    """What is told of a host beside what it knows itself."""

    version: str
    ahp: str
    access: Access
    started_s: float
    """On trio's clock."""
    connections: Callable[[], int]
    keeper_pid: Callable[[], int | None]


class Operations:
    """An operator's hands on one host. Not for subclassing."""

    def __init__(self, host: Host, surroundings: Surroundings) -> None:
        self._host = host
        self._around = surroundings

    def status(self) -> Status:
        """How the host does."""
        host, around = self._host, self._around
        return Status(
            version=around.version,
            pid=os.getpid(),
            keeper_pid=around.keeper_pid(),
            ahp=around.ahp,
            uptime_s=trio.current_time() - around.started_s,
            memory_bytes=_own_memory_bytes(),
            agents=[
                AgentStatus(name=agent.name, fault=_cut(agent.fault, MAX_FAULT_CHARS))
                for agent in host.agents.by_name.values()
            ],
            sessions=host.session_count,
            chats=host.chat_count,
            connections=around.connections(),
            workers=len(self._conversations()) + len(host.agents.workers()),
        )

    def access(self) -> Access:
        """What a client on this machine needs to connect."""
        return self._around.access

    async def processes(self) -> Processes:
        """Every worker, the newest last; a catalogue's after the conversations'."""
        rows = []
        for chat, life in self._conversations():
            rows.append(_row(chat, life))
            # Each reads some files of /proc: the others have their turn in between.
            await trio.lowlevel.checkpoint()
        for name, worker in self._host.agents.workers():
            described = self._host.agents.by_name[name].description is not None
            rows.append(
                WorkerRow(
                    agent=name,
                    title="catalogue",
                    status="idle" if described else "starting",
                    age_s=trio.current_time() - worker.started_s,
                    **_used(worker.process),
                )
            )
            await trio.lowlevel.checkpoint()
        return Processes(workers=rows)

    async def kill(self, id: str) -> Killed:
        """Ends a session, or a chat that is not its session's default, and all that runs for it.

        Answers when nothing of it is left. Cancelled, it is ended all the same.

        Raises:
            OperationRefused: nothing or too much has that name, or it does not die.
        """
        await self._host.wake_meant(id)
        found = self._find(id)
        if isinstance(found, Session):
            chats = list(found.chats.values())
        else:
            chats = [found, *found.session.subagents_of(found)]
        lives = [life for chat in chats for life in chat.lives]
        if isinstance(found, Session):
            self._host.dispose_session(found)
            killed = Killed(session=found.id, processes=await self._buried(found.id, lives))
        else:
            self._host.remove_chat(found)
            count = await self._buried(found.id, lives)
            killed = Killed(session=found.session.id, chat=found.id, processes=count)
        return killed

    async def restart(self, id: str) -> Restarted:
        """Ends a chat's process and keeps its thread; a session's default chat is meant by it.

        Raises:
            OperationRefused: nothing or too much has that name, it has no process of
                its own, or that does not die.
        """
        await self._host.wake_meant(id)
        chat = self._chat(id)
        if chat.parent is not None:
            raise OperationRefused(
                FAILURE_UNFIT,
                f"The chat {chat.id} is a subagent's and runs in the process of the chat "
                f"{chat.parent.id}: restart that one.",
            )
        if chat.session.failed:
            raise OperationRefused(
                FAILURE_UNFIT,
                f"The session {chat.session.id} could not be created: kill it and make another.",
            )
        lives = chat.lives
        chat.restart()
        count = await self._buried(chat.id, lives)
        return Restarted(session=chat.session.id, chat=chat.id, processes=count)

    async def log_of(self, id: str) -> tuple[str | None, OutputLog]:
        """A chat's id and its log; None and the catalogue's log for the name of an agent.

        Raises:
            OperationRefused: nothing or too much has that name.
        """
        await self._host.wake_meant(id)
        if id in self._host.agents.by_name and not self._host.find(id):
            return None, self._host.log_of(f"catalogue/{id}")
        chat = self._chat(id)
        # A subagent speaks through its parent's process.
        speaking = chat.parent or chat
        return chat.id, speaking.log

    async def backup(self, path: Path) -> None:
        """Writes a copy of everything that is kept to a new file.

        Raises:
            OperationRefused: the file is there already, or cannot be written.
        """
        await self._host.ledger.settle()
        try:
            await self._host.ledger.store.backup(path)
        except StoreError as error:
            raise OperationRefused(FAILURE_UNFIT, _sentence(error)) from None

    async def import_session(self, path: Path) -> Imported:
        """Takes in the session of a file that `export` wrote.

        Raises:
            OperationRefused: the file is none of ours, or an id of it is taken.
        """
        try:
            kept = await trio.to_thread.run_sync(read_export_file, path)
            self._host.take_in(kept)
        except (ImportRefused, AhpError) as error:
            raise OperationRefused(FAILURE_UNFIT, _sentence(error)) from None
        await self._host.ledger.settle()
        return Imported(
            session=kept.record.id,
            chats=len(kept.chats),
            turns=sum(len(chat.turns) for chat in kept.chats),
        )

    # -- names ------------------------------------------------------------------------

    def _find(self, id: str) -> Session | Chat:
        found = self._host.find(id)
        if not found:
            raise OperationRefused(
                FAILURE_NOT_FOUND, f"There is no session and no chat {id[:200]!r}."
            )
        if len(found) > 1:
            raise OperationRefused(FAILURE_AMBIGUOUS, _ambiguous_sentence(id, found))
        return found[0]

    def _chat(self, id: str) -> Chat:
        found = self._find(id)
        return found.default_chat if isinstance(found, Session) else found

    # -- workers ----------------------------------------------------------------------

    def _conversations(self) -> list[tuple[Chat, Conversation]]:
        return [(chat, life) for chat in self._host.chats.values() for life in chat.lives]

    async def _buried(self, id: str, lives: Sequence[Conversation]) -> int:
        limit_s = self._host.bounds.kill_grace_s + GONE_LIMIT_S
        with trio.move_on_after(limit_s):
            for life in lives:
                await life.ended.wait()
        pids = [
            info.pid
            for life in lives
            if life.process is not None
            for info in life.process.processes()
        ]
        if pids:
            left = ", ".join(map(str, pids[:MAX_LISTED]))
            raise OperationRefused(
                FAILURE_TIMEOUT,
                f"{id} was ended {limit_s:g} s ago, and these processes of it still are: {left}.",
            )
        return sum(life.processes_ended for life in lives)


def _row(chat: Chat, life: Conversation) -> WorkerRow:
    parked = parked_in(chat.state)
    waits = "; ".join(one.waits_on[:MAX_TEXT_CHARS] for one in parked[:MAX_WAITS_NAMED])
    if len(parked) > MAX_WAITS_NAMED:
        waits += f"; and {len(parked) - MAX_WAITS_NAMED} more"
    own = life is chat.conversation
    return WorkerRow(
        session=chat.session.id,
        chat=chat.id,
        agent=chat.session.agent,
        title=_cut(chat.state["title"] or chat.session.channel.state["title"]) or "",
        status=_status(chat, life) if own else "ending",
        age_s=trio.current_time() - life.started_s,
        waits_on=_cut(waits) if waits and own else None,
        **_used(life.process),
    )


def _sentence(error: Exception) -> str:
    said = error.message if isinstance(error, AhpError) else str(error)
    return said[:1].upper() + said[1:] + ("" if said.endswith(".") else ".")


def _cut(text: str | None, limit: int = MAX_TEXT_CHARS) -> str | None:
    return text if text is None or len(text) <= limit else text[:limit] + "…"


def _status(chat: Chat, life: Conversation) -> WorkerStatus:
    if not life.ready:
        return "ending" if life.members else "starting"
    if chat.phase is Phase.IDLE:
        return "error" if is_error(chat.state["status"]) else "idle"
    return "running" if chat.phase is Phase.RUNNING else "needs-you"


class _Used(TypedDict):
    pid: int | None
    memory_bytes: int
    cpu_s: float


def _used(process: WorkerProcess | None) -> _Used:
    tree = process.processes() if process is not None else []
    return {
        "pid": process.pid if process is not None else None,
        "memory_bytes": sum(info.memory_bytes for info in tree),
        "cpu_s": sum(info.cpu_s for info in tree),
    }


def _ambiguous_sentence(id: str, found: Sequence[Session | Chat]) -> str:
    named = [
        f"{'session' if isinstance(one, Session) else 'chat'} {one.id}"
        for one in found[:MAX_LISTED]
    ]
    if len(found) > MAX_LISTED:
        named.append(f"{len(found) - MAX_LISTED} more")
    return f"{id!r} is the beginning of more than one id: {', '.join(named)}."


def _own_memory_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * PAGE_BYTES
