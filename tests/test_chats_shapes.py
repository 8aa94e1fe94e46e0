"""Every shape of the agent-contracts wire, held against the schema both ways."""

import subprocess
import sys
from typing import Any, get_args

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_contracts import (
    OURS,
    WRONG,
    class_of,
    defined,
    edges,
    example,
    faults,
    instances,
    mutated,
    named_difference,
    needs_schema,
    schema,
    validator,
)
from ahpd.contracts import chats
from ahpd.contracts.chats import (
    AGENT_EVENTS,
    AGENT_REQUESTS,
    ChatItem,
    ChatSend,
    Empty,
    RequestShape,
    Shape,
    ShapeError,
    read_event,
    read_payload,
    read_result,
    write,
)
from ahpd.contracts.json import same_json
from ahpd.contracts.shapes import structure, wire_names

pytestmark = needs_schema

#: What the envelope's own module has, and what is a word, a list or a union.
ELSEWHERE = {"WireError", "Request", "Success", "Failure", "Event", "ServerFrame"}
NO_CLASS = {"Bookmarks", "Visuals", "AttachmentUploads", "SuggestedTitle", "AccountId"}


def object_names() -> list[str]:
    return [name for name, part in defined().items() if part.get("type") == "object"]


SHAPES = [name for name in object_names() if name not in ELSEWHERE] if needs_schema else []
FEW = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_every_object_of_the_schema_has_its_class() -> None:
    assert [name for name in SHAPES if class_of(name) is None] == []
    assert set(object_names()) - ELSEWHERE == set(SHAPES)


def test_the_tables_are_the_schemas() -> None:
    requests, events = schema()["x-requests"], schema()["x-events"]
    assert len(AGENT_REQUESTS) == len(requests) == 41
    assert len(AGENT_EVENTS) == len(events) == 8
    named = {
        name: {"payload": one.payload.__name__, "result": one.result.__name__}
        for name, one in AGENT_REQUESTS.items()
    }
    assert named == {
        name: {key: ref.rpartition("/")[2] for key, ref in one.items()}
        for name, one in requests.items()
    }
    assert {name: one.__name__ for name, one in AGENT_EVENTS.items()} == {
        name: ref.rpartition("/")[2] for name, ref in events.items()
    }


@pytest.mark.parametrize("name", SHAPES)
def test_a_class_has_the_members_of_its_definition(name: str) -> None:
    """Which are there, and which may be left out."""
    cls, part = class_of(name), defined()[name]
    assert cls is not None
    wire = wire_names(cls)
    members = set(wire.values()) - OURS.get(name, set())
    assert members == set(part.get("properties", {}))
    optional = {wire[one.name] for one in attrs.fields(cls) if one.default is None}
    assert members - optional == set(part.get("required", []))


@pytest.mark.parametrize("name", SHAPES)
@FEW
@given(data=st.data())
def test_what_the_schema_describes_is_read_and_written_back_unchanged(
    name: str, data: st.DataObject
) -> None:
    value = data.draw(instances(name))
    assert faults(name, value) == []
    try:
        read = structure(value, class_of(name) or Shape, name)
    except ShapeError as error:
        assert named_difference(str(error)), error
        return
    written = write(read)
    assert faults(name, written) == []
    assert same_json(_without_null_parents(value), written)
    assert structure(written, type(read)) == read


def _without_null_parents(value: Any) -> Any:
    """The one member that may be null as well as absent reads as absent."""
    if isinstance(value, list):
        return [_without_null_parents(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = dict(value)
    if kept.get("kind") == "assistant" and kept.get("parentToolUseId", "") is None:
        del kept["parentToolUseId"]
    # What a tool was given is the tool's, whatever it looks like.
    return {key: one if key == "input" else _without_null_parents(one) for key, one in kept.items()}


@pytest.mark.parametrize("name", SHAPES)
@settings(FEW, max_examples=25)
@given(data=st.data())
def test_what_a_class_accepts_is_what_the_schema_accepts(name: str, data: st.DataObject) -> None:
    """On values that are nearly right; where ours is stricter, the rule has a name."""
    value = data.draw(mutated(instances(name)))
    fits = validator(name).is_valid(value)
    try:
        structure(value, class_of(name) or Shape, name)
    except ShapeError as error:
        assert not fits or named_difference(str(error)), f"only ours refuses: {error}"
    else:
        assert fits, f"only the schema refuses: {faults(name, value)}"


@pytest.mark.parametrize("name", SHAPES)
def test_at_the_edges_of_each_member_too(name: str) -> None:
    """Each member gone, replaced by what it is not, and by what lies at its bounds."""
    whole, members = example(name), defined()[name].get("properties", {})
    assert faults(name, whole) == []
    tried = [whole]
    for member, part in members.items():
        tried.append({key: value for key, value in whole.items() if key != member})
        tried += [{**whole, member: value} for value in (*WRONG, *edges(part))]
    for value in tried:
        fits = validator(name).is_valid(value)
        try:
            structure(value, class_of(name) or Shape, name)
        except ShapeError as error:
            assert not fits or named_difference(str(error)), f"only ours refuses: {error}"
        else:
            assert fits, f"only the schema refuses: {faults(name, value)}"


def test_an_item_is_told_by_its_kind() -> None:
    assert len(get_args(ChatItem)) == len(defined()["ChatItem"]["oneOf"]) == 10
    thread = {"id": "n", "createdAt": 1, "turnId": None, "kind": "note", "level": "info"}
    assert isinstance(structure({**thread, "text": "t"}, ChatItem), chats.NoteItem)  # type: ignore[arg-type]  # a union is no class
    for wrong in ({}, {"kind": "poem"}, {"kind": 1}, [], None, "note"):
        with pytest.raises(ShapeError):
            structure(wrong, ChatItem)  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize(
    ("request_name", "payload", "message"),
    [
        ("chat.send", {"chatId": "c", "text": " \n"}, "payload.text: expected text that is not"),
        ("chat.send", {"chatId": "c"}, "payload.text: is missing"),
        ("chat.send", {"chatId": "", "text": "a"}, "payload.chatId: expected a nonempty string"),
        (
            "chat.send",
            {"chatId": "c", "text": "a", "mentions": ["a", ""]},
            "payload.mentions[1]: expected a nonempty string",
        ),
        (
            "chat.send",
            {"chatId": "c", "text": "a", "skills": ["s"] * 17},
            "payload.skills: expected at most 16",
        ),
        (
            "chat.send",
            {"chatId": "c", "text": "", "attachments": [{"name": "n", "mime": "m", "data": "é"}]},
            "payload.attachments[0].data: expected base64",
        ),
        (
            "chat.create",
            {"chatId": "c", "cwd": None},
            "payload.cwd: expected a value; what is not there is left out",
        ),
        (
            "chat.create",
            {"chatId": "c", "selection": {"model": "m", "options": {"effort": 3}}},
            "payload.selection.options.effort: expected one of: str, bool",
        ),
        ("chat.attach", {"chatId": "c", "historyLimit": 101}, "payload.historyLimit: expected at"),
        ("chat.attach", {"chatId": "c", "since": True}, "payload.since: expected a whole number"),
        (
            "accounts.create",
            {"kind": "claude", "label": "  " + "x" * 81 + " "},
            "payload.label: expected at most 80 characters",
        ),
        ("accounts.watchLogin", {"id": "work\n"}, "payload.id: expected an account's id"),
        (
            "accounts.save",
            {"accounts": {"../x": {"kind": "claude"}}},
            "payload.accounts.../x: expected an account's id",
        ),
        (
            "chat.setPreferences",
            {"selections": {"gpt": {"model": "m", "options": {}}}},
            "payload.selections.gpt: expected one of 'claude'",
        ),
        (
            "chat.fork",
            {"chatId": "c", "turnId": "t", "title": "\u2003"},
            "payload.title: expected text that is not blank",
        ),
        ("chat.list", [], "payload: expected an object"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(
    request_name: str, payload: Any, message: str
) -> None:
    with pytest.raises(ShapeError) as refused:
        read_payload(request_name, payload)
    assert message in str(refused.value)


def test_an_instance_that_a_program_builds_is_held_to_the_same_rules() -> None:
    with pytest.raises(ValueError, match="not blank"):
        ChatSend(chat_id="c", text="")
    with pytest.raises(ValueError, match="nonempty"):
        ChatSend(chat_id="c", text="a", mentions=("",))
    assert ChatSend(chat_id="c", text="a").attachments is None


def test_required_members_that_may_be_null_are_written_as_null() -> None:
    tool = chats.ToolItem(
        id="i",
        created_at=1,
        turn_id=None,
        tool_use_id="u",
        name="n",
        output=None,
        state="running",
        parent_tool_use_id=None,
        input=None,
    )
    written = write(tool)
    assert {"turnId", "output", "parentToolUseId", "input"} <= written.keys()
    assert {"progress", "changes", "workflow"}.isdisjoint(written)
    assert faults("ChatItem", written) == []


def test_a_program_adds_its_own_requests_and_events() -> None:
    @attrs.frozen(kw_only=True)
    class DocumentRead(Shape):
        id: str

    requests = AGENT_REQUESTS | {"document.read": RequestShape(DocumentRead, Empty)}
    assert read_payload("document.read", {"id": "7"}, requests) == DocumentRead(id="7")
    assert read_payload("chat.detach", {"chatId": "c"}, requests) == chats.ChatTarget(chat_id="c")
    assert len(AGENT_REQUESTS) == 41
    events = AGENT_EVENTS | {"document.changed": DocumentRead}
    assert read_event("document.changed", {"id": "7"}, events) == DocumentRead(id="7")
    assert read_result("chat.detach", {"later": 1}) == Empty()
    with pytest.raises(KeyError):
        read_payload("document.read", {"id": "7"})


def test_a_worker_pays_for_none_of_this() -> None:
    program = (
        "import importlib, pkgutil, sys, ahpd.worker\n"
        "for module in pkgutil.iter_modules(ahpd.worker.__path__, 'ahpd.worker.'):\n"
        "    if module.name != 'ahpd.worker.__main__': importlib.import_module(module.name)\n"
        "print(*(n for n in sys.modules if 'contracts.chats' in n or n == 'regex'))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
