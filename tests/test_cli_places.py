"""The command line where folders and outputs are not what they should be."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ahpd.supervisor.client import AhpClient
from cli_host import FIXTURE_AGENTS, OPERATED, PROGRAM, CliHost, until_said

#: A user whom no database knows; only root can be somebody else.
NOBODY = 54_321
# It imports first: nobody may read where the modules are.
HOMELESS = """
import os, pwd, sys
import platformdirs.unix, ahpd.supervisor.service, ahpd.supervisor.cli as cli
os.setuid(int(sys.argv[1]))
sys.exit(cli.run(sys.argv[2:]))
"""
homeless = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a homeless user")

GONE = "The current folder was removed: run this in one that is there."


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHost]:
    state_dir = tmp_path_factory.mktemp("places") / "state"
    with CliHost(state_dir, "--agent-path", FIXTURE_AGENTS, "--agent", OPERATED) as running:
        yield running


def run_in_removed(folder: Path, *arguments: str | Path) -> Any:
    """Runs the program in a folder that is removed before it starts."""
    gone = folder / "gone"
    gone.mkdir()
    return subprocess.run(
        ["sh", "-c", 'rmdir "$1" && shift && exec "$@"', "sh", gone, PROGRAM, *arguments],
        cwd=gone,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# -- folders ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["chat"],
        ["start", "--port", "0"],
        ["start", "--port", "0", "--agent-path", "agents"],
        ["backup", "copy.db"],
        ["import", "session.jsonl"],
    ],
)
def test_a_command_in_a_removed_folder_says_so_with_status_2(
    host: CliHost, tmp_path: Path, arguments: list[str]
) -> None:
    state_dir = tmp_path / "fresh" if arguments[0] == "start" else host.state_dir
    done = run_in_removed(tmp_path, *arguments, "--state-dir", state_dir)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"ahpd-supervisor: {GONE}\n"


def test_what_needs_no_folder_works_in_a_removed_one(host: CliHost, tmp_path: Path) -> None:
    host.create_session("elsewhere")
    for arguments in (["status"], ["ps"], ["chat", "elsewhere"], ["logs", "elsewhere"]):
        done = run_in_removed(tmp_path, *arguments, "--state-dir", host.state_dir)
        assert done.returncode == 0, done.stderr


@homeless
@pytest.mark.parametrize("command", ["start", "status", "chat"])
def test_without_a_home_folder_the_state_directory_must_be_named(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HOMELESS, str(NOBODY), command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "ahpd-supervisor: There is no home folder to keep the state in: set HOME, "
        "or name a folder by --state-dir.\n"
    )


def test_a_host_without_a_home_folder_lets_clients_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "nowhere")
    agents = ("--agent-path", FIXTURE_AGENTS, "--agent", OPERATED)
    with CliHost(tmp_path / "state", *agents, cwd=tmp_path) as host:
        told = {}

        async def look(client: AhpClient) -> None:
            told.update(client.welcome)

        host.as_client(look)
        assert told["defaultDirectory"] == "file:///"


def test_the_commands_that_start_suggests_work_in_every_folder(tmp_path: Path) -> None:
    (tmp_path / "ahpd-supervisor").symlink_to(PROGRAM)
    process = subprocess.Popen(
        [
            *("./ahpd-supervisor", "start", "--port", "0", "--state-dir", "state"),
            *("--agent-path", FIXTURE_AGENTS, "--agent", OPERATED),
        ],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = until_said(process.stdout, "ends it.")
    finally:
        process.terminate()
        process.communicate(timeout=60)
    program = f"{tmp_path}/ahpd-supervisor"
    assert f"  {program} chat --state-dir {tmp_path}/state --agent operated\n" in said
    assert f"`{program} stop --state-dir {tmp_path}/state`" in said
    assert f"  state   {tmp_path}/state\n" in said


# -- outputs ------------------------------------------------------------------------------


def run_into_full(*arguments: str | Path, input: str = "") -> Any:
    """Runs the program with a stdout that is full."""
    with open("/dev/full", "w") as full:
        return subprocess.run(
            [PROGRAM, *arguments],
            input=input,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )


FULL = "ahpd-supervisor: The output cannot be written: No space left on device.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["status", "--json"],
        ["ps"],
        ["logs", "printed"],
        ["chat", "printed"],
        ["chat"],
        ["export", "printed"],
        ["verify"],
    ],
)
def test_a_full_output_is_one_sentence_with_status_1(host: CliHost, arguments: list[str]) -> None:
    if not any(row["session"] == "printed" for row in host.rows()):
        host.create_session("printed")
        host.chat("print something", id="printed")
    done = run_into_full(*arguments, "--state-dir", host.state_dir, input="hello\n")
    assert (done.returncode, done.stderr) == (1, FULL)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["ps", "--help"]])
def test_help_into_a_full_output_is_one_sentence_too(arguments: list[str]) -> None:
    done = run_into_full(*arguments)
    assert (done.returncode, done.stderr) == (1, FULL)


def test_a_relay_into_a_full_output_is_one_sentence(host: CliHost) -> None:
    ask = '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"channel":"ahp-root://"}}\n'
    with open("/dev/full", "w") as full:
        relay = subprocess.Popen(
            [PROGRAM, "connect", "--stdio", "--state-dir", str(host.state_dir)],
            stdin=subprocess.PIPE,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert relay.stdin is not None
    assert relay.stderr is not None
    relay.stdin.write(ask)
    relay.stdin.flush()
    # Its input stays open: it is the output that ends it.
    assert relay.stderr.read() == FULL
    relay.stdin.close()
    relay.stderr.close()
    assert relay.wait(60) == 1


@pytest.mark.parametrize("closed", [">&-", "<&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_as_if_nobody_were_there(host: CliHost, closed: str) -> None:
    session = f"closed-{['>&-', '<&-', '<&- >&- 2>&-'].index(closed)}"
    host.create_session(session)
    for arguments in (["status"], ["ps"], ["chat", session], ["--version"]):
        of = [] if arguments == ["--version"] else ["--state-dir", host.state_dir]
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", PROGRAM, *arguments, *of],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
