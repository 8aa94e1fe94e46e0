"""A session's settings held against its agent's schema; and asked of the agent before they are."""

from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ahp_actions import JSON
from ahp_client import Refused
from ahpd.supervisor.sessions.settings import initial_settings, normal_schema, setting_fault
from live_host import live_host

Json = dict[str, Any]
SCRIPTED = {"scripted": "fixture_scripted:scripted"}

SCHEMA: Json = normal_schema(
    {
        "properties": {
            "mode": {"type": "string", "enum": ["plan", "act"], "default": "act"},
            "model": {"type": "string", "enum": ["a"], "enumDynamic": True},
            "level": {"type": "number"},
            "loud": {"type": "boolean"},
            "fixed": {"type": "string", "sessionMutable": False},
            "shown": {"type": "string", "readOnly": True},
            "names": {"type": "array", "items": {"type": "string"}},
            "box": {"type": "object", "properties": {"size": {"type": "number"}}},
        }
    }
)


def fault(key: str, value: Any, *, running: bool = True) -> str | None:
    return setting_fault(SCHEMA, key, value, running=running)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mode", "plan"),
        ("model", "one that is not listed"),
        ("level", 3),
        ("level", -0.5),
        ("loud", False),
        ("names", []),
        ("names", ["a", "b"]),
        ("box", {}),
        ("box", {"size": 2, "beside": "anything"}),
    ],
    ids=str,
)
def test_what_fits_the_schema_is_taken(key: str, value: Any) -> None:
    assert fault(key, value) is None


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("never", 1, "there is no setting never"),
        ("mode", "dance", "mode is to be one of plan, act"),
        ("mode", None, "mode is to be a string"),
        ("level", "3", "level is to be a number"),
        ("level", True, "level is to be a number"),
        ("level", float("inf"), "level is to be a number"),
        ("loud", 1, "loud is to be true or false"),
        ("names", "a", "names is to be a list"),
        ("names", ["a", 5], "names[1] is to be a string"),
        ("box", [], "box is to be an object"),
        ("box", {"size": "large"}, "box.size is to be a number"),
        ("fixed", "x", "cannot be changed in a session that runs"),
        ("shown", "x", "cannot be changed"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named_with_where(key: str, value: Any, words: str) -> None:
    said = fault(key, value)
    assert said is not None and words in said


def test_what_a_running_session_may_not_change_a_new_one_may_start_with() -> None:
    assert fault("fixed", "x", running=False) is None


def test_a_session_starts_with_the_schemas_defaults_the_agents_and_what_was_wished() -> None:
    defaults = {"level": 2, "stray": 5}
    assert initial_settings(SCHEMA, defaults, {}) == {"mode": "act", "level": 2}
    wished = {"mode": "plan", "level": 3, "theme": "an editor's own"}
    assert initial_settings(SCHEMA, defaults, wished) == {"mode": "plan", "level": 3}
    assert initial_settings(SCHEMA, {}, {"mode": "dance"}) == "mode is to be one of plan, act"


def test_a_schema_gets_what_the_protocol_asks_for() -> None:
    given = {"properties": {"a": {}, "b": {"type": "integer"}, "c": {"type": "date"}, "d": 5}}
    assert normal_schema(given) == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "title": "a"},
            "b": {"type": "number", "title": "b"},
            "c": {"type": "string", "title": "c"},
        },
    }
    assert normal_schema({}) == {"type": "object", "properties": {}}
    assert normal_schema({"properties": []})["properties"] == {}


@given(schema=st.dictionaries(st.sampled_from(["properties", "type", "x"]), JSON), value=JSON)
def test_law_no_schema_of_an_agents_makes_us_raise(schema: Json, value: Any) -> None:
    normal = normal_schema(schema)
    assert normal_schema(normal) == normal
    for key in [*normal["properties"], "never"]:
        for running in (True, False):
            said = setting_fault(normal, key, value, running=running)
            assert said is None or isinstance(said, str)
    wished = dict.fromkeys(normal["properties"], value)
    values = initial_settings(normal, {}, wished)
    assert isinstance(values, str) or values.keys() == wished.keys()


@given(deep=st.integers(0, 100))
def test_a_schema_without_a_bottom_is_looked_into_so_far_only(deep: int) -> None:
    rule: Json = {"type": "string"}
    value: Any = 5
    for _ in range(deep):
        rule, value = {"type": "array", "items": rule}, [value]
    said = setting_fault({"properties": {"deep": rule}}, "deep", value, running=False)
    assert (said is None) == (deep >= 16)


# -- in a host ------------------------------------------------------------------------


async def test_the_agent_is_asked_before_a_setting_changes(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, SCRIPTED, setter_timeout_s=0.8) as live:
            client = await live.client()
            session, chat = await live.session(client, "scripted", config={"mood": "glad"})
            assert client.states[session]["config"]["values"] == {
                "mood": "glad",
                "level": 1,
                "fixed": False,
            }

            async def change(config: Json, **more: Any) -> str | None:
                action = {"type": "session/configChanged", "config": config, **more}
                answer = await client.act(session, action)
                return str(answer["rejectionReason"]) if "rejectionReason" in answer else None

            assert await change({"mood": "sad", "level": 2}) is None
            assert await change({"mood": "no"}) == "the agent refused"
            assert await change({"mood": "why"}) == "not today"
            assert "no setting theme" in str(await change({"theme": "dark"}))
            assert "number" in str(await change({"level": "2"}))
            assert "session that runs" in str(await change({"fixed": True}))
            assert "leaves out" in str(await change({"mood": "x"}, replace=True))
            # Nothing of a change that was refused in part is there.
            assert await change({"level": 9, "mood": "no"}) == "the agent refused"
            values = client.states[session]["config"]["values"]
            assert values == {"mood": "sad", "level": 2, "fixed": False}
            assert (await client.snapshot(session))["config"]["values"] == values

            # An agent that does not hear is not waited for; its chat alone waited.
            await client.start_turn(chat, "t1", "hang 3")
            assert await change({"mood": "calm"}) == "the agent did not answer in time"


async def test_a_session_is_not_made_with_a_setting_that_does_not_fit(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, SCRIPTED) as live:
            client = await live.client()
            with pytest.raises(Refused) as refused:
                await live.session(client, "scripted", config={"level": "high"})
            assert refused.value.code == -32602 and "level" in str(refused.value)
            assert not live.host.sessions


async def test_without_a_living_worker_the_schema_decides_and_the_next_one_is_told(
    state_dir: Path,
) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, SCRIPTED) as live:
            client = await live.client()
            session, chat = await live.session(client, "scripted")
            await client.say(chat, "t1", "exit 1")
            action = {"type": "session/configChanged", "config": {"mood": "no"}}
            assert "rejectionReason" not in await client.act(session, action)
            bad = {"type": "session/configChanged", "config": {"level": "x"}}
            assert "rejectionReason" in await client.act(session, bad)
            turn = await client.say(chat, "t2", "settings")
            assert (
                turn["responseParts"][0]["content"] == "{'fixed': False, 'level': 1, 'mood': 'no'}"
            )


async def test_all_chats_of_a_session_agree_or_none_changes(state_dir: Path) -> None:
    with trio.fail_after(30):
        async with live_host(state_dir, SCRIPTED) as live:
            client = await live.client()
            session, chat = await live.session(client, "scripted")
            further = "ahp-chat:/further"
            await client.request("createChat", channel=session, chat=further)
            await client.subscribe(further)
            await client.say(further, "s1", "stubborn")
            action = {"type": "session/configChanged", "config": {"mood": "sad"}}
            assert (await client.act(session, action))["rejectionReason"] == "the agent refused"
            told = await client.say(chat, "t1", "told")
            # The first was asked and said yes; it was set back.
            assert told["responseParts"][0]["content"] == "[('mood', 'sad'), ('mood', 'calm')]"
            assert client.states[session]["config"]["values"]["mood"] == "calm"
