"""The command line: what each command prints, for people and for programs, and its statuses."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_host import (
    FIXTURE_AGENTS,
    OPERATED,
    PROGRAM,
    CliHost,
    is_running,
    run,
    talking,
    until,
    until_said,
)

COMMANDS = ("start", "status", "stop", "ps", "kill", "restart", "logs", "chat")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHost]:
    agents = ("--agent", OPERATED, "--agent", "broken=fixture_operated:broken")
    state_dir = tmp_path_factory.mktemp("cli") / "state"
    with CliHost(state_dir, "--agent-path", FIXTURE_AGENTS, *agents) as running:
        yield running


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: ahpd-supervisor {command}")
    assert "--state-dir DIR" in done.stdout


def test_without_a_command_all_of_them_are_named() -> None:
    done = run()
    assert done.returncode == 2
    assert all(f"\n  {command} " in done.stderr for command in COMMANDS)
    assert run("--version").stdout.startswith("ahpd-supervisor 0.")


def test_the_list_of_commands_fits_on_a_terminal() -> None:
    said = run("--help", COLUMNS="80").stdout.partition("\nCommands:\n")[2].splitlines()
    assert len(said) >= len(COMMANDS)
    # A line that was cut ends so; each command has one line.
    assert not [line for line in said if line.endswith("...") or line.startswith("   ")]


@pytest.mark.parametrize(
    "arguments",
    [
        ["chat", "--agent"],
        ["chat", "--nope"],
        ["ps", "--state-dir"],
        ["start", "--port", "x"],
        ["logs"],
    ],
)
def test_a_mistyped_command_points_to_its_own_help(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"ahpd-supervisor {arguments[0]}: ")
    assert done.stderr.endswith(f" (`ahpd-supervisor {arguments[0]} --help` says more)\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["status", "--json"],
        ["stop"],
        ["ps"],
        ["kill", "x"],
        ["restart", "x"],
        ["logs", "x"],
        ["chat"],
    ],
)
def test_without_a_host_each_command_says_so_with_status_3(
    state_dir: Path, arguments: list[str]
) -> None:
    for folder in (state_dir, state_dir / "nowhere"):
        done = run(*arguments, "--state-dir", folder)
        assert done.returncode == 3
        assert done.stdout == ""
        assert done.stderr == (
            f"ahpd-supervisor: No host is running on {folder}; "
            "`ahpd-supervisor start` starts one.\n"
        )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["kill"], "Missing argument 'ID'"),
        (["dance"], "No such command 'dance'"),
        (["ps", "--color"], "No such option"),
        (["chat", "x", "--agent", "y"], "Either an ID or --agent"),
    ],
)
def test_a_mistyped_command_is_one_sentence_with_status_2(
    arguments: list[str], sentence: str
) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_commands_that_only_ask_load_no_event_loop() -> None:
    program = (
        "import sys, ahpd.supervisor.cli, ahpd.supervisor.cli.control\n"
        "print(*{'trio', 'structlog', 'trio_websocket', 'ssl'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []


def test_status_says_how_the_host_does(host: CliHost) -> None:
    until(lambda: host.json("status")["agents"][1]["fault"], "the broken agent to be asked")
    text = host.run("status").stdout
    assert f"process {host.pid}, up " in text
    assert f"AHP       {host.ahp.partition('?')[0]}\n" in text
    assert "token" not in text
    assert "agents    operated\n" in text
    assert "broken cannot be used: " in text
    assert "the key of the model is not set" in text
    told = host.json("status")
    assert told.keys() == {
        *("version", "pid", "keeper_pid", "ahp", "uptime_s", "memory_bytes"),
        *("agents", "sessions", "chats", "connections", "workers"),
    }


def test_ps_lists_workers_with_exactly_the_named_keys(host: CliHost) -> None:
    host.create_session("listed")
    with talking(host, "wait", id="listed"):
        until(lambda: [row for row in host.rows() if row["status"] == "needs-you"], "a question")
        (row,) = [row for row in host.rows() if row["session"] == "listed"]
        assert list(row) == [
            *("session", "chat", "agent", "title", "status"),
            *("pid", "memory_bytes", "cpu_s", "age_s", "waits_on"),
        ]
        assert (row["session"], row["chat"], row["agent"]) == ("listed", "listed", "operated")
        assert row["waits_on"] == "Wait"
        assert row["memory_bytes"] > 1_000_000
        assert 0 < row["cpu_s"] < 60
        assert is_running(row["pid"])
        catalogue = [row for row in host.json("ps") if row["chat"] is None]
        assert all(row["session"] is None for row in catalogue)

        lines = host.run("ps").stdout.splitlines()
        heads = ["SESSION", "CHAT", "AGENT", "TITLE", "STATUS", "PID", "MEMORY", "CPU", "AGE"]
        assert lines[0].split() == [*heads, "WAITS", "ON"]
        (line,) = [line for line in lines if line.startswith("listed ")]
        assert line.split()[1:3] == ["default", "operated"]
        assert line[lines[0].index("STATUS") :].startswith("needs-you")
        assert line[lines[0].index("WAITS ON") :] == "Wait"
    host.run("kill", "listed")


def test_kill_says_what_ended_and_how_many(host: CliHost) -> None:
    host.create_session("killed-1")
    host.create_session("killed-2")
    host.chat("children 2", id="killed-1")
    assert host.run("kill", "killed-1").stdout == ("Killed session killed-1: 3 processes ended.\n")
    assert host.json("kill", "killed-2") == {"session": "killed-2", "chat": None, "processes": 1}


def test_restart_says_what_ended(host: CliHost) -> None:
    host.create_session("restarted")
    assert host.run("restart", "restarted").stdout == (
        "Restarted chat restarted: 1 process ended; its next message starts a new one.\n"
    )
    assert host.json("restart", "restarted") == {
        "session": "restarted", "chat": "restarted", "processes": 0
    }  # fmt: skip
    host.run("kill", "restarted")


@pytest.mark.parametrize("command", ["kill", "restart", "logs"])
def test_an_unknown_or_ambiguous_id_is_one_sentence(host: CliHost, command: str) -> None:
    for name in ("twin-1", "twin-2"):
        host.create_session(name)
    unknown = host.run(command, "nobody")
    assert unknown.returncode == 1
    assert unknown.stderr == "ahpd-supervisor: There is no session and no chat 'nobody'.\n"
    ambiguous = host.run(command, "twin")
    assert ambiguous.returncode == 1
    assert ambiguous.stderr == (
        "ahpd-supervisor: 'twin' is the beginning of more than one id: "
        "session twin-1, session twin-2.\n"
    )
    for name in ("twin-1", "twin-2"):
        host.run("kill", name)


def test_logs_are_what_the_processes_printed(host: CliHost) -> None:
    host.create_session("logged")
    host.chat("print one", "print \x1b[31mtwo", id="logged")
    said = host.run("logs", "logged").stdout
    assert [line.split(" ", 1)[1] for line in said.splitlines()] == [
        "err  one",
        r"err  \x1b[31mtwo",
    ]
    host.run("kill", "logged")


def test_logs_tell_how_each_worker_ended(host: CliHost) -> None:
    host.create_session("deaths")
    empty = host.run("logs", "deaths")
    assert (empty.returncode, empty.stdout) == (0, "")
    assert empty.stderr == "Nothing was printed or noted yet.\n"

    (row,) = [row for row in host.rows() if row["session"] == "deaths"]
    os.kill(row["pid"], signal.SIGKILL)

    def said() -> list[str]:
        lines = host.run("logs", "deaths").stdout.splitlines()
        return [line.split(" ", 1)[1] for line in lines]

    killed = ["host worker ended: was killed by SIGKILL"]
    until(lambda: said() == killed, "the death to be noted")
    assert host.chat("hello", id="deaths").returncode == 0
    host.run("restart", "deaths")
    restarted = [*killed, "host worker restarted by its operator"]
    until(lambda: said()[:2] == restarted and len(said()) == 3, "the restart to be noted")
    assert said()[2].startswith("host worker ended: ")
    host.run("kill", "deaths")


def test_an_agents_log_says_why_it_cannot_be_used(host: CliHost) -> None:
    until(lambda: host.json("status")["agents"][1]["fault"], "the broken agent to be asked")
    assert "LookupError: the key of the model is not set" in host.run("logs", "broken").stdout


def test_logs_are_followed_until_the_chat_is_gone(host: CliHost) -> None:
    host.create_session("followed")
    host.chat("print one", id="followed")
    process = subprocess.Popen(
        [PROGRAM, "logs", "-f", "followed", "--state-dir", str(host.state_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        until_said(process.stdout, "one\n")
        host.chat("print two", id="followed")
        until_said(process.stdout, "two\n")
        host.run("kill", "followed")
        until_said(process.stdout, "The chat is gone.\n")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_leaves_a_followed_log(host: CliHost) -> None:
    host.create_session("left")
    host.chat("print one", id="left")
    process = subprocess.Popen(
        [PROGRAM, "logs", "-f", "left", "--state-dir", str(host.state_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        until_said(process.stdout, "one\n")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors.strip()) == (130, "")
    finally:
        process.kill()
        process.communicate()
    host.run("kill", "left")


def test_output_that_nobody_reads_is_no_traceback(host: CliHost) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [PROGRAM, "ps", "--state-dir", str(host.state_dir)],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_host_that_does_not_answer_is_not_waited_for_for_ever(state_dir: Path) -> None:
    with CliHost(state_dir, "--agent-path", FIXTURE_AGENTS, "--agent", OPERATED) as host:
        host.process.send_signal(signal.SIGSTOP)
        try:
            began_s = time.monotonic()
            done = host.run("ps")
            assert done.returncode == 1
            assert done.stderr == "ahpd-supervisor: The host does not answer.\n"
            assert time.monotonic() - began_s < 30
        finally:
            host.process.send_signal(signal.SIGCONT)


def test_stop_waits_until_nothing_runs(state_dir: Path) -> None:
    with CliHost(state_dir, "--agent-path", FIXTURE_AGENTS, "--agent", OPERATED) as host:
        host.create_session("one")
        host.chat("children 1", id="one")
        pids = [row["pid"] for row in host.json("ps")] + [host.json("status")["keeper_pid"]]
        done = host.run("stop")
        assert done.returncode == 0
        assert done.stdout == f"The host (process {host.pid}) has stopped.\n"
        assert [pid for pid in pids if is_running(pid)] == []
        assert host.wait(5) == 0
        assert host.run("ps").returncode == 3


def test_with_no_agent_named_the_installed_ones_are_served(state_dir: Path) -> None:
    with CliHost(state_dir, "--agent-option", f"notes.folder={state_dir}") as host:
        assert [agent["name"] for agent in host.json("status")["agents"]] == ["echo", "notes"]
        assert host.chat("hello there", agent=None).stdout.splitlines()[1:3] == [
            "> hello there",
            "hello there",
        ]
        assert json.loads(host.line)["ahp"] == host.ahp
