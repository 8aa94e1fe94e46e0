"""Dispatching over AHP: each action has one answer, and each refusal is its sender's alone."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from ahp_client import AhpClient, text_of, turn_started
from live_host import LiveHost, live_host

Json = dict[str, Any]

AGENTS = {"play": "fixture_ahp:play", "bare": "fixture_ahp:bare"}
USER = {"kind": "user"}
SECOND = "ahp-chat:/second"


def script(*steps: Any) -> str:
    return json.dumps(steps)


def message(text: str, kind: str = "user") -> Json:
    return {"text": text, "origin": {"kind": kind}}


def queued(ident: str, text: str = "queued", kind: str = "queued") -> Json:
    return {
        "type": "chat/pendingMessageSet",
        "kind": kind,
        "id": ident,
        "message": message(text),
    }


def cancelled(turn_id: str) -> Json:
    return {"type": "chat/turnCancelled", "turnId": turn_id, "duration": 1}


def confirmed(call: str, turn_id: str = "t1", **more: Any) -> Json:
    base = {"type": "chat/toolCallConfirmed", "turnId": turn_id, "toolCallId": call}
    return {**base, "approved": True, "confirmed": "user-action", **more}


def completed(call: str, turn_id: str = "t1", **more: Any) -> Json:
    result = {"success": True, "pastTenseMessage": "Done", **more}
    base = {"type": "chat/toolCallComplete", "turnId": turn_id, "toolCallId": call}
    return {**base, "result": result}


def answered(request: str, response: str = "accept", **more: Any) -> Json:
    return {"type": "chat/inputCompleted", "requestId": request, "response": response, **more}


def config(**values: Any) -> Json:
    return {"type": "session/configChanged", "config": values}


def tools(client: str, *names: str) -> Json:
    offered = [{"name": name} for name in names]
    active = {"clientId": client, "tools": offered}
    return {"type": "session/activeClientSet", "activeClient": active}


class Stage:
    """A session with a client that acts and one that only watches."""

    def __init__(
        self, live: LiveHost, client: AhpClient, watcher: AhpClient, session: str, chat: str
    ) -> None:
        self.live = live
        self.client = client
        self.watcher = watcher
        self.session = session
        self.chat = chat

    async def seen(self) -> list[Json]:
        """Everything that the watcher has been sent so far."""
        await self.watcher.request("ping")
        return list(self.watcher.envelopes)

    async def refused(self, action: Json, channel: str | None = None) -> str:
        """Says an action that is refused, to its sender alone and without a number; the reason."""
        before, seq = await self.seen(), self.live.host.stream.seq
        echo = await self.client.act(channel or self.chat, action)
        assert "rejectionReason" in echo, (action, echo)
        assert echo["action"] == action
        assert echo["channel"] == (channel or self.chat)
        assert echo["serverSeq"] == seq == self.live.host.stream.seq
        assert await self.seen() == before
        return str(echo["rejectionReason"])

    async def refused_by_agent(self, action: Json, channel: str | None = None) -> str:
        """Says an action that the agent is asked of and refuses, saying things meanwhile."""
        echo = await self.client.act(channel or self.chat, action)
        assert "rejectionReason" in echo, (action, echo)
        assert echo["serverSeq"] <= self.live.host.stream.seq
        assert all(e.get("origin") != echo["origin"] for e in await self.seen())
        return str(echo["rejectionReason"])

    async def unchanged(self, action: Json, channel: str | None = None) -> None:
        """Says an action that is accepted and changes nothing: its sender alone hears of it."""
        before, seq = await self.seen(), self.live.host.stream.seq
        echo = await self.client.act(channel or self.chat, action)
        assert "rejectionReason" not in echo, echo
        assert echo["serverSeq"] == seq == self.live.host.stream.seq
        assert await self.seen() == before

    async def accepted(self, action: Json, channel: str | None = None) -> Json:
        """Says an action that everybody sees."""
        where = channel or self.chat
        echo = await self.client.act(where, action)
        assert "rejectionReason" not in echo, echo
        await self.watcher.until(
            lambda: echo in self.watcher.envelopes, what="the same envelope for the watcher"
        )
        return echo

    async def until_needed(self, count: int = 1) -> list[Json]:
        """Waits until so many requests wait on a person."""
        state = self.client.states
        await self.client.until(
            lambda: len(state[self.session].get("inputNeeded", [])) == count,
            what=f"{count} requests",
        )
        return list(state[self.session].get("inputNeeded", []))

    def calls(self, chat: str | None = None) -> list[Any]:
        """How the agent of a chat was called so far."""
        told = [
            a["_meta"]["calls"]
            for a in self.client.actions(self.session)
            if a["type"] == "session/metaChanged" and a["_meta"]["chat"] == (chat or self.chat)
        ]
        return list(told[-1]) if told else []

    async def called(self, *call: Any, chat: str | None = None) -> None:
        await self.client.until(
            lambda: list(call) in self.calls(chat), what=f"the call {call} in {self.calls(chat)}"
        )


@asynccontextmanager
async def stage(state_dir: Path, agent: str = "play", **bounds: Any) -> AsyncIterator[Stage]:
    async with live_host(state_dir, AGENTS, **bounds) as live:
        client, watcher = await live.client("actor"), await live.client("watcher")
        session, chat = await live.session(client, agent)
        await watcher.subscribe(session)
        await watcher.subscribe(chat)
        yield Stage(live, client, watcher, session, chat)


# -- refusals --------------------------------------------------------------------------


async def test_what_an_idle_chat_cannot_take_is_refused(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            await at.client.say(at.chat, "t0", "hello")
            start = turn_started("t1", "x")
            for action, words in (
                (cancelled("t0"), "no turn is running"),
                (confirmed("c1"), "not"),
                ({**confirmed("c1"), "type": "chat/toolCallResultConfirmed"}, "not"),
                (completed("c1"), "not"),
                (answered("r1"), "not open"),
                (
                    {"type": "chat/inputAnswerChanged", "requestId": "r1", "questionId": "q"},
                    "not open",
                ),
                ({"type": "chat/pendingMessageRemoved", "kind": "queued", "id": "q1"}, "q1"),
                ({"type": "chat/pendingMessageRemoved", "kind": "steering", "id": "q1"}, "q1"),
                (queued("s1", kind="steering"), "no turn"),
                (turn_started("t0", "once more"), "t0"),
                ({**start, "message": message("x", "agent")}, "`user`"),
                ({**start, "message": message("x", "systemNotification")}, "`user`"),
                ({**start, "queuedMessageId": "q1"}, "q1"),
                ({**start, "startedAt": "yesterday"}, "yesterday"),
                ({"type": "chat/truncated", "turnId": "none"}, "none"),
                ({"type": "chat/turnResume", "turnId": "t0"}, "resumed"),
                ({"type": "chat/turnResume", "turnId": "none"}, "last turn"),
                ({**queued("q1"), "message": message("x", "tool")}, "`user`"),
                ({"type": "chat/draftChanged", "draft": message("x", "agent")}, "`user`"),
            ):
                assert words in await at.refused(action), action
            assert held(at) == ["t0"]


def held(at: Stage) -> list[str]:
    return [turn["id"] for turn in at.client.states[at.chat]["turns"]]


async def test_what_a_running_chat_cannot_take_is_refused(state_dir: Path) -> None:
    said = script(
        ["say", "p", "x"],
        ["tool", "c1", {}, {"options": [{"id": "o1", "label": "Yes", "kind": "approve"}]}],
        ["tool", "c2", {}, {"confirmed": "not-needed"}],
        ["ask", QUESTIONS],
        ["hang"],
    )
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            await at.client.start_turn(at.chat, "t1", said)
            await at.until_needed(2)
            for action, words in (
                (turn_started("t2", "and I"), "running"),
                (turn_started("t1", "and I"), "t1"),
                (cancelled("t2"), "t2"),
                ({**cancelled("t1"), "duration": -1}, "negative"),
                (confirmed("c3"), "c3"),
                (confirmed("c2"), "c2"),
                (confirmed("c1", "t0"), "t0"),
                (confirmed("c1", selectedOptionId="o2"), "o2"),
                (confirmed("c1", editedToolInput="rm"), "edited"),
                ({**confirmed("c1"), "type": "chat/toolCallResultConfirmed"}, "c1"),
                (completed("c2"), "the agent's"),
                (completed("c9"), "c9"),
                (
                    {
                        "type": "chat/toolCallContentChanged",
                        "turnId": "t1",
                        "toolCallId": "c2",
                        "content": [],
                    },
                    "the agent's",
                ),
                (answered("r1"), "needs an answer"),
                (answered("r1", answers={"must": {"state": "skipped"}}), "needs an answer"),
                (answered("r2", "decline"), "r2"),
                (
                    {"type": "chat/inputAnswerChanged", "requestId": "r1", "questionId": "none"},
                    "none",
                ),
                ({"type": "chat/truncated"}, "running"),
                ({"type": "chat/turnResume", "turnId": "t1"}, "running"),
            ):
                assert words in await at.refused(action), action
            # None of them touched what waits.
            assert len(at.client.states[at.session]["inputNeeded"]) == 2
            await at.accepted(confirmed("c1", selectedOptionId="o1"))
            await at.called("confirm", "c1", True, "o1", None)
            assert "c1" in await at.refused(confirmed("c1"))


QUESTIONS: Json = {
    "id": "r1",
    "message": "Which?",
    "questions": [
        {"id": "must", "kind": "text", "message": "This one", "required": True},
        {"id": "may", "kind": "text", "message": "Or not"},
    ],
}
GIVEN = {"state": "submitted", "value": {"kind": "text", "value": "this"}}


async def test_an_action_that_lacks_what_it_needs_is_refused_whole(state_dir: Path) -> None:
    start = turn_started("t9", "x")
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            await at.client.start_turn(at.chat, "t1", script(["tool", "c1", {}, {}], ["hang"]))
            await at.until_needed()
            for whole, required in (
                (start, ("turnId", "startedAt", "message")),
                (cancelled("t1"), ("turnId", "duration")),
                (confirmed("c1"), ("turnId", "toolCallId", "approved", "confirmed")),
                (confirmed("c1", approved=False), ("reason",)),
                (completed("c1"), ("turnId", "toolCallId", "result")),
                (answered("r1"), ("requestId", "response")),
                (queued("q1"), ("kind", "id", "message")),
                (
                    {"type": "chat/pendingMessageRemoved", "kind": "queued", "id": "q1"},
                    ("kind", "id"),
                ),
                ({"type": "chat/queuedMessagesReordered", "order": []}, ("order",)),
                ({"type": "chat/isReadChanged", "isRead": True}, ("isRead",)),
            ):
                for member in required:
                    assert member in await at.refused(without(whole, member))
            for member, value in (
                ("turnId", 1),
                ("duration", "1"),
                ("duration", True),
                ("duration", None),
            ):
                assert member in await at.refused({**cancelled("t1"), member: value})
            for action in (
                confirmed("c1", approved="yes"),
                confirmed("c1", approved=1),
                answered("r1", "maybe"),
                queued("q1", kind="urgent"),
                {**start, "message": {"text": "x"}},
                {**start, "message": {"text": 5, "origin": USER}},
            ):
                await at.refused(action)
            assert at.client.states[at.chat]["activeTurn"]["id"] == "t1"


def without(action: Json, member: str) -> Json:
    return {key: value for key, value in action.items() if key != member}


async def test_what_is_not_a_clients_to_say_or_not_served_is_refused_by_name(
    state_dir: Path,
) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            ready: Json = {"type": "session/ready"}
            for channel, action in (
                (at.chat, {"type": "chat/turnComplete", "turnId": "t1", "duration": 1}),
                (at.chat, {"type": "chat/delta", "turnId": "t1", "partId": "p", "content": "x"}),
                (at.chat, {"type": "chat/turnsLoaded", "turns": []}),
                (at.chat, {"type": "chat/activityChanged", "activity": "x"}),
                (at.chat, {"type": "chat/no-such-action"}),
                (at.chat, {"type": "session/titleChanged", "title": "x"}),
                (at.chat, {"type": "session/no-such-action"}),
                (at.chat, {"type": "terminal/input", "data": "x"}),
                (at.chat, {"type": ""}),
                (at.session, ready),
                (at.session, {"type": "session/chatRemoved", "chat": at.chat}),
                (at.session, {"type": "session/inputNeededRemoved", "id": "x"}),
                (at.session, {"type": "session/defaultChatChanged", "defaultChat": "ahp-chat:/x"}),
                (at.session, {"type": "session/chatsReordered", "chats": [at.chat]}),
                (at.session, {"type": "session/mcpServerBackgroundRequested", "id": "x"}),
                (at.session, turn_started("t1", "x")),
                ("ahp-root://", {"type": "root/agentsChanged", "agents": []}),
            ):
                assert action["type"] in await at.refused(action, channel) or not action["type"]
            for action in ({}, {"type": None}, {"type": 5}, {"type": ["chat/delta"]}):
                await at.refused(action)


async def test_an_unknown_channel_is_answered_with_silence(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            before = len(at.client.envelopes)
            for channel in ("ahp-chat:/none", "ahp-session:/none", "ahp-terminal:/x", "", "?"):
                await at.client.dispatch(channel, turn_started("t1", "x"))
            await at.client.request("ping")
            assert len(at.client.envelopes) == before


async def test_root_configuration_is_refused_quietly_again_and_again(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            for number in range(10):
                action = {"type": "root/configChanged", "config": {"vscode.key": number}}
                await at.refused(action, "ahp-root://")
            await at.client.say(at.chat, "t1", "and on it goes")


async def test_what_changes_nothing_goes_back_to_its_sender_alone(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            named = {"type": "session/titleChanged", "title": "Same"}
            await at.accepted(named, at.session)
            await at.unchanged(named, at.session)
            read = {"type": "session/isReadChanged", "isRead": True}
            await at.accepted(read, at.session)
            await at.unchanged(read, at.session)
            draft = {"type": "chat/draftChanged", "draft": message("so far")}
            await at.accepted(draft)
            await at.unchanged(draft)
            await at.accepted({"type": "chat/draftChanged"})
            await at.unchanged({"type": "chat/draftChanged"})
            await at.unchanged({"type": "chat/queuedMessagesReordered", "order": ["none"]})
            await at.unchanged(config(mode="plain"), at.session)
            await at.accepted(tools("actor", "look"), at.session)
            await at.called("set_tools", [{"name": "look", "clientId": "actor"}])
            await at.unchanged(tools("actor", "look"), at.session)
            gone = {"type": "session/activeClientRemoved", "clientId": "actor"}
            await at.accepted(gone, at.session)
            await at.called("client_gone", "actor")
            await at.unchanged(gone, at.session)


async def test_who_is_not_subscribed_can_still_answer(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            outside = await at.live.client("outside")
            await at.client.start_turn(
                at.chat, "t1", script(["tool", "c1", {}, {}], ["wait", "c1"], ["result", "c1"])
            )
            await at.until_needed()
            echo = await outside.act(at.chat, confirmed("c1"))
            assert echo["origin"] == {"clientId": "outside", "clientSeq": 1}
            turn = await at.client.ended(at.chat, "t1")
            assert turn["responseParts"][0]["toolCall"]["status"] == "completed"
            late = await outside.act(at.chat, confirmed("c1"))
            assert "rejectionReason" in late
            assert [e for e in outside.envelopes if e["channel"] == at.chat] == [echo, late]


async def test_an_echo_carries_the_connections_client_whatever_the_action_claims(
    state_dir: Path,
) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            params = {
                "channel": at.chat,
                "clientSeq": 77,
                "origin": {"clientId": "watcher", "clientSeq": 1},
                "clientId": "watcher",
                "action": {**turn_started("t1", "x"), "origin": {"clientId": "watcher"}},
            }
            await at.client.send({"jsonrpc": "2.0", "method": "dispatchAction", "params": params})
            echo = await at.client.echo(77)
            assert echo["origin"] == {"clientId": "actor", "clientSeq": 77}


# -- the queue -------------------------------------------------------------------------


async def test_queued_messages_begin_one_after_another_and_can_be_changed_meanwhile(
    state_dir: Path,
) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            await at.client.start_turn(
                at.chat, "t1", script(["ask", {"id": "r1", "message": "?"}], ["wait", "r1"])
            )
            for ident in ("q1", "q2", "q3"):
                await at.accepted(queued(ident, f"from {ident}"))
            await at.accepted({"type": "chat/queuedMessagesReordered", "order": ["q3", "none"]})
            await at.accepted(queued("q1", "q1 anew"))
            await at.accepted({"type": "chat/pendingMessageRemoved", "kind": "queued", "id": "q2"})
            await at.until_needed()
            await at.accepted(answered("r1"))
            await at.client.until(lambda: len(at.client.states[at.chat]["turns"]) == 3)
            turns = at.client.states[at.chat]["turns"]
            assert [turn["message"]["text"] for turn in turns[1:]] == ["from q3", "q1 anew"]
            assert "queuedMessages" not in at.client.states[at.chat]
            moves = [
                (a["type"], a.get("id") or a.get("queuedMessageId"))
                for a in at.client.actions(at.chat)
                if a["type"] == "chat/pendingMessageRemoved" or "queuedMessageId" in a
            ]
            assert moves[1:] == [
                ("chat/pendingMessageRemoved", "q3"),
                ("chat/turnStarted", "q3"),
                ("chat/pendingMessageRemoved", "q1"),
                ("chat/turnStarted", "q1"),
            ]


async def test_a_message_queued_while_idle_begins_at_once(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            await at.accepted(queued("q1", "right away"))
            await at.client.until(lambda: at.client.states[at.chat]["turns"])
            assert text_of(at.client.states[at.chat]["turns"][0]) == "right away"


async def test_only_a_completed_turn_drains_the_queue_and_a_message_lifts_the_pause(
    state_dir: Path,
) -> None:
    with trio.fail_after(60):
        async with stage(state_dir) as at:

            async def texts(count: int) -> list[str]:
                await at.client.until(lambda: len(at.client.states[at.chat]["turns"]) == count)
                turns = at.client.states[at.chat]["turns"]
                return [turn["message"]["text"][:12] for turn in turns]

            def waiting() -> list[str]:
                return [m["id"] for m in at.client.states[at.chat].get("queuedMessages", [])]

            # A cancel pauses it; `turnStarted` begins that turn, and the queue drains after it.
            await at.client.start_turn(at.chat, "t1", script(["hang"]))
            await at.accepted(queued("q1", "first"))
            await at.accepted(cancelled("t1"))
            await at.seen()
            assert waiting() == ["q1"] and "activeTurn" not in at.client.states[at.chat]
            await at.client.start_turn(at.chat, "t2", "mine first")
            assert (await texts(3))[1:] == ["mine first", "first"]

            # An error pauses it; a queued message lifts the pause, and the oldest begins.
            await at.client.start_turn(
                at.chat,
                "t4",
                script(["ask", {"id": "r1", "message": "?"}], ["wait", "r1"], ["raise", "no"]),
            )
            await at.accepted(queued("q2", "second"))
            await at.until_needed()
            await at.accepted(answered("r1"))
            assert (await at.client.ended(at.chat, "t4"))["state"] == "error"
            await at.seen()
            assert waiting() == ["q2"] and "activeTurn" not in at.client.states[at.chat]
            await at.accepted(queued("q3", "third"))
            assert (await texts(6))[4:] == ["second", "third"]
            assert waiting() == []


async def test_a_dead_worker_keeps_the_queue_and_pauses_it(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            await at.client.start_turn(at.chat, "t1", script(["block", 60]))
            await at.accepted(queued("q1", "kept"))
            conversation = at.live.host.session_at(at.session).default_chat.conversation
            assert conversation is not None and conversation.process is not None
            conversation.process.end(0)
            turn = await at.client.ended(at.chat, "t1")
            assert turn["state"] == "error"
            assert turn["responseParts"][-1]["error"]["errorType"] == "workerDied"
            await at.seen()
            assert len(at.client.states[at.chat]["queuedMessages"]) == 1
            await at.client.start_turn(at.chat, "t2", "go on")
            await at.client.until(lambda: len(at.client.states[at.chat]["turns"]) == 3)
            assert text_of(at.client.states[at.chat]["turns"][2]) == "kept"


async def test_the_queue_has_a_bound(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir, max_queued_messages=2) as at:
            await at.client.start_turn(at.chat, "t1", script(["hang"]))
            await at.accepted(queued("q1"))
            await at.accepted(queued("q2"))
            assert "2" in await at.refused(queued("q3"))
            await at.accepted(queued("q2", "changed in its place"))


async def test_a_steering_message_is_taken_or_begins_the_next_turn(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            await at.client.start_turn(
                at.chat, "t1", script(["ask", {"id": "r1", "message": "?"}], ["wait", "r1"])
            )
            await at.accepted(queued("s1", "take", kind="steering"))
            await at.called("steer", "s1", "take")
            await at.client.until(lambda: "steeringMessage" not in at.client.states[at.chat])
            await at.accepted(queued("s2", "leave", kind="steering"))
            await at.called("steer", "s2", "leave")
            await at.accepted(queued("q1", "queued before"))
            assert at.client.states[at.chat]["steeringMessage"]["id"] == "s2"
            await at.until_needed()
            await at.accepted(answered("r1"))
            await at.client.until(lambda: len(at.client.states[at.chat]["turns"]) == 3)
            texts = [turn["message"]["text"] for turn in at.client.states[at.chat]["turns"][1:]]
            assert texts == ["leave", "queued before"]
            assert "steeringMessage" not in at.client.states[at.chat]


async def test_an_agent_without_steer_is_not_steered(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir, "bare") as at:
            await at.client.start_turn(at.chat, "t1", script(["hang"]))
            assert "steered" in await at.refused(queued("s1", kind="steering"))


# -- what the agent is asked first -----------------------------------------------------


async def test_a_setting_is_asked_of_the_agent_before_it_is_echoed(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir, setter_timeout_s=0.6) as at:
            await at.accepted(config(mode="taken", level=3), at.session)
            await at.called("set_config", "mode", "taken")
            await at.called("set_config", "level", 3)
            values = at.client.states[at.session]["config"]["values"]
            assert values == {"mode": "taken", "level": 3}
            before = len(at.calls())
            for value, words in (
                ("why", "not on a Monday"),
                ("no", "refused"),
                ("slow", "in time"),
            ):
                assert words in await at.refused_by_agent(config(mode=value), at.session)
            for change, words in (
                (config(level="high"), "level"),
                (config(level=True), "level"),
                (config(colour="green"), "red, blue"),
                (config(fixed="other"), "fixed"),
                (config(unknown=1), "unknown"),
                ({**config(mode="only"), "replace": True}, "level"),
            ):
                assert words in await at.refused(change, at.session), change
            assert at.client.states[at.session]["config"]["values"] == values
            # What does not fit the schema never reached the agent.
            assert [call[1:] for call in at.calls()[before:]] == [
                ["mode", "why"],
                ["mode", "no"],
                ["mode", "slow"],
            ]
            # All or nothing: what was taken before the refusal is set back.
            both = config(level=9, mode="why")
            assert "Monday" in await at.refused_by_agent(both, at.session)
            await at.client.until(lambda: at.calls()[-1] == ["set_config", "level", 3])
            await at.accepted({**config(mode="new", level=4), "replace": True}, at.session)


async def test_a_setting_that_one_chat_refuses_is_set_back_in_the_others(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            await at.client.request("createChat", channel=at.session, chat=SECOND)
            await at.accepted(config(mode="both"), at.session)
            await at.called("set_config", "mode", "both")
            await at.called("set_config", "mode", "both", chat=SECOND)
            # `once` is taken by the default chat alone.
            reason = await at.client.act(at.session, config(mode="once"))
            assert "not in this chat" in reason["rejectionReason"]
            assert at.client.states[at.session]["config"]["values"]["mode"] == "both"
            await at.client.until(lambda: at.calls()[-1] == ["set_config", "mode", "both"])


async def test_an_agent_without_the_member_refuses_and_says_so(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir, "bare") as at:
            folder = {"type": "session/workingDirectorySet", "directory": "file:///srv"}
            toggle = {"type": "session/customizationToggled", "id": "x", "enablement": []}
            start = {"type": "session/mcpServerStartRequested", "id": "x"}
            stop = {"type": "session/mcpServerStopRequested", "id": "x"}
            for action in (folder, toggle, start, stop):
                assert "agent" in await at.refused(action, at.session)
            there = {"type": "chat/workingDirectorySet", "directory": "file:///srv"}
            assert "agent" in await at.refused(there)


async def test_folders_and_customizations_are_asked_of_the_agent(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            folder = {"type": "session/workingDirectorySet", "directory": "file:///srv/a%20b"}
            await at.accepted(folder, at.session)
            await at.called("set_working_directories", ["/srv/a b"])
            await at.refused_by_agent({**folder, "directory": "file:///refused"}, at.session)
            await at.refused({**folder, "directory": "/no/uri"}, at.session)
            assert at.client.states[at.session]["workingDirectories"] == ["file:///srv/a%20b"]
            off = {"enablement": [{"kind": "user", "enabled": False}]}
            toggle = {"type": "session/customizationToggled", **off}
            await at.accepted({**toggle, "id": "willing"}, at.session)
            await at.called("set_customization_enabled", "willing", False)
            await at.refused_by_agent({**toggle, "id": "stubborn"}, at.session)


async def test_a_setting_is_kept_for_the_next_worker_while_none_lives(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            await at.client.say(at.chat, "t1", "hello")
            chat = at.live.host.session_at(at.session).default_chat
            assert chat.conversation is not None and chat.conversation.process is not None
            ended = chat.conversation.ended
            chat.conversation.process.end(0)
            await ended.wait()
            await at.accepted(config(mode="later"), at.session)
            assert "level" in await at.refused(config(level="high"), at.session)
            turn = await at.client.say(at.chat, "t2", script(["seed"]))
            assert json.loads(text_of(turn)) == {
                "seed": ["t1"],
                "rewind_at": None,
                "resume": f"play-{chat.id}",
                "settings": {"mode": "later", "level": 1},
            }


async def test_an_agent_that_does_not_hear_a_cancel_is_replaced_and_the_next_turn_goes_on(
    state_dir: Path,
) -> None:
    with trio.fail_after(40):
        async with stage(state_dir, cancel_grace_s=0.3, kill_grace_s=0.3) as at:
            await at.client.say(at.chat, "t0", "before")
            pids = at.live.pids(at.session)
            await at.client.start_turn(at.chat, "t1", script(["say", "p", "x"], ["block", 60]))
            await at.client.until(lambda: at.client.states[at.chat]["activeTurn"]["responseParts"])
            started_s = trio.current_time()
            await at.accepted(cancelled("t1"))
            assert at.client.states[at.chat]["turns"][1]["state"] == "cancelled"
            assert trio.current_time() - started_s < 0.3 + 1
            # The next turn is taken at once, and begins in the worker that comes after.
            turn = await at.client.say(at.chat, "t2", script(["seed"]))
            assert json.loads(text_of(turn))["seed"] == ["t0", "t1"]
            assert not set(pids) & set(at.live.pids(at.session))


async def test_a_cancel_overtakes_what_waits_for_the_agents_answer(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir, setter_timeout_s=20) as at:
            await at.client.start_turn(at.chat, "t1", script(["hang"]))
            slow = {"type": "chat/workingDirectorySet", "directory": "file:///slow"}
            # The agent is deaf for a while: it answers neither this nor the cancel.
            await at.client.act(at.chat, cancelled("t1"))
            await at.client.start_turn(at.chat, "t2", script(["block", 1.5], ["hang"]))
            asked = await at.client.dispatch(at.chat, slow)
            draft = await at.client.dispatch(
                at.chat, {"type": "chat/draftChanged", "draft": message("so far")}
            )
            started_s = trio.current_time()
            gone = await at.client.act(at.chat, cancelled("t2"))
            assert trio.current_time() - started_s < 1
            assert "rejectionReason" not in gone
            refused, drafted = await at.client.echo(asked), await at.client.echo(draft)
            assert "cancelled" in refused["rejectionReason"]
            assert "rejectionReason" not in drafted
            assert drafted["serverSeq"] < gone["serverSeq"]
            # Echoes of one client keep its order within the channel.
            seqs = [e["origin"]["clientSeq"] for e in at.client.envelopes if "origin" in e]
            assert seqs == sorted(seqs)


async def test_echoes_of_one_channel_keep_their_order_behind_a_question(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            sent = []
            for number in range(6):
                sent.append(await at.client.dispatch(at.session, config(level=number)))
                named = {"type": "session/titleChanged", "title": f"Title {number}"}
                sent.append(await at.client.dispatch(at.session, named))
            for seq in sent:
                assert "rejectionReason" not in await at.client.echo(seq)
            seqs = [e["origin"]["clientSeq"] for e in at.client.envelopes if "origin" in e]
            assert seqs == sent


# -- going back ------------------------------------------------------------------------


async def test_a_failed_turn_is_taken_up_again_and_loses_nothing(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            failed = await at.client.say(
                at.chat, "t1", script(["say", "p", "half"], ["fail", True])
            )
            assert failed["state"] == "error"
            await at.accepted({"type": "chat/turnResume", "turnId": "t1"})
            turn = await at.client.ended(at.chat, "t1")
            assert turn["state"] == "complete" and turn["duration"] == 7
            assert text_of(turn) == "halfresumed"
            await at.called("resume", "t1")
            assert "resumed" in await at.refused({"type": "chat/turnResume", "turnId": "t1"})
            assert at.watcher.states[at.chat] == await at.client.snapshot(at.chat)


async def test_what_cannot_be_resumed_is_refused(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir, "bare") as at:
            resume = {"type": "chat/turnResume", "turnId": "t1"}
            await at.client.say(at.chat, "t1", script(["fail", False]))
            assert "resumed" in await at.refused(resume)
            await at.client.say(at.chat, "t2", script(["fail", True]))
            assert "last turn" in await at.refused(resume)
            # The agent has no `resume`: refused with that, and the turn stays as it ended.
            assert "agent" in await at.refused({**resume, "turnId": "t2"})
            assert at.client.states[at.chat]["turns"][-1]["state"] == "error"


async def test_a_truncated_chat_goes_on_in_a_worker_that_was_told_where(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            for ident in ("t1", "t2", "t3"):
                await at.client.say(at.chat, ident, "hello")
            pids = at.live.pids(at.session)
            await at.accepted({"type": "chat/truncated", "turnId": "t1"})
            assert held(at) == ["t1"]
            turn = await at.client.say(at.chat, "t4", script(["seed"]))
            ident = at.session.rpartition("/")[2]
            told = json.loads(text_of(turn))
            assert told["seed"] == ["t1"] and told["rewind_at"] == "t1"
            assert told["resume"] == f"play-{ident}"
            assert not set(pids) & set(at.live.pids(at.session))
            # A turn that was cut away keeps its name for itself.
            assert "t2" in await at.refused(turn_started("t2", "again"))
            await at.accepted({"type": "chat/truncated"})
            assert held(at) == []
            fresh = json.loads(text_of(await at.client.say(at.chat, "t5", script(["seed"]))))
            assert fresh["seed"] == [] and fresh["rewind_at"] is None and fresh["resume"] is None


# -- clients' tools --------------------------------------------------------------------


def owned(client: str) -> Json:
    return {"contributor": {"kind": "client", "clientId": client}}


async def test_a_client_offers_tools_for_itself_alone_and_the_agent_hears(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            await at.accepted(tools("actor", "look"), at.session)
            await at.called("set_tools", [{"name": "look", "clientId": "actor"}])
            assert "itself" in await at.refused(tools("watcher", "look"), at.session)
            gone = {"type": "session/activeClientRemoved", "clientId": "watcher"}
            assert "itself" in await at.refused(gone, at.session)
            await at.watcher.act(at.session, tools("watcher", "listen"))
            both = [
                {"name": "look", "clientId": "actor"},
                {"name": "listen", "clientId": "watcher"},
            ]
            await at.called("set_tools", both)
            await at.accepted(
                {"type": "session/activeClientRemoved", "clientId": "actor"}, at.session
            )
            await at.called("client_gone", "actor")


async def test_an_agent_knows_the_tools_from_its_start_on_and_in_each_worker(
    state_dir: Path,
) -> None:
    look, hear = [{"name": "look", "clientId": "actor"}], [{"name": "hear", "clientId": "actor"}]
    with trio.fail_after(40):
        async with live_host(state_dir, AGENTS) as live:
            client = await live.client("actor")
            offered = tools("actor", "look")["activeClient"]
            session, chat = await live.session(client, "play", ready=False, activeClient=offered)
            # Offered while the agent is still being started: it hears of these as soon as it is.
            await client.act(session, tools("actor", "hear"))
            turn = await client.say(chat, "t1", script(["tools"]))
            at = Stage(live, client, client, session, chat)
            if json.loads(text_of(turn)) == look:
                await at.called("set_tools", hear)
            owner = live.host.session_at(session).default_chat
            assert owner.conversation is not None and owner.conversation.process is not None
            owner.conversation.process.end(0)
            await owner.conversation.ended.wait()
            again = await client.say(chat, "t2", script(["tools"]))
            assert json.loads(text_of(again)) == hear
            gone = {"type": "session/activeClientRemoved", "clientId": "actor"}
            await client.act(session, gone)
            await at.called("client_gone", "actor")
            await client.act(session, tools("actor", "hear"))
            await at.called("set_tools", hear)


async def test_only_its_owner_completes_a_clients_tool_call(state_dir: Path) -> None:
    said = script(
        ["tool", "c1", owned("actor"), {"confirmed": "not-needed"}],
        ["tool", "c2", owned("watcher"), {"confirmed": "not-needed"}],
        ["wait", "c1"],
    )
    content = {
        "type": "chat/toolCallContentChanged",
        "turnId": "t1",
        "content": [{"type": "text", "text": "so far"}],
    }
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            await at.accepted(tools("actor", "work"), at.session)
            await at.client.start_turn(at.chat, "t1", said)
            await at.client.until(
                lambda: (
                    len(at.client.states[at.chat]["activeTurn"]["responseParts"]) == 2
                    and at.client.states[at.chat]["activeTurn"]["responseParts"][1]["toolCall"][
                        "status"
                    ]
                    == "running"
                )
            )
            assert "another client's" in await at.refused(completed("c2"))
            assert "another client's" in await at.refused({**content, "toolCallId": "c2"})
            await at.accepted({**content, "toolCallId": "c1"})
            await at.accepted(completed("c1"))
            result = {"success": True, "pastTenseMessage": "Done"}
            await at.called("complete_tool_call", "c1", "actor", result)
            turn = await at.client.ended(at.chat, "t1")
            assert [part["toolCall"]["status"] for part in turn["responseParts"]] == [
                "completed",
                "cancelled",
            ]
            assert "running turn" in await at.refused(completed("c1"))


async def test_a_clients_calls_fail_when_it_leaves(state_dir: Path) -> None:
    said = script(
        ["tool", "c1", owned("actor"), {"confirmed": "not-needed"}],
        ["tool", "c2", owned("actor"), {}],
        ["tool", "c3", owned("watcher"), {"confirmed": "not-needed"}],
        ["hang"],
    )
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            third = await at.live.client("third")
            await third.subscribe(at.session)
            await third.subscribe(at.chat)
            await at.accepted(tools("actor", "work"), at.session)
            await third.start_turn(at.chat, "t1", said)
            await third.until(
                lambda: (
                    len(third.states[at.chat]["activeTurn"]["responseParts"]) == 3
                    and third.states[at.session].get("inputNeeded")
                )
            )
            await at.client.socket.aclose()
            await third.until(lambda: third.states[at.session]["activeClients"] == [])

            def calls() -> list[Json]:
                parts = third.states[at.chat]["activeTurn"]["responseParts"]
                return [part["toolCall"] for part in parts]

            left = ["completed", "cancelled", "running"]
            await third.until(lambda: [call["status"] for call in calls()] == left)
            assert calls()[0]["success"] is False and "actor" in calls()[0]["error"]["message"]
            await third.until(lambda: "inputNeeded" not in third.states[at.session])
            at.client = third
            await at.called("client_gone", "actor")


async def test_an_agent_is_not_told_that_strangers_left(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            passer = await at.live.client("passer-by")
            await passer.subscribe(at.session)
            await passer.socket.aclose()
            await at.accepted(tools("actor", "work"), at.session)
            await at.called("set_tools", [{"name": "work", "clientId": "actor"}])
            assert all(call[0] != "client_gone" for call in at.calls())


# -- several chats ---------------------------------------------------------------------


async def test_a_further_chat_is_a_worker_of_its_own_and_a_cancel_stays_in_its_chat(
    state_dir: Path,
) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            first = {"text": "good morning", "origin": USER}
            made = await at.client.request(
                "createChat", channel=at.session, chat=SECOND, initialMessage=first
            )
            assert made is None
            await at.client.subscribe(SECOND)
            turns = at.client.states[SECOND]
            await at.client.until(lambda: at.client.states[SECOND]["turns"], what="its first turn")
            turns = at.client.states[SECOND]["turns"]
            assert [text_of(turn) for turn in turns] == ["good morning"]
            rows = at.client.states[at.session]["chats"]
            assert [row["resource"] for row in rows] == [at.chat, SECOND]
            assert at.client.states[at.session]["defaultChat"] == at.chat
            assert len(at.live.pids(at.session)) == 2

            ask = script(["ask", {"id": "r1", "message": "?"}], ["wait", "r1"], ["say", "p", "ok"])
            await at.client.start_turn(at.chat, "t1", ask)
            await at.client.start_turn(SECOND, "t1", ask)
            await at.until_needed(2)
            assert "rejectionReason" not in await at.client.act(SECOND, cancelled("t1"))
            (left,) = await at.until_needed(1)
            assert left["chat"] == at.chat
            again = await at.client.act(SECOND, answered("r1"))
            assert "rejectionReason" in again
            assert at.client.states[at.chat]["activeTurn"]["id"] == "t1"
            await at.accepted(answered("r1"))
            assert text_of(await at.client.ended(at.chat, "t1")) == "ok"


async def test_an_initial_message_begins_after_the_answer(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            order: list[str] = []
            take = at.client.take

            def noted(told: Json) -> None:
                action = told.get("params", {}).get("action", {})
                row = action.get("summary") or action.get("changes") or {}
                if "id" in told:
                    order.append("answer")
                elif action.get("chat") == SECOND or row.get("resource") == SECOND:
                    order.append(f"{action['type']} {row['status'] & 31}")
                take(told)

            at.client.take = noted  # type: ignore[method-assign]
            await at.client.request(
                "ping"
            )  # the message that is being waited for is taken as before
            order.clear()
            first = {"text": "good morning", "origin": USER}
            await at.client.request(
                "createChat", channel=at.session, chat=SECOND, initialMessage=first
            )
            await at.client.until(lambda: len(order) >= 3)
            assert order[:3] == ["session/chatAdded 1", "answer", "session/chatUpdated 8"]


async def test_disposing_a_chat_ends_its_turn_and_leaves_the_session(state_dir: Path) -> None:
    with trio.fail_after(40):
        async with stage(state_dir) as at:
            await at.client.request("createChat", channel=at.session, chat=SECOND)
            await at.client.subscribe(SECOND)
            await at.client.start_turn(
                SECOND, "b1", script(["ask", {"id": "r1", "message": "?"}], ["hang"])
            )
            await at.until_needed(1)
            assert await at.client.request("disposeChat", channel=SECOND) is None
            kinds = [a["type"] for a in at.client.actions(SECOND)]
            assert kinds[-2:] == ["chat/inputCompleted", "chat/turnCancelled"]
            await at.client.until(lambda: len(at.client.states[at.session]["chats"]) == 1)
            assert "inputNeeded" not in at.client.states[at.session]
            await at.client.say(at.chat, "t1", "unharmed")
            # A session ends with its default chat.
            await at.client.request("disposeChat", channel=at.chat)
            await at.client.until(
                lambda: any(n["method"] == "root/sessionRemoved" for n in at.client.notifications)
            )


async def test_a_subagents_chat_is_read_only_and_answers_what_it_asks(state_dir: Path) -> None:
    def of_sub(call: str, **action: Any) -> list[Any]:
        return ["of_subagent", call, action]

    with trio.fail_after(40):
        async with stage(state_dir) as at:
            await at.client.start_turn(
                at.chat,
                "t1",
                script(
                    ["subagent", "stoppable", {"title": "Search", "text": "look"}],
                    ["subagent", "unstoppable", {"title": "Stay"}],
                    ["hang"],
                ),
            )
            await at.client.until(lambda: len(at.client.states[at.session]["chats"]) == 3)
            rows = at.client.states[at.session]["chats"][1:]
            for row in rows:
                state = await at.client.subscribe(row["resource"])
                await at.watcher.subscribe(row["resource"])
                assert state["interactivity"] == row["interactivity"] == "read-only"
                assert state["origin"]["kind"] == "tool" and state["origin"]["chat"] == at.chat
            sub, stays = (row["resource"] for row in rows)
            turn_id = at.client.states[sub]["activeTurn"]["id"]
            for action in (
                turn_started("x", "may I"),
                queued("q1"),
                queued("s1", kind="steering"),
                {"type": "chat/draftChanged", "draft": message("x")},
                {"type": "chat/truncated"},
                {"type": "chat/queuedMessagesReordered", "order": []},
            ):
                assert "read-only" in await at.refused(action, sub)
            assert "refused" in await at.refused_by_agent(
                cancelled(at.client.states[stays]["activeTurn"]["id"]), stays
            )
            await at.accepted(cancelled(turn_id), sub)
            await at.called("stop_worker", "stoppable")
            assert at.client.states[at.chat]["activeTurn"]["id"] == "t1"
            # What is left of them ends with the turn that opened them.
            await at.accepted(cancelled("t1"))
            await at.client.until(lambda: "activeTurn" not in at.client.states[stays])


async def test_a_subagents_chat_that_is_disposed_of_is_stopped_and_heard_no_more(
    state_dir: Path,
) -> None:
    said = {"type": "chat/activityChanged", "activity": "still here"}
    with trio.fail_after(40):
        async with stage(state_dir, broken_actions_limit=5) as at:
            await at.client.start_turn(
                at.chat,
                "t1",
                script(
                    ["subagent", "stoppable", {"title": "Search"}],
                    ["ask", {"id": "r1", "message": "?"}],
                    ["wait", "r1"],
                    *[["of_subagent", "stoppable", said]] * 20,
                    ["subagent", "stoppable", {"title": "Again"}],
                    ["say", "p", "unharmed"],
                ),
            )
            await at.until_needed()
            sub = at.client.states[at.session]["chats"][1]["resource"]
            await at.client.subscribe(sub)
            await at.client.request("disposeChat", channel=sub)
            await at.called("stop_worker", "stoppable")
            assert at.client.states[sub]["turns"][0]["state"] == "cancelled"
            await at.accepted(answered("r1"))
            assert text_of(await at.client.ended(at.chat, "t1")) == "unharmed"
            assert len(at.client.states[at.session]["chats"]) == 1
