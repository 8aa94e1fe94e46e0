"""A worker starts, finds its agent, says what it is, and answers for it; or says what to mend."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ahpd.contracts.frames import BadFrame, Event, Failure
from ahpd.contracts.worker_wire import (
    FAILURE_BAD_REQUEST,
    FAILURE_LOAD,
    FAILURE_NO_MEMBER,
    FAILURE_RAISED,
    FAILURE_UNKNOWN_REQUEST,
)
from worker_driver import FIXTURE_AGENTS, worker


async def test_the_first_frame_is_hello_with_the_version_and_the_pid() -> None:
    async with worker() as driver:
        first = driver.frames[0]
        assert isinstance(first, Event)
        assert first.event == "worker.hello"
        assert first.payload == {"wire": "1.0", "pid": driver.process.pid}


def test_frames_travel_on_3_and_4_unless_told() -> None:
    command = f"{sys.executable} -P -m ahpd.worker 3</dev/null 4>&1 >/dev/null"
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=30, check=True)
    assert json.loads(done.stdout)["event"] == "worker.hello"


def test_frames_on_stdin_and_stdout_are_out_of_reach_of_a_print() -> None:
    requests = [
        {"id": "1", "type": "worker.load", "payload": {
            "factory": "fixture_turns:manners", "agentPath": [str(FIXTURE_AGENTS)]}},
        {"id": "2", "type": "session.create", "payload": {
            "uri": "ahp-session:/s", "chatUri": "ahp-chat:/s", "chatId": "s"}},
        {"id": "3", "type": "turn.begin", "payload": {"turnId": "t", "text": "prints"}},
        {"id": "4", "type": "session.close", "payload": {}},
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ahpd.worker", "--frames", "0,1"],
        input="".join(json.dumps(one) + "\n" for one in requests).encode(),
        capture_output=True,
        timeout=30,
        check=True,
    )
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert frames[-1] == {"id": "4", "ok": True, "result": {}}
    assert b"\xff\xfe raw" in done.stderr


@pytest.mark.parametrize("arguments", [["--frames", "3"], ["--frames", "a,b"], ["--other"]])
def test_arguments_that_are_none_are_a_sentence_and_status_2(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ahpd.worker", *arguments],
        capture_output=True, timeout=30, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "usage: " in done.stderr
    assert "Traceback" not in done.stderr


def test_descriptors_that_are_not_open_are_a_sentence_and_status_2() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ahpd.worker", "--frames", "91,92"],
        capture_output=True, timeout=30, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "91,92" in done.stderr
    assert "Traceback" not in done.stderr


async def test_an_agent_describes_itself() -> None:
    async with worker() as driver:
        told = await driver.load("fixture_loading:Catalogue")
        assert told["provider"] == "fixture"
        assert told["displayName"] == "Fixture"
        assert told["kind"] == "fixture"
        assert told["capabilities"] == {"multipleChats": {"fork": True}}
        assert told["protectedResources"] == [{"resource": "https://api.example"}]
        assert list(told["schema"]["properties"]) == ["model"]


async def test_options_are_keywords_of_the_factory() -> None:
    async with worker() as driver:
        told = await driver.load("fixture_loading:takes_colour", colour="red")
        assert told["displayName"] == "Fixture in red"


@pytest.mark.parametrize(
    ("factory", "options", "words"),
    [
        ("no_such_module_here:create", {}, "there is no module 'no_such_module_here'"),
        ("fixture_loading.inner:create", {}, "there is no module 'fixture_loading.inner'"),
        ("fixture_loading:nothing", {}, "has no `nothing`"),
        ("fixture_loading:NOT_CALLABLE", {}, "cannot be called"),
        ("fixture_loading", {}, "`module:callable`"),
        (":create", {}, "`module:callable`"),
        ("fixture_loading:takes_colour", {"size": 1}, "does not take its options"),
        ("fixture_loading:raises", {}, "RuntimeError: no key in the environment"),
        ("fixture_loading:raises_type_error", {}, "raised TypeError: object of type 'int'"),
        ("fixture_loading:answers_none", {}, "answered None"),
        ("fixture_loading:Nameless", {}, "has no `display_name`"),
        ("fixture_loading:Schemeless", {}, "`schema()` answered a list, not a dict"),
    ],
)
async def test_an_agent_that_cannot_be_had_is_a_sentence(
    factory: str, options: dict[str, object], words: str
) -> None:
    async with worker() as driver:
        payload = {"factory": factory, "options": options, "agentPath": [str(FIXTURE_AGENTS)]}
        failure = await driver.refused("worker.load", **payload)
        assert failure.code == FAILURE_LOAD
        assert words in failure.message
        # The worker lives on: another agent can be tried.
        await driver.load("fixture_loading:Catalogue")


async def test_a_missing_module_says_where_it_was_looked_for(tmp_path: Path) -> None:
    async with worker() as driver:
        failure = await driver.refused(
            "worker.load", factory="no_such_module_here:create", agentPath=[str(tmp_path)]
        )
        assert str(tmp_path) in failure.message


async def test_a_module_whose_own_import_is_missing_names_that_one(tmp_path: Path) -> None:
    (tmp_path / "needy_agent.py").write_text("import not_installed_anywhere\n")
    (tmp_path / "broken_agent.py").write_text("def create(:\n")
    async with worker() as driver:
        for module, words in (
            ("needy_agent", "needs 'not_installed_anywhere'"),
            ("broken_agent", "SyntaxError"),
        ):
            failure = await driver.refused(
                "worker.load", factory=f"{module}:create", agentPath=[str(tmp_path)]
            )
            assert failure.code == FAILURE_LOAD
            assert words in failure.message


async def test_a_file_beside_an_agent_does_not_stand_in_for_a_library(tmp_path: Path) -> None:
    for name in ("trio", "colorsys"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')\n")
    (tmp_path / "shadowing_agent.py").write_text(
        """
import colorsys
import trio
from fixture_base import Agent

def create():
    agent = Agent()
    agent.display_name = trio.__file__
    agent.description = colorsys.__file__
    return agent
"""
    )
    async with worker(cwd=tmp_path) as driver:
        told = await driver.load("shadowing_agent:create", tmp_path, FIXTURE_AGENTS)
        assert Path(told["displayName"]).parent.name == "trio"
        assert Path(told["description"]).parent != tmp_path


async def test_nothing_is_imported_from_the_session_folder(tmp_path: Path) -> None:
    (tmp_path / "trio.py").write_text("raise SystemExit('shadowed')\n")
    (tmp_path / "only_in_the_session_folder.py").write_text("")
    # A relative entry means a folder of the current one, whichever that comes to be.
    agents = tmp_path / "agents"
    agents.mkdir()
    (agents / "relative_agent.py").write_text(
        "import sys\nsys.path.append('.')\nfrom fixture_turns import manners as create\n"
    )
    async with worker(PYTHONPATH=":") as driver:
        await driver.load("relative_agent:create", agents, FIXTURE_AGENTS)
        await driver.create(workingDirectory=str(tmp_path))
        (said,) = [a for a in await driver.turn("t1", "where") if a["type"] == "chat/responsePart"]
        told = json.loads(said["part"]["content"])
        assert told["cwd"] == str(tmp_path)
        assert told["found"] is False
        own = [entry for entry in told["path"] if not entry.startswith("__editable__")]
        assert all(os.path.isabs(entry) for entry in own)
        assert Path(told["trio"]).parent.name == "trio"


async def test_requests_that_are_none_are_refused_and_the_worker_goes_on() -> None:
    async with worker() as driver:
        early = await driver.refused("turn.begin", turnId="t", text="x")
        assert early.code == FAILURE_BAD_REQUEST
        await driver.load("fixture_turns:manners")
        unknown = await driver.refused("worker.dance")
        assert unknown.code == FAILURE_UNKNOWN_REQUEST
        assert (await driver.refused("worker.load", factory="a:b")).code == FAILURE_BAD_REQUEST
        no_session = await driver.refused("turn.begin", turnId="t", text="x")
        assert no_session.code == FAILURE_BAD_REQUEST
        await driver.create()
        shape = await driver.refused("turn.begin", turnId=5, text="x")
        assert shape.code == FAILURE_BAD_REQUEST
        assert "turnId" in shape.message
        for garbage in (b"\xff\xfe\n", b"{\n", b"[]\n", b'{"id":"g"}\n', b"\n\n", b'"x"\n'):
            start = len(driver.frames)
            await driver.send_bytes(garbage)
            if garbage.strip():
                failure = await driver.until(lambda f: isinstance(f, Failure), start)
                assert failure.code == FAILURE_BAD_REQUEST
        assert (await driver.refused("session.create", uri="u", chatUri="c", chatId="x")).code == (
            FAILURE_BAD_REQUEST
        )
        assert await driver.turn("t1", "told")


async def test_what_the_catalogue_asks_is_answered_by_the_members() -> None:
    async with worker() as driver:
        await driver.load("fixture_loading:Catalogue")
        assert await driver.ask("agent.probe") == {
            "models": [{"id": "m"}], "commands": [], "account": {"label": "someone"},
        }  # fmt: skip
        assert (await driver.ask("agent.directories"))["items"] == ["/srv/one", "/srv/two"]
        completions = await driver.ask(
            "agent.configCompletions", key="model", query="o", config={}, directory="/srv"
        )
        assert completions["items"] == [{"value": "model-o", "label": "/srv"}]
        assert (await driver.ask("agent.find", id="s1", at="/srv"))["row"]["at"] == "/srv"
        assert await driver.ask("agent.find", id="s2") == {}
        assert (await driver.ask("agent.delete", id="s1"))["accepted"] is True
        assert (await driver.ask("agent.delete", id="s2"))["accepted"] is False
        wrong = await driver.refused("agent.transcript", id="s1")
        assert wrong.code == FAILURE_RAISED
        assert "`transcript` answered a str, not a list" in wrong.message
        raised = await driver.refused("agent.subagents", id="s1")
        assert raised.message == "OSError: the record is locked"


async def test_a_long_list_travels_in_parts_before_its_answer() -> None:
    async with worker() as driver:
        await driver.load("fixture_loading:Catalogue")
        ident = await driver.send("agent.list", {})
        assert (await driver.reply(ident)).result["items"] == []  # type: ignore[union-attr]  # a success
        parts = [part["items"] for part in driver.events("worker.part") if part["id"] == ident]
        assert len(parts) == 3
        assert [row["id"] for part in parts for row in part] == [f"s{n}" for n in range(3000)]
        assert all(len(json.dumps(part, separators=(",", ":"))) <= 1024 * 1024 for part in parts)
        assert not any(isinstance(frame, BadFrame) for frame in driver.frames)


async def test_what_an_agent_left_out_is_said_so() -> None:
    async with worker() as driver:
        await driver.load("fixture_turns:manners")
        for request, payload in (
            ("agent.probe", {}), ("agent.list", {}), ("agent.find", {"id": "x"}),
            ("agent.delete", {"id": "x"}), ("agent.directories", {}),
        ):  # fmt: skip
            assert (await driver.refused(request, **payload)).code == FAILURE_NO_MEMBER
