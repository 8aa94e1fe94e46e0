"""Gathering: consecutive deltas of one part become one action, and nothing is seen out of order."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ahp_client import AhpClient
from ahpd.supervisor.sessions.gathering import MAX_GATHERED_CHARS, Gathering
from live_host import live_host

Json = dict[str, Any]


def delta(content: str, part: str = "p", kind: str = "delta", turn: str = "t") -> Json:
    return {"type": f"chat/{kind}", "turnId": turn, "partId": part, "content": content}


class Gathered:
    """A gathering, and what it published with the time of each."""

    def __init__(self, nursery: trio.Nursery, window_s: Callable[[], float]) -> None:
        self.published: list[tuple[float, Json]] = []
        self.gathering = Gathering(nursery, self._publish, window_s)
        self._began = trio.current_time()

    def _publish(self, action: Json) -> None:
        self.published.append((round(trio.current_time() - self._began, 3), action))

    def add(self, *actions: Json) -> list[bool]:
        return [self.gathering.add(action) for action in actions]

    @property
    def texts(self) -> list[str]:
        return [action["content"] for _, action in self.published]


async def test_deltas_of_one_part_become_one_within_the_window(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        held = Gathered(nursery, lambda: 0.05)
        held.add(delta("a"), delta("b"))
        await trio.sleep(0.03)
        held.add(delta("c"))
        assert held.published == [], "the window has not passed"
        await trio.sleep(0.03)
        assert held.published == [(0.05, delta("abc"))]
        await trio.sleep(1)
        assert len(held.published) == 1
        held.add(delta("d"))
        await trio.sleep(0.06)
        assert held.published[-1] == (1.11, delta("d")), "a window of its own"


async def test_another_part_kind_or_turn_flushes_what_was_before(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        held = Gathered(nursery, lambda: 0.05)
        others = [delta("2", part="q"), delta("3", part="q", kind="reasoning")]
        held.add(delta("1"), *others, delta("4", part="q", kind="reasoning", turn="u"))
        assert held.texts == ["1", "2", "3"]
        await trio.sleep(0.06)
        assert held.texts == ["1", "2", "3", "4"]


async def test_what_is_no_plain_delta_is_not_taken(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        held = Gathered(nursery, lambda: 0.05)
        marked = {**delta("a"), "_meta": {"a": 1}}
        part = {"type": "chat/responsePart", "turnId": "t", "part": {}}
        call = {"type": "chat/toolCallDelta", "turnId": "t", "toolCallId": "c", "content": "x"}
        assert held.add(marked, part, call) == [False, False, False]
        assert held.published == []


async def test_a_window_of_nothing_is_off(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        window = [0.05]
        held = Gathered(nursery, lambda: window[0])
        held.add(delta("a"))
        window[0] = 0
        assert held.add(delta("b")) == [True], "what began to be gathered goes on"
        held.gathering.flush()
        assert held.add(delta("c")) == [False]
        assert held.texts == ["ab"]


async def test_flushing_publishes_at_once_and_once(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        held = Gathered(nursery, lambda: 0.05)
        held.gathering.flush()
        held.add(delta("a"))
        held.gathering.flush()
        held.gathering.flush()
        assert held.published == [(0, delta("a"))]
        await trio.sleep(1)
        assert len(held.published) == 1


async def test_much_text_does_not_wait_for_its_window(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        held = Gathered(nursery, lambda: 60)
        half = "y" * (MAX_GATHERED_CHARS // 2 + 1)
        held.add(delta(half))
        assert held.published == []
        held.add(delta(half))
        assert held.published == [(0, delta(half * 2))]
        nursery.cancel_scope.cancel()


PIECES = st.lists(
    st.tuples(
        st.sampled_from(["p", "q"]),
        st.sampled_from(["delta", "reasoning"]),
        st.text("abc", max_size=3),
        st.sampled_from([0.0, 0.01, 0.05]),
    ),
    max_size=30,
)


@given(pieces=PIECES)
def test_law_all_text_arrives_in_order_and_none_waits_longer_than_the_window(
    pieces: list[tuple[str, str, str, float]],
) -> None:
    async def run() -> None:
        async with trio.open_nursery() as nursery:
            held = Gathered(nursery, lambda: 0.05)
            said: dict[tuple[str, str], str] = {}
            order = []
            for part, kind, text, rest_s in pieces:
                held.add(delta(text, part, kind))
                said[part, kind] = said.get((part, kind), "") + text
                order.append((part, kind))
                await trio.sleep(rest_s)
            await trio.sleep(0.06)
            got: dict[tuple[str, str], str] = {}
            arrived = []
            for _, action in held.published:
                key = (action["partId"], action["type"].removeprefix("chat/"))
                got[key] = got.get(key, "") + action["content"]
                arrived.append(key)
            assert got == said
            assert without_repeats(arrived) == without_repeats(order)
            assert len(held.published) <= len(pieces)

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


def without_repeats(items: list[Any]) -> list[Any]:
    return [item for index, item in enumerate(items) if index == 0 or items[index - 1] != item]


async def test_in_a_host_gathered_text_comes_before_whatever_is_said_after_it(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(
            state_dir, {"scripted": "fixture_scripted:scripted"}, gather_window_ms=60_000
        ) as live:
            client = await live.client()
            _, chat = await live.session(client, "scripted")
            await client.start_turn(chat, "t1", "stream 9; activity reading; stream 5; wait")
            await client.until(
                lambda: client.states[chat].get("activity"), what="what comes after the text"
            )
            parts = client.states[chat]["activeTurn"]["responseParts"]
            assert parts[0]["content"] == "".join(f"w{number} " for number in range(9))
            # The window is a minute long, and whoever looks sees all of the second text.
            while len(second := await looked(client, chat)) < len("w0 w1 w2 w3 w4 "):
                assert "w0 w1 w2 w3 w4 ".startswith(second)
            cancel = {"type": "chat/turnCancelled", "turnId": "t1", "duration": 1}
            await client.act(chat, cancel)
            turn = client.states[chat]["turns"][0]
            assert turn["responseParts"][1]["content"] == "w0 w1 w2 w3 w4 "
            assert (await client.snapshot(chat))["turns"] == client.states[chat]["turns"]


async def looked(client: AhpClient, chat: str) -> str:
    """The second part's text in a fresh snapshot."""
    parts = (await client.snapshot(chat))["activeTurn"]["responseParts"]
    return str(parts[1]["content"]) if len(parts) > 1 else ""
