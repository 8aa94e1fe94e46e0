"""`connect --stdio`: a client's whole set-up over ssh, one message a line."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cli_host import FIXTURE_AGENTS, OPERATED, PROGRAM, CliHost, run


@contextmanager
def relaying(state_dir: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    command = [PROGRAM, "connect", "--stdio", "--state-dir", str(state_dir), *arguments]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ask(process: "subprocess.Popen[str]", message: Any) -> Any:
    """Sends a message and reads until the one that answers it."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()
    while True:
        answer = json.loads(process.stdout.readline())
        if answer.get("id") == message["id"]:
            return answer


def host_on(state_dir: Path) -> CliHost:
    return CliHost(state_dir, "--agent-path", FIXTURE_AGENTS, "--agent", OPERATED)


def test_both_wires_are_relayed_a_message_a_line(state_dir: Path) -> None:
    with host_on(state_dir):
        with relaying(state_dir) as process:
            hello = {"protocolVersions": ["1.0.0"], "clientId": "far", "channel": "ahp-root://"}
            request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
            assert ask(process, request)["result"]["protocolVersion"] == "1.0.0"
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(10) == 0
        with relaying(state_dir, "--wire", "chats") as process:
            created = {"id": "a", "type": "chat.create", "payload": {"chatId": "far"}}
            assert ask(process, created)["result"]["chatId"] == "far"
            listed = ask(process, {"id": "b", "type": "chat.list", "payload": {}})
            assert [chat["chatId"] for chat in listed["result"]["chats"]] == ["far"]
            # What is no frame is answered, and what is no text ends the relay alone.
            assert process.stdin is not None and process.stderr is not None
            process.stdin.buffer.write(b"\xff\xfe\n")
            process.stdin.buffer.flush()
            assert process.wait(10) == 1
            assert process.stderr.read() == (
                "ahpd-supervisor: A line is no message: it is not UTF-8.\n"
            )


def test_the_relay_ends_with_its_host_and_says_so(state_dir: Path) -> None:
    with host_on(state_dir) as host, relaying(state_dir, "--wire", "chats") as process:
        ask(process, {"id": "b", "type": "chat.list", "payload": {}})
        host.process.terminate()
        assert process.wait(20) == 1
        assert process.stderr is not None
        assert process.stderr.read() == (
            "ahpd-supervisor: The host closed the connection (1001: the host stops).\n"
        )


def test_without_a_host_it_is_one_sentence_and_status_3(state_dir: Path) -> None:
    done = run("connect", "--stdio", "--state-dir", state_dir)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"ahpd-supervisor: No host is running on {state_dir};")
    assert done.stderr.count("\n") == 1


def test_the_way_of_relaying_is_to_be_said(state_dir: Path) -> None:
    done = run("connect", "--state-dir", state_dir)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
