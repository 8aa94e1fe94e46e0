"""The fuzzing: four strands, each a strategy and what must hold of each of its examples.

    fuzzing.py [--seed N] [--minutes M] [--examples N] [STRAND]…

What must hold of all of them is in `fuzz_stage`. `test_fuzz.py` runs the same for a
few examples.
"""

import argparse
import itertools
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hypothesis
import trio
from attrs import frozen
from hypothesis import strategies as st
from trio_websocket import ConnectionClosed, open_websocket_url

import fuzz_inputs
from ahp_client import text_of
from ahpd.contracts.ahp.commands import DispatchAction
from ahpd.contracts.ahp.uris import parse_channel
from ahpd.contracts.json import JsonError, decode_json
from ahpd.contracts.shapes import ShapeError, structure
from fuzz_inputs import FUZZED, FUZZED_CHAT
from fuzz_stage import (
    PATIENCE_S,
    TRACE,
    Check,
    FuzzedHost,
    fuzzed_host,
)
from ws_raw import Closed, RawClient

Json = dict[str, Any]

#: With what the host may close a connection (RFC 6455, 7.4.1, and 4001: replaced).
CLOSE_CODES = {1000, 1001, 1002, 1003, 1005, 1007, 1009, 1013, 4001}

#: What a connection whose messages are fuzzed speaks; None: it was not let in.
VERSIONS = ["1.0.0", "1.0.0", "1.0.0", "0.10.0", "0.9.0", "0.8.0", "0.7.0", "0.6.0", None]

_NUMBERED = re.compile(r'"([tcr])([1-9])"')
_FOLDER = re.compile(r"file:///([abc])")

#: Folders that are there, for the names in the strategies.
_FOLDERS = {"a": "file:///tmp", "b": "file:///usr", "c": "file:///etc"}

#: What a worker says that cannot enter the folder which somebody moved its session to.
_NO_FOLDER = "the working folder"


# -- strand: handshakes and frames --------------------------------------------------------


async def any_bytes(host: FuzzedHost, pieces: list[bytes]) -> None:
    """Bytes on a fresh connection: it is answered, refused or closed, in bounded time."""
    async with await RawClient.connect(_port(host)) as client:
        await _send_all(client, pieces)
        await client.stream.send_eof()
        said = await client.rest()
    assert TRACE.search(said.decode("latin-1")) is None, said


async def any_frames(host: FuzzedHost, pieces: list[bytes]) -> None:
    """Frames after a good handshake: whatever ends it is told by a documented code, or a reset."""
    target = "/?" + urlsplit(host.url).query
    async with await RawClient.open(_port(host), target) as client:
        await _send_all(client, pieces)
        try:
            await client.stream.send_eof()
            while True:
                text = await client.receive_text()
                assert TRACE.search(text) is None, text
        except trio.BrokenResourceError:
            pass
        except Closed as closed:
            assert closed.code is None or closed.code in CLOSE_CODES, closed


async def _send_all(client: RawClient, pieces: list[bytes]) -> None:
    with trio.move_on_after(PATIENCE_S):
        try:
            for piece in pieces:
                await client.send(piece)
        except trio.BrokenResourceError:
            pass


def _port(host: FuzzedHost) -> int:
    port = urlsplit(host.url).port
    assert port is not None
    return port


# -- strand: messages ---------------------------------------------------------------------


class Answers:
    """What was asked on one connection, and what came back."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.owed: Counter[str] = Counter()
        self.owed_envelopes: Counter[int] = Counter()
        self.allowed_envelopes: Counter[int] = Counter()
        self.allowed: Counter[str] = Counter()
        self.got: Counter[str] = Counter()
        self.got_envelopes: Counter[int] = Counter()
        self.initialized = False
        self.disposes = False

    def asked(self, text: str) -> None:
        """Counts what this message is to be answered by."""
        self.disposes = self.disposes or "dispose" in text
        try:
            value = decode_json(text)
        except JsonError:
            self.allowed["null"] += 1
            return
        ident = value.get("id") if isinstance(value, dict) else None
        usable = isinstance(ident, (int, float, str)) and not isinstance(ident, bool)
        name = json.dumps(ident) if usable else "null"
        self.allowed[name] += 1
        if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
            return
        method = value.get("method")
        if usable and isinstance(method, str) and method:
            self.owed[name] += 1
        if "id" not in value and method == "dispatchAction" and self.initialized:
            # One on a channel that may be there is allowed an envelope, one that is there gets it.
            try:
                dispatch = structure(value.get("params") or {}, DispatchAction)
            except ShapeError:
                return
            channel = parse_channel(dispatch.channel)
            if channel is None:
                return
            self.allowed_envelopes[dispatch.client_seq] += 1
            # After somebody disposed of it there is silence.
            if channel.id in ("fuzzed", "") and not self.disposes:
                self.owed_envelopes[dispatch.client_seq] += 1

    def heard(self, text: str) -> None:
        """Counts what this message answers."""
        assert TRACE.search(text) is None, text
        message = json.loads(text)
        if "method" not in message:
            self.got[json.dumps(message["id"])] += 1
            code = message.get("error", {}).get("code")
            assert code != -32603, message
        elif message["method"] == "action":
            origin = message["params"].get("origin") or {}
            if origin.get("clientId") == self.client_id:
                self.got_envelopes[origin["clientSeq"]] += 1

    @property
    def complete(self) -> bool:
        """Whether everything that is owed has come."""
        return not self.missing

    @property
    def missing(self) -> list[Any]:
        """The ids of requests and the numbers of actions that are not answered."""
        return [*(self.owed - self.got), *(self.owed_envelopes - self.got_envelopes)]

    def right(self) -> None:
        """Nothing was answered twice, and nothing that was not asked."""
        more = [*(self.got - self.allowed), *(self.got_envelopes - self.allowed_envelopes)]
        assert not more, f"answered and not asked: {more}"


async def any_messages(host: FuzzedHost, given: tuple[str | None, list[str]]) -> None:
    """Messages, most of them nearly right: each request is answered once, or the line is closed.

    They come after `initialize` with some version, or before any, and find a chat with a
    running turn in which two approvals and a question wait.
    """
    version, messages = given
    await host.session()
    number = host.examples
    turn_id = f"t1-{number}"
    observer = host.observer
    await observer.start_turn(FUZZED_CHAT, turn_id, "park")
    await observer.until(
        lambda: (
            len(observer.states[FUZZED].get("inputNeeded", ())) == 3
            or "activeTurn" not in observer.states[FUZZED_CHAT]
        ),
        what="what is parked",
        within_s=PATIENCE_S,
    )
    if "activeTurn" not in observer.states[FUZZED_CHAT]:
        # A client moved the session to a folder that is not there.
        assert _NO_FOLDER in str(observer.states[FUZZED_CHAT]["turns"][-1])
        await observer.request("disposeSession", channel=FUZZED)
        return
    messages = [_named(message, number) for message in messages]
    answers = Answers(f"fuzz-{number}")
    async with open_websocket_url(host.url) as socket, trio.open_nursery() as nursery:
        if version is not None:
            first = {"protocolVersions": [version], "clientId": answers.client_id}
            hello = {"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": first}
            messages.insert(0, json.dumps(hello))
        messages.append('{"jsonrpc":"2.0","id":"last","method":"ping"}')
        changed = trio.Event()
        closed = False

        async def read() -> None:
            nonlocal changed, closed
            try:
                while True:
                    answers.heard(await socket.get_message())
                    changed.set()
                    changed = trio.Event()
            except ConnectionClosed:
                assert socket.closed is not None
                assert int(socket.closed.code) in CLOSE_CODES, socket.closed
                closed = True
                changed.set()

        nursery.start_soon(read)
        for message in messages:
            answers.asked(message)
            answers.initialized = version is not None
            try:
                await socket.send_message(message)
            except ConnectionClosed:
                break
        with trio.move_on_after(PATIENCE_S):
            while not (answers.complete or closed):
                waiting = changed
                await waiting.wait()
        assert closed or answers.complete, f"not answered: {answers.missing}"
        nursery.cancel_scope.cancel()
    answers.right()
    await host.settled()


def _named(text: str, number: int) -> str:
    """Ids of an example's own in the place of the strategies', and folders that are there."""
    text = _NUMBERED.sub(rf'"\1\2-{number}"', text)
    return _FOLDER.sub(lambda found: _FOLDERS[found[1]], text)


# -- strand: a worker's words -------------------------------------------------------------


async def any_words(host: FuzzedHost, written: list[Json]) -> None:
    """What a worker writes: the chat ends in a state that reduces, and its next turn works."""
    await host.session()
    number = host.examples
    observer = host.observer
    said = _named(json.dumps(written), number)
    turn_id = f"t1-{number}"
    await observer.start_turn(FUZZED_CHAT, turn_id, f"write {said}")
    if written[-1]["then"] != "sleep":
        await observer.until(
            lambda: observer.states[FUZZED_CHAT].get("activeTurn", {}).get("id") != turn_id,
            what="the end of the turn",
        )
    else:
        await trio.sleep(random.random() / 50)
    await host.settled()
    for attempt in range(5):
        # What ends the turn, or the worker, may be among the first that it says: then the
        # rest comes into this turn.
        good = f"after-{number}-{attempt}"
        echo = await observer.start_turn(FUZZED_CHAT, good, "say well")
        if "rejectionReason" in echo:
            await host.settled()
            continue
        turn = await observer.ended(FUZZED_CHAT, good)
        if _NO_FOLDER in str(turn["responseParts"]):
            # Its agent moved the session to a folder that is not there: said, and its own affair.
            await observer.request("disposeSession", channel=FUZZED)
            return
        if turn["state"] == "complete":
            break
        assert "workerDied" in str(turn["responseParts"]), turn
    else:
        raise AssertionError("no turn after it works")
    assert text_of(turn) == "well", turn
    await host.settled()


# -- running ------------------------------------------------------------------------------


@frozen(kw_only=True)
class Strand:
    """A strategy, and what must hold of each of its examples."""

    given: Callable[[str, int, float], st.SearchStrategy[Any]]
    """Of the host's URL, a seed, and how much of the variety is wanted."""
    check: Check


STRANDS: Mapping[str, Strand] = {
    "bytes": Strand(
        given=lambda url, seed, share: st.one_of(
            st.lists(fuzz_inputs.BYTES, max_size=4),
            fuzz_inputs.handshakes(urlsplit(url).query.partition("=")[2]),
        ),
        check=any_bytes,
    ),
    "frames": Strand(given=lambda url, seed, share: fuzz_inputs.FRAMES, check=any_frames),
    "messages": Strand(
        given=lambda url, seed, share: st.tuples(
            st.sampled_from(VERSIONS), fuzz_inputs.messages(seed, share)
        ),
        check=any_messages,
    ),
    "worker": Strand(
        given=lambda url, seed, share: fuzz_inputs.written(seed, share), check=any_words
    ),
}


def fuzz(
    host: FuzzedHost, name: str, *, examples: int, seed: int, within_s: float = float("inf")
) -> None:
    """Runs so many examples of a strand, fewer when the time is over before.

    Raises what hypothesis made of the first that failed.
    """
    strand = STRANDS[name]
    examples_of = strand.given(host.url, seed, min(1.0, examples / 100))
    until_s = time.monotonic() + within_s
    failed = False

    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        print_blob=False,
    )
    @hypothesis.seed(seed)
    @hypothesis.given(examples_of)
    def holds(given: Any) -> None:
        nonlocal failed
        if failed or time.monotonic() < until_s:
            try:
                host.run(strand.check, given)
            except BaseException:
                failed = True
                raise

    holds()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Fuzzes a real host.")
    parser.add_argument("--seed", type=int, help="of the examples; printed in any case")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default 5)")
    parser.add_argument("--examples", type=int, default=100, help="of a strand in a round")
    parser.add_argument("strand", nargs="*", metavar="STRAND", help=f"of {', '.join(STRANDS)}")
    options = parser.parse_args()
    unknown = [name for name in options.strand if name not in STRANDS]
    if unknown:
        parser.error(f"there is no strand {unknown[0]}; there are {', '.join(STRANDS)}")
    seed = options.seed if options.seed is not None else random.randrange(2**32)
    print(f"seed {seed}", flush=True)
    until_s = time.monotonic() + options.minutes * 60
    with tempfile.TemporaryDirectory(prefix="ahpd-", dir="/tmp") as folder:
        try:
            with fuzzed_host(Path(folder)) as host:
                for number in itertools.count():
                    for name in options.strand or STRANDS:
                        if time.monotonic() > until_s:
                            return _report(host)
                        fuzz(host, name, examples=options.examples, seed=seed + number)
                        print(f"round {number}, {name}: {_figures(host)}", flush=True)
        except BaseException as failure:
            if isinstance(failure, KeyboardInterrupt):
                return 130
            print(f"scripts/fuzz: failed with --seed {seed}", file=sys.stderr)
            raise
    raise AssertionError


def _figures(host: FuzzedHost) -> str:
    memory = {name: size // 1024**2 for name, size in host.memory().items()}
    return (
        f"{host.examples} examples, {memory['VmRSS']} MiB (at most {memory['VmHWM']}), "
        f"the neighbour had {host.neighbour.turns} turns and "
        f"waited {host.neighbour.longest_gap_s * 1000:.0f} ms at most"
    )


def _report(host: FuzzedHost) -> int:
    print(f"the host lived: {_figures(host)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
