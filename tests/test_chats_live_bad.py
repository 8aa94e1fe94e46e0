"""Whatever a client sends to `/chats`: each request is answered once, and the connection stays."""

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import trio
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from agent_contracts import instances, mutated, needs_schema, schema
from ahpd.contracts.chats import CHAT_ERROR_CODES
from ahpd.contracts.frames import Request, parse_request
from live_host import LiveHost, live_host

pytestmark = needs_schema

SHOWN = {"shown": "fixture_chats:shown"}

#: Chats that are there, and names of what is not.
CHATS = st.sampled_from(["c", "c", "c", "d", "nobody", "a/../b", "\0", "\u202e", "x" * 10_001])
#: What hangs a client up for longer than a test lasts, or ends the chat that the rest is about.
UNASKED = frozenset({"chat.kill"})


def _named(payload: Any, chat_id: str) -> Any:
    if isinstance(payload, dict) and "chatId" in payload:
        return {**payload, "chatId": chat_id}
    return payload


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, Any]:
    """A request of the table with a payload that fits, or nearly does."""
    name = draw(st.sampled_from(sorted(schema()["x-requests"].keys() - UNASKED)))
    fitting = instances(schema()["x-requests"][name]["payload"].rpartition("/")[2])
    payload = draw(st.one_of(fitting, fitting, mutated(fitting)))
    payload = _named(payload, draw(CHATS)) if draw(st.integers(0, 4)) else payload
    # What is no JSON at all has no id to be answered by: it is tested elsewhere.
    assume(isinstance(parse_request(_text("a", name, payload)), Request))
    return name, payload


def _text(ident: str, name: str, payload: Any) -> str:
    return json.dumps({"id": ident, "type": name, "payload": payload})


@needs_schema
@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(st.lists(requests(), min_size=150, max_size=200))
def test_each_request_is_answered_and_none_fails_inside(asked: list[tuple[str, Any]]) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory(prefix="ahpd-", dir="/tmp") as folder:
            with trio.fail_after(120):
                async with live_host(Path(folder), SHOWN, sessions_per_minute=5) as live:
                    await _send_all(live, asked)

    trio.run(main)


async def _send_all(live: LiveHost, asked: list[tuple[str, Any]]) -> None:
    client, fresh = await live.chats(), await live.chats()
    await client.create("c")
    await client.say("c", "park; delegate; wait")
    # It detaches and attaches in what follows, so it does not reduce.
    client.threads.clear()
    idents = []
    for name, payload in asked:
        idents.append((await _sent(client, name, payload), name, payload))
    for ident, name, payload in idents:
        await client.until(partial(client._answers.get, ident), what=f"{name} {payload}"[:300])
        frame = client._answers[ident]
        if not frame["ok"]:
            assert frame["error"]["code"] in CHAT_ERROR_CODES, frame
            assert frame["error"]["code"] != "internal", frame
    await client.attach("c")
    await client.is_like_a_fresh_attach_of(fresh, "c")


async def _sent(client: Any, name: str, payload: Any) -> str:
    ident = f"r{len(client._asked)}"
    client._asked[ident] = "" if name == "chat.attach" else name
    # Attaching with any `since` is held apart: this client is not the one that goes on from it.
    await client.socket.send_message(_text(ident, name, payload))
    return ident
