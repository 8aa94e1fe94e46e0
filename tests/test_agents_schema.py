"""Everything echo and notes say fits AHP's schema, action by action."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from test_agents import Client, selected, typed
from worker_driver import worker

DATA = Path(os.environ.get("AHP_DATA") or Path(__file__).parents[1] / ".." / "shared" / "ahp")

if not (DATA / "schema").is_dir():
    pytest.skip(f"no AHP data at {DATA}: name its folder in AHP_DATA", allow_module_level=True)

ACTIONS = json.loads((DATA / "schema" / "actions.schema.json").read_text())
COMMANDS = json.loads((DATA / "schema" / "commands.schema.json").read_text())


def shape_of(kind: str) -> list[dict[str, Any]]:
    """The definitions whose `type` is that of the action: one, or one an outcome."""
    return [
        {"$ref": f"#/$defs/{name}"}
        for name, definition in ACTIONS["$defs"].items()
        if _type_of(definition) == kind
    ]


def _type_of(definition: dict[str, Any]) -> str | None:
    told = definition.get("properties", {}).get("type", {})
    found: str | None = told.get("const") or (told.get("enum") or [None])[0]
    return found


def check(actions: list[dict[str, Any]]) -> None:
    for action in actions:
        shapes = shape_of(action["type"])
        assert shapes, action
        jsonschema.Draft202012Validator({**ACTIONS, "anyOf": shapes}).validate(action)


async def test_what_echo_says_fits_the_schema() -> None:
    async with worker() as driver:
        told = await driver.load("ahpd.agents.echo:create", delay_ms=0)
        check_config(told)
        await driver.create()
        await Client(driver).turn("t1", "one two")
        check(driver.actions("chat") + driver.actions("session"))


async def test_what_notes_says_fits_the_schema(tmp_path: Path) -> None:
    async with worker() as driver:
        told = await driver.load("ahpd.agents.notes:create")
        check_config(told)
        await driver.create(workingDirectory=str(tmp_path))
        client = Client(driver)
        await client.begin("t1", "write")
        request = (await driver.action("chat/inputRequested"))["request"]
        await client.answer(
            request["id"], "accept", {"name": selected("", "a"), "text": typed("x")}
        )
        await client.confirm("t1", await client.waiting_call(), approved=True)
        await client.finish("t1")
        await client.turn("t2", "read a missing")
        await client.turn("t3", "help")
        actions = driver.actions("chat") + driver.actions("session")
        assert {action["type"] for action in actions} == {
            "chat/inputRequested", "chat/responsePart", "chat/toolCallComplete",
            "chat/toolCallReady", "chat/toolCallStart", "chat/turnComplete",
            "session/titleChanged",
        }  # fmt: skip
        check(actions)


def check_config(told: dict[str, Any]) -> None:
    reference = {"$ref": "#/$defs/SessionConfigSchema"}
    jsonschema.Draft202012Validator({**COMMANDS, **reference}).validate(told["schema"])
    for key, value in told["defaults"].items():
        assert value in told["schema"]["properties"][key]["enum"]
        assert told["schema"]["properties"][key]["default"] == value
