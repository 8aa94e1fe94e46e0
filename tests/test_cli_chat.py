"""`chat`: from a pipe and on a terminal, against a real host."""

import os
import pty
import select
import signal
import socket
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_host import FIXTURE_AGENTS, OPERATED, PROGRAM, CliHost, run, talking, until, until_said

#: Of anything that a terminal waits for.
SCREEN_LIMIT_S = 30


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHost]:
    agents = (
        *("--agent", OPERATED, "--agent", "broken=fixture_operated:broken"),
        *("--agent", "notes=ahpd.agents.notes:create"),
    )
    state_dir = tmp_path_factory.mktemp("chat") / "state"
    with CliHost(state_dir, "--agent-path", FIXTURE_AGENTS, *agents) as running:
        yield running


def row_of(host: CliHost, session: str) -> dict[str, Any]:
    return next(row for row in host.rows() if row["session"] == session)


# -- from a pipe --------------------------------------------------------------------------


def test_lines_are_messages_and_answers_in_their_order(host: CliHost, tmp_path: Path) -> None:
    """The folder it is run in becomes the session's: the notes are there."""
    lines = "write todo buy milk\ny\nread todo\nread\n1\nwrite todo no\nn\n"
    done = host.run("chat", "--agent", "notes", input=lines, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.splitlines()[1:] == [
        "> write todo buy milk",
        "[Write note] Write the note todo?",
        '  {"name": "todo", "text": "buy milk"}',
        "allow it? (y/n) y",
        "  -> Wrote todo",
        "Wrote todo.",
        "> read todo",
        "[Read note] Read the note todo",
        "  -> Read todo",
        "buy milk",
        "> read",
        "Which note shall I read?",
        "  1) todo",
        "The note's name (its number, or your own words) 1",
        "[Read note] Read the note todo",
        "  -> Read todo",
        "buy milk",
        "> write todo no",
        "[Write note] Write the note todo?",
        '  {"name": "todo", "text": "no"}',
        "allow it? (y/n) n",
        "  -> not run (denied)",
        "Not allowed: todo is left as it is.",
        "> ",
    ]
    assert [path.read_text().strip() for path in tmp_path.iterdir()] == ["buy milk"]


def test_a_chat_is_opened_again_with_what_was_said(host: CliHost) -> None:
    host.create_session("again-1")
    assert host.chat("hello", id="again-1").returncode == 0
    for spelling in ("again-1", "again", "ahp-session:/again-1", "echo:/again-1"):
        done = host.chat("more", id=spelling)
        assert done.returncode == 0, done.stderr
        assert "> hello\nheard hello\n" in done.stdout
        assert done.stdout.endswith("> more\nheard more\n> \n")


def test_an_unknown_or_ambiguous_id_is_one_sentence(host: CliHost) -> None:
    for name in ("chats-1", "chats-2"):
        host.create_session(name)
    for id, sentence in (
        ("nobody", "There is no session and no chat 'nobody'."),
        ("ahp-session:/chats", "There is no session and no chat 'ahp-session:/chats'."),
        ("chats", "'chats' is the beginning of more than one id: chats-1, chats-2."),
    ):
        done = host.chat("hello", id=id)
        assert done.returncode == 1
        assert done.stderr == f"ahpd-supervisor: {sentence}\n"


def test_an_unknown_agent_is_one_sentence_with_status_2(host: CliHost) -> None:
    done = host.chat("hello", agent="nobody")
    assert done.returncode == 2
    assert done.stderr == (
        "ahpd-supervisor: There is no agent nobody; there are: operated, broken, notes.\n"
    )


def test_a_session_that_cannot_be_created_says_why(host: CliHost) -> None:
    done = host.chat("hello", agent="broken")
    assert done.returncode == 1
    why, _, more = done.stderr.partition(" There is no talking in session ")
    assert why.startswith("ahpd-supervisor: The ")
    assert why.count("session") <= 1
    assert "the key of the model is not set" in why
    ident = more.partition(";")[0]
    assert more == f"{ident}; `ahpd-supervisor logs {ident}` may say more.\n"

    again = host.chat("hello", id=ident)
    assert (again.returncode, again.stdout, again.stderr) == (1, "", done.stderr)
    logs = host.run("logs", ident)
    assert logs.returncode == 0
    assert "the key of the model is not set" in logs.stdout


def test_questions_are_answered_by_number_or_in_own_words(host: CliHost) -> None:
    done = host.chat("ask", "2", "perhaps", "y", "10", "3")
    assert done.returncode == 0
    assert "Tell me more\n  1) Red\n  2) Green\nWhich colour?" in done.stdout
    assert "Please answer y or n.\n" in done.stdout
    assert "At most 9, please.\n" in done.stdout
    assert "accepted True with {'colour': 'g', 'count': 3, 'sure': True}" in done.stdout
    done = host.chat("ask", "blue", "n", "")
    assert "accepted True with {'colour': ['blue'], 'count': 'skipped', 'sure': False}" in (
        done.stdout
    )
    done = host.chat("ask", "/decline")
    assert "accepted False with {}" in done.stdout


def test_input_that_ends_before_an_answer_leaves_the_question_open(host: CliHost) -> None:
    host.create_session("open")
    done = host.chat("wait", id="open")
    assert done.returncode == 1
    assert "The input ended before an answer; `ahpd-supervisor chat open` asks again." in (
        done.stdout
    )
    assert row_of(host, "open")["status"] == "needs-you"
    host.run("kill", "open")


def test_an_empty_input_does_not_wait_for_the_turn_of_others(host: CliHost) -> None:
    host.create_session("busy")
    with talking(host, "sleep", id="busy") as other:
        assert other.stdout is not None
        until_said(other.stdout, "sleeping")
        done = host.run("chat", "busy")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[1:] == [
            "> sleep",
            "sleeping",
            "The turn goes on; `ahpd-supervisor chat busy` comes back to this chat.",
        ]
        assert row_of(host, "busy")["status"] == "running"
    host.run("kill", "busy")


def test_a_line_waits_for_the_turn_of_others_and_says_so(host: CliHost) -> None:
    host.create_session("shared-pipe")
    with talking(host, "sleep", id="shared-pipe") as first:
        assert first.stdout is not None
        until_said(first.stdout, "sleeping")
        with talking(host, "hello", id="shared-pipe") as second:
            assert second.stdin is not None
            assert second.stdout is not None
            second.stdin.close()
            until_said(second.stdout, "a turn is running; the input waits until it has ended.\n")
            first.send_signal(signal.SIGINT)
            until_said(second.stdout, "(cancelled)\n> hello\nheard hello\n> \n")
            assert second.wait(30) == 0
            second.stdin = None
    host.run("kill", "shared-pipe")


def test_the_status_is_1_when_the_last_turn_failed(host: CliHost) -> None:
    done = host.chat("fail")
    assert done.returncode == 1
    assert "error: as it was told" in done.stdout
    assert host.chat("fail", "hello").returncode == 0


def test_no_text_of_an_agent_drives_the_terminal(host: CliHost) -> None:
    said = host.chat("escape").stdout
    assert "before " in said
    assert "after" in said
    assert not set(said) & set("\x1b\x07\x9b\u202e\r")


def test_a_chat_that_is_killed_says_so(host: CliHost) -> None:
    host.create_session("doomed")
    with talking(host, "sleep", id="doomed") as chat:
        assert chat.stdout is not None
        until_said(chat.stdout, "sleeping")
        host.run("kill", "doomed")
        until_said(chat.stdout, "(this chat was ended)\n")
        assert chat.wait(30) == 1


def test_a_message_may_be_long_and_its_last_line_without_an_end(host: CliHost) -> None:
    text = "é" * 100_000
    done = host.run("chat", "--agent", "operated", input=f"hello\n{text}")
    assert f"heard {text}\n" in done.stdout


def test_lines_come_from_a_file_too(host: CliHost, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("one\ntwo\n")
    with open(file) as lines:
        done = subprocess.run(
            [PROGRAM, "chat", "--agent", "operated", "--state-dir", str(host.state_dir)],
            stdin=lines,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.stdout.splitlines()[1:] == ["> one", "heard one", "> two", "heard two", "> "]


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("ws://127.0.0.1:1/", "Cannot connect to ws://127.0.0.1:1/: "),
        ("http://127.0.0.1/", "Cannot connect to http://127.0.0.1/: "),
        ("nonsense", "Cannot connect to nonsense: "),
    ],
)
def test_a_url_that_leads_nowhere_is_one_sentence(url: str, sentence: str) -> None:
    done = run("chat", "--url", url)
    assert done.returncode == 1
    assert done.stderr.startswith(f"ahpd-supervisor: {sentence}")
    assert done.stderr.count("\n") == 1


def test_what_is_no_host_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        def serve() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"220 mail\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        done = run("chat", "--url", f"ws://127.0.0.1:{port}/?token=secret")
        thread.join()
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"ws://127.0.0.1:{port}/" in done.stderr
    assert "secret" not in done.stderr


def test_a_wrong_token_in_a_url_is_one_sentence(host: CliHost) -> None:
    plain = host.ahp.partition("?")[0]
    done = run("chat", "--url", f"{plain}?token=wrong")
    assert done.returncode == 1
    assert done.stderr == f"ahpd-supervisor: The host at {plain} refuses the token (401).\n"
    assert "heard hi" in run("chat", "--url", host.ahp, input="hi\n").stdout


# -- on a terminal ------------------------------------------------------------------------


class Terminal:
    """A chat on a pseudo-terminal, and what stands on it."""

    def __init__(self, host: CliHost, *arguments: str) -> None:
        pid, self.descriptor = pty.fork()
        if pid == 0:
            command = [PROGRAM, "chat", *arguments, "--state-dir", str(host.state_dir)]
            os.execv(PROGRAM, command)
        self.pid = pid
        self.text = ""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.descriptor)

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def until(self, text: str) -> None:
        """Reads until this stands behind what was waited for before; that is passed over."""
        deadline = time.monotonic() + SCREEN_LIMIT_S
        while text not in self.text:
            assert self._read(deadline), f"not shown: {text!r}, but {self.text!r}"
        self.text = self.text.partition(text)[2]

    def _read(self, deadline: float) -> bool:
        left_s = max(0.0, deadline - time.monotonic())
        if not select.select([self.descriptor], [], [], left_s)[0]:
            return False
        try:
            data = os.read(self.descriptor, 65536)
        except OSError:
            return False
        # The terminal's own line ends.
        self.text += data.decode().replace("\r\n", "\n")
        return bool(data)

    def status(self) -> int:
        """Waits until it has left; its exit status."""
        deadline = time.monotonic() + SCREEN_LIMIT_S
        while self._read(deadline):
            pass
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


def test_ctrl_c_cancels_the_turn_and_ctrl_d_leaves(host: CliHost) -> None:
    with Terminal(host, "--agent", "operated") as terminal:
        terminal.until("Ctrl-C cancels a turn, Ctrl-D leaves\n> ")
        terminal.type("sleep\n")
        terminal.until("sleeping")
        terminal.type("\x03")
        terminal.until("(cancelled)\n> ")
        terminal.type("hello\n")
        terminal.until("heard hello\n> ")
        terminal.type("\x03")
        terminal.until("(Ctrl-D leaves)\n> ")
        terminal.type("\x04")
        terminal.until("comes back to this chat.\n")
        assert terminal.status() == 0


def test_a_worker_in_an_endless_loop_does_not_hold_the_terminal(host: CliHost) -> None:
    with Terminal(host, "--agent", "operated") as terminal:
        terminal.until("> ")
        terminal.type("spin\n")
        terminal.until("spinning")
        began_s = time.monotonic()
        terminal.type("\x03")
        terminal.until("(cancelled)\n> ")
        assert time.monotonic() - began_s < 5
        terminal.type("hello\n")
        terminal.until("heard hello\n> ")


def test_a_line_typed_while_a_turn_runs_is_queued(host: CliHost) -> None:
    with Terminal(host, "--agent", "operated") as terminal:
        terminal.until("> ")
        terminal.type("wait\n")
        terminal.until("allow it? (y/n) ")
        terminal.type("what is this?\n")
        terminal.until("Please answer y or n.\nallow it? (y/n) ")
        terminal.type("\x03")
        terminal.until("(cancelled)\n> ")
        terminal.type("sleep\n")
        terminal.until("sleeping")
        terminal.type("later\n")
        terminal.until("(queued)")
        terminal.type("\x03")
        terminal.until("(cancelled)\n> ")
        # A cancel pauses the queue; the next message lets it go on.
        terminal.type("now\n")
        terminal.until("heard now\n")
        terminal.until("> later\nheard later\n> ")


def test_an_approval_on_a_terminal(host: CliHost, tmp_path: Path) -> None:
    with Terminal(host, "--agent", "notes") as terminal:
        terminal.until("> ")
        terminal.type("write terminal hello\n")
        terminal.until("allow it? (y/n) ")
        terminal.type("n\n")
        terminal.until("  -> not run (denied)\n")
        terminal.until("left as it is.\n> ")


def test_ctrl_d_leaves_a_running_turn_to_itself(host: CliHost) -> None:
    host.create_session("left")
    with Terminal(host, "left") as terminal:
        terminal.until("> ")
        terminal.type("sleep\n")
        terminal.until("sleeping")
        terminal.type("\x04")
        terminal.until("The turn goes on; `ahpd-supervisor chat left` comes back to this chat.\n")
        assert terminal.status() == 0
    assert row_of(host, "left")["status"] == "running"
    host.run("kill", "left")


def test_the_terminal_is_left_as_it_was(host: CliHost) -> None:
    with Terminal(host, "--agent", "operated") as terminal:
        before = termios.tcgetattr(terminal.descriptor)
        terminal.until("> ")
        assert os.get_blocking(terminal.descriptor)
        terminal.type("\x04")
        assert terminal.status() == 0
        assert termios.tcgetattr(terminal.descriptor) == before


def test_two_clients_of_one_chat_see_the_same(host: CliHost) -> None:
    host.create_session("shared")
    with Terminal(host, "shared") as one, Terminal(host, "shared") as other:
        one.until("> ")
        other.until("> ")
        one.type("hello\n")
        one.until("heard hello\n> ")
        other.until("> hello\nheard hello\n> ")
        other.type("wait\n")
        one.until("> wait\n")
        one.until("allow it? (y/n) ")
        other.until("allow it? (y/n) ")
        one.type("n\n")
        other.until("  -> not run (denied)\n")
    until(lambda: host.run("kill", "shared").returncode == 0, "the session to end")
