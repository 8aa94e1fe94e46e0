"""The parts of the measurement: each says what was found, beside its raw limit, as a ratio.

A ratio says how many times the raw limit a figure comes to: of a time ours over
raw, of a rate raw over ours. 1 is all that there is to have.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

from attrs import asdict, frozen

from . import kernel, raw
from .client import Client, drain
from .host import Host, subscribe

Unit = Literal["ms", "1/s", "MiB"]

#: Deltas of one turn.
STREAMED = 10_000
CLIENTS = 20
SESSIONS = 100
#: Sessions that are being created at one time, and interpreters that are started.
AT_ONCE = 4

_OVER = b'"chat/turnComplete"'


@frozen(kw_only=True)
class Raw:
    """The raw limit, measured in the same run."""

    name: str
    value: float
    ratio: float


@frozen(kw_only=True)
class Figure:
    """One row: a median over so many runs."""

    part: str
    name: str
    value: float
    unit: Unit
    runs: int
    spread: float
    """The slowest over the fastest of the runs."""
    raw: list[Raw]

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


class Taken:
    """What several runs gave, and the raw runs between them."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def add(self, name: str, value: float) -> None:
        """One more run's value."""
        self._values.setdefault(name, []).append(value)

    def median(self, name: str) -> float:
        """Of all runs."""
        return statistics.median(self._values[name])

    def figure(self, part: str, name: str, unit: Unit, *raws: str) -> Figure:
        """The row of that name, beside the raw limits of those names."""
        value, taken = self.median(name), self._values[name]
        return Figure(
            part=part,
            name=name,
            value=value,
            unit=unit,
            runs=len(taken),
            spread=max(taken) / min(taken),
            raw=[
                Raw(name=one, value=self.median(one), ratio=self._ratio(name, one, unit))
                for one in raws
            ],
        )

    def _ratio(self, name: str, other: str, unit: Unit) -> float:
        ours, theirs = self.median(name), self.median(other)
        return theirs / ours if unit == "1/s" else ours / theirs


def creation(host: Host, runs: int) -> list[Figure]:
    """`createSession` until the session is ready, and subscribed."""
    taken = Taken()
    with raw.warm_forks() as forks:
        for _ in range(runs):
            taken.add("a bare interpreter", 1000 * raw.interpreter_start_s())
            taken.add("a fork of a warm one", 1000 * forks.talk_s())
            began_s = time.perf_counter()
            uri, _chat = host.session(host.client)
            taken.add("creation to ready", 1000 * (time.perf_counter() - began_s))
            host.client.request("disposeSession", channel=uri)
            host.until_gone()
    raws = "a bare interpreter", "a fork of a warm one"
    return [taken.figure("creation", "creation to ready", "ms", *raws)]


def first_delta(host: Host, runs: int) -> list[Figure]:
    """A message until the first word of its answer, gathered as by default and not at all."""
    taken = Taken()
    name = {0.0: "message to first delta", None: "message to first delta, gathered"}
    with raw.pipe_echo() as echo, _sessions(host, name) as chats:
        for _ in range(10 * runs):
            taken.add("a pipe's round trip", 1000 * echo.talk_s())
            for latency_ms, (client, chat) in chats.items():
                began_s, turn_id = time.perf_counter(), host.turn_id()
                client.start_turn(chat, turn_id, "wait")
                client.until(b'"chat/delta"')
                taken.add(name[latency_ms], 1000 * (time.perf_counter() - began_s))
                cancel = {"type": "chat/turnCancelled", "turnId": turn_id, "duration": 0}
                client.dispatch(chat, cancel)
                client.until(b'"chat/turnCancelled"')
    return [taken.figure("first_delta", one, "ms", "a pipe's round trip") for one in name.values()]


def streaming(host: Host, runs: int) -> list[Figure]:
    """Deltas a second from a worker to one client: each by itself, and gathered."""
    return _streamed(host, runs, "streaming", clients=1)


def streaming_20(host: Host, runs: int) -> list[Figure]:
    """The same to 20 clients of one chat."""
    return _streamed(host, runs, "streaming_20", clients=CLIENTS)


def _streamed(host: Host, runs: int, part: str, *, clients: int) -> list[Figure]:
    taken = Taken()
    to = "" if clients == 1 else f" to {clients} clients"
    figures = []
    for latency_ms, how in ((0.0, "deltas"), (None, "deltas, gathered")):
        name, limit = f"{how}{to}", f"raw sends of the same{to}"
        with ExitStack() as stack:
            readers = [host.connect(f"reader-{number}") for number in range(clients)]
            for reader in readers:
                stack.callback(reader.close)
            uri, chat = host.session(readers[0], max_latency_ms=latency_ms)
            stack.callback(host.client.request, "disposeSession", channel=uri)
            # The first turn shows what is sent; it also warms everything up.
            readers[0].start_turn(chat, host.turn_id(), f"stream {STREAMED}")
            texts = readers[0].until(_OVER)
            for reader in readers[1:]:
                subscribe(reader, chat, latency_ms)
            sender = stack.enter_context(raw.sender(texts))
            plain = [Client(sender.url) for _ in range(clients)]
            for client in plain:
                stack.callback(client.close)
            for _ in range(runs):
                began_s = time.perf_counter()
                readers[0].start_turn(chat, host.turn_id(), f"stream {STREAMED}")
                drain(readers, _OVER)
                taken.add(name, STREAMED / (time.perf_counter() - began_s))
                # The same bytes carry the same deltas.
                taken.add(limit, STREAMED / raw.send_all_s(plain))
        figures.append(taken.figure(part, name, "1/s", limit))
        taken = Taken()
    return figures


def cpu(host: Host, runs: int) -> list[Figure]:
    """What the supervisor spends on 1,000 actions that one client reads."""
    taken = Taken()
    name, limit = "supervisor CPU per 1,000 actions", "raw sends' CPU"
    with _sessions(host, [0.0]) as chats:
        client, chat = chats[0.0]
        client.start_turn(chat, host.turn_id(), f"stream {STREAMED}")
        texts = client.until(_OVER)
        with raw.sender(texts) as sender:
            plain = Client(sender.url)
            raw.send_all_s([plain])
            for _ in range(runs):
                began_s = kernel.cpu_s(host.pid)
                client.start_turn(chat, host.turn_id(), f"stream {STREAMED}")
                drain([client], _OVER)
                taken.add(name, 1e6 * (kernel.cpu_s(host.pid) - began_s) / STREAMED)
                began_s = kernel.cpu_s(sender.pid)
                raw.send_all_s([plain])
                taken.add(limit, 1e6 * (kernel.cpu_s(sender.pid) - began_s) / STREAMED)
            plain.close()
    return [taken.figure("cpu", name, "ms", limit)]


def kill(host: Host, runs: int) -> list[Figure]:
    """`disposeSession` in the middle of a turn, until no process of it is left."""
    taken = Taken()
    for _ in range(runs):
        taken.add("a bare interpreter's death", 1000 * raw.kill_s())
        uri, chat = host.session(host.client, max_latency_ms=0)
        host.client.start_turn(chat, host.turn_id(), "wait")
        host.client.until(b'"chat/delta"')
        began_s = time.perf_counter()
        host.client.request("disposeSession", channel=uri)
        host.until_gone()
        taken.add("kill to gone", 1000 * (time.perf_counter() - began_s))
    return [taken.figure("kill", "kill to gone", "ms", "a bare interpreter's death")]


def memory(host: Host, runs: int) -> list[Figure]:
    """What an idle session's processes hold, memory that is shared in parts."""
    taken = Taken()
    with _sessions(host, range(3)):
        for _ in range(runs):
            workers = host.workers()
            taken.add("PSS of an idle session", _mib(sum(map(kernel.pss_bytes, workers))) / 3)
            with raw.idle_interpreter() as pid:
                taken.add("PSS of a bare interpreter", _mib(kernel.pss_bytes(pid)))
    return [taken.figure("memory", "PSS of an idle session", "MiB", "PSS of a bare interpreter")]


def sessions_100(host: Host, runs: int) -> list[Figure]:
    """100 idle sessions: how fast they come, and what they hold."""
    taken = Taken()
    host.until_gone()
    before_bytes = kernel.pss_bytes(host.pid)
    client = host.connect("hundred")
    client.request("subscribe", channel="ahp-root://")
    uris = [f"ahp-session:/hundred-{number}" for number in range(SESSIONS)]
    began_s = time.perf_counter()
    for number, uri in enumerate(uris):
        if number >= AT_ONCE:
            client.until(b'"root/progress"')
        _create(client, uri, number)
    for _ in range(AT_ONCE):
        client.until(b'"root/progress"')
    taken.add("sessions created", SESSIONS / (time.perf_counter() - began_s))
    held_bytes = kernel.pss_bytes(host.pid) - before_bytes
    taken.add("supervisor's memory a session", _mib(held_bytes) / SESSIONS)
    workers_bytes = sum(map(kernel.pss_bytes, host.workers()))
    taken.add("PSS of each of 100 idle sessions", _mib(workers_bytes) / SESSIONS)
    with raw.idle_interpreter() as pid:
        taken.add("PSS of a bare interpreter", _mib(kernel.pss_bytes(pid)))
    started_s = raw.started_at_once_s(SESSIONS, AT_ONCE)
    taken.add("bare interpreters started", SESSIONS / started_s)
    for uri in uris:
        client.request("disposeSession", channel=uri)
    client.close()
    host.until_gone()
    bare = "PSS of a bare interpreter"
    return [
        taken.figure("sessions_100", "sessions created", "1/s", "bare interpreters started"),
        taken.figure("sessions_100", "PSS of each of 100 idle sessions", "MiB", bare),
        taken.figure("sessions_100", "supervisor's memory a session", "MiB", bare),
    ]


def reconnect(host: Host, runs: int) -> list[Figure]:
    """A client that missed 10,000 events, from its `reconnect` to all of them."""
    taken = Taken()
    name, limit = "reconnect, 10,000 events missed", "one raw send of the same bytes"
    with _sessions(host, [0.0]) as chats:
        client, chat = chats[0.0]
        for _ in range(runs):
            late = host.connect("late")
            late.request("subscribe", channel=chat)
            late.close()
            client.start_turn(chat, host.turn_id(), f"stream {STREAMED}")
            last = json.loads(client.until(_OVER)[-1])["params"]["serverSeq"]
            late = Client(host.url)
            began_s = time.perf_counter()
            late.send(_reconnect("late", last - STREAMED, [chat]))
            answer = late.receive()
            taken.add(name, 1000 * (time.perf_counter() - began_s))
            result = json.loads(answer)["result"]
            assert len(result["actions"]) == STREAMED, result["type"]
            late.close()
            with raw.sender([answer]) as sender:
                plain = Client(sender.url)
                raw.send_all_s([plain])
                taken.add(limit, 1000 * raw.send_all_s([plain]))
                plain.close()
    return [taken.figure("reconnect", name, "ms", limit)]


def _reconnect(client_id: str, seen: int, subscriptions: list[str]) -> dict[str, Any]:
    params = {"clientId": client_id, "lastSeenServerSeq": seen, "subscriptions": subscriptions}
    return {"jsonrpc": "2.0", "id": 1, "method": "reconnect", "params": params}


def _create(client: Client, uri: str, number: int) -> None:
    params = {"channel": uri, "provider": "bench", "progressToken": str(number)}
    message = {"jsonrpc": "2.0", "id": f"create-{number}", "method": "createSession"}
    client.send({**message, "params": params})


@contextmanager
def _sessions(host: Host, latencies_ms: Any) -> Iterator[dict[Any, tuple[Client, str]]]:
    """A session for each of these latencies, with a client of its own."""
    with ExitStack() as stack:
        made = {}
        for latency_ms in latencies_ms:
            client = host.connect(f"client-{latency_ms}")
            stack.callback(client.close)
            uri, chat = host.session(client, max_latency_ms=latency_ms)
            stack.callback(host.client.request, "disposeSession", channel=uri)
            made[latency_ms] = client, chat
        yield made
    host.until_gone()


def _mib(size_bytes: float) -> float:
    return size_bytes / 1024**2


PARTS: Mapping[str, Callable[[Host, int], list[Figure]]] = {
    "creation": creation,
    "first_delta": first_delta,
    "streaming": streaming,
    "streaming_20": streaming_20,
    "cpu": cpu,
    "kill": kill,
    "memory": memory,
    "sessions_100": sessions_100,
    "reconnect": reconnect,
}
