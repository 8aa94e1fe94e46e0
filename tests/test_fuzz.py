"""The fuzzing in short: a few examples of each strand against one host (`scripts/fuzz` runs many).

What the fuzzing found, each in its smallest form, stands below as a test of its own.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from ahp_client import AhpClient, text_of
from ahpd.supervisor.sessions import chat_actions, emissions
from fuzz_stage import FuzzedHost, fuzzed_host
from fuzzing import STRANDS, fuzz
from live_host import live_host

Json = dict[str, Any]

FUZZED = {"fuzzed": "fixture_fuzzed:create"}

#: Examples of each strand, and how long they may take on a machine that is busy: a worker
#: dies in most of its own, so that they are dear.
EXAMPLES = {"bytes": 60, "frames": 60, "messages": 40, "worker": 20}
WITHIN_S = 6.0

SEED = 20261001


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzedHost]:
    with fuzzed_host(tmp_path_factory.mktemp("fuzz")) as host:
        yield host


@pytest.mark.parametrize("strand", STRANDS)
def test_whatever_comes_the_host_lives_and_its_neighbour_works_on(
    host: FuzzedHost, strand: str
) -> None:
    turns = host.neighbour.turns
    fuzz(host, strand, examples=EXAMPLES[strand], seed=SEED, within_s=WITHIN_S)
    host.neighbour_works_on(turns)


# -- what it found ------------------------------------------------------------------------


async def written(client: AhpClient, chat: str, turn_id: str, *frames: Json) -> Json:
    """A turn in which the worker writes these frames; the ended turn."""
    steps = [*({"frame": frame} for frame in frames), {"then": "sleep"}]
    return await client.say(chat, turn_id, f"write {json.dumps(steps)}")


def emitted(action: Json) -> Json:
    payload = {"channel": "chat", "action": action}
    return {"type": "event", "event": "agent.emit", "payload": payload}


async def test_a_number_that_no_double_reaches_ends_its_worker_and_not_the_host(
    state_dir: Path,
) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, FUZZED) as live:
            client = await live.client()
            _, chat = await live.session(client, "fuzzed")
            ending = {"type": "chat/turnComplete", "turnId": "t1", "duration": 10**400}
            turn = await written(client, chat, "t1", emitted(ending))
            assert "not JSON: a number is out of range" in str(turn["responseParts"])
            assert text_of(await client.say(chat, "t2", "say well")) == "well"


async def test_a_fault_of_ours_in_taking_a_workers_words_ends_that_worker_and_not_the_host(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trio.fail_after(60):
        async with live_host(state_dir, FUZZED) as live:
            client = await live.client()
            _, chat = await live.session(client, "fuzzed")
            with monkeypatch.context() as broken:
                broken.setattr(emissions, "judge_chat_action", lambda *given: 1 / 0)
                turn = await client.say(chat, "t1", "say well")
            assert turn["state"] == "error"
            assert "the host failed on its words" in str(turn["responseParts"])
            assert "ZeroDivisionError" not in str(client.envelopes)
            assert text_of(await client.say(chat, "t2", "say well")) == "well"


async def test_a_fault_of_ours_in_taking_an_action_refuses_it_and_nothing_else(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = {"type": "chat/draftChanged", "draft": {"text": "d", "origin": {"kind": "user"}}}
    folder = {"type": "chat/workingDirectorySet", "directory": "file:///tmp"}
    with trio.fail_after(60):
        async with live_host(state_dir, FUZZED) as live:
            client = await live.client()
            _, chat = await live.session(client, "fuzzed")
            with monkeypatch.context() as broken:
                broken.setattr(chat_actions, "refusal", lambda *given: 1 / 0)
                broken.setattr(chat_actions, "SetWorkingDirectories", lambda **given: 1 / 0)
                echo = await client.act(chat, draft)
                assert echo["rejectionReason"] == "the host failed; see its log"
                broken.setattr(chat_actions, "refusal", lambda *given: None)
                echo = await client.act(chat, folder)
                assert echo["rejectionReason"] == "the host failed; see its log"
            assert "rejectionReason" not in await client.act(chat, draft)
            assert "rejectionReason" not in await client.act(chat, folder)
