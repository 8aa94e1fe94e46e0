"""The control socket: who is let in, what each request does, and what a bad peer achieves."""

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ahpd.contracts.control_wire import MAX_CONTROL_REQUEST_BYTES
from cli_host import FIXTURE_AGENTS, OPERATED, CliHost, is_running, talking, until, until_said

#: Of one answer on the socket.
ANSWER_LIMIT_S = 30

#: Small ones, so that a test can pass them.
BOUNDS = """
[bounds]
max_control_connections = 4
handshake_timeout_s = 1
kill_grace_s = 0.3
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHost]:
    folder = tmp_path_factory.mktemp("control")
    config = folder / "host.toml"
    config.write_text(BOUNDS)
    state_dir = folder / "state"
    arguments = ("--config", config, "--agent-path", FIXTURE_AGENTS, "--agent", OPERATED)
    option = f'operated.state_dir="{state_dir}"'
    with CliHost(state_dir, *arguments, "--agent-option", option) as running:
        yield running


class Peer:
    """A connection to the control socket that says what it is told to say."""

    def __init__(self, host: CliHost) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(ANSWER_LIMIT_S)
        # Its folder's name may be too long for an address.
        folder = os.open(host.state_dir, os.O_PATH)
        self.socket.connect(f"/proc/self/fd/{folder}/control.sock")
        os.close(folder)
        self.file = self.socket.makefile("rb")
        self.token = (host.state_dir / "token").read_text().strip()

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def say(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, id: Any, kind: Any, payload: Any) -> None:
        self.say(json.dumps({"id": id, "type": kind, "payload": payload}).encode() + b"\n")

    def hear(self) -> Any:
        """The next frame; None at the end of the connection."""
        try:
            line = self.file.readline()
        except ConnectionResetError:
            return None
        return json.loads(line) if line else None

    def ask(self, kind: Any, payload: Any, id: str = "1") -> Any:
        self.send(id, kind, payload)
        return self.hear()

    def hello(self) -> "Peer":
        assert self.ask("host.hello", {"token": self.token})["ok"] is True
        return self

    def refusal(self, code: str) -> str:
        """The sentence of a refusal that ends the connection."""
        frame = self.hear()
        assert frame["ok"] is False
        assert frame["error"]["code"] == code
        assert self.hear() is None
        return str(frame["error"]["message"])


def new_session(host: CliHost, *lines: str) -> str:
    """A session in which these lines were said, by its id."""
    before = {row["session"] for row in host.rows()}
    assert host.chat(*lines).returncode == 0
    (made,) = {row["session"] for row in host.rows()} - before
    return str(made)


def rows_of(host: CliHost, session: str) -> list[dict[str, Any]]:
    """The session's workers, as `ps` shows them."""
    return [row for row in host.rows() if row["session"] == session]


def row_of(host: CliHost, session: str) -> dict[str, Any]:
    """The worker of the session's default chat."""
    (row,) = [row for row in rows_of(host, session) if row["chat"] == session]
    return row


def failure(frame: Any) -> tuple[str, str]:
    assert frame["ok"] is False, frame
    return frame["error"]["code"], frame["error"]["message"]


# -- who is let in ------------------------------------------------------------------------


def test_the_hello_says_the_wire_and_the_host(host: CliHost) -> None:
    with Peer(host) as peer:
        frame = peer.ask("host.hello", {"token": peer.token})
        assert frame["result"] == {
            "wire": "1.1",
            "version": frame["result"]["version"],
            "pid": host.pid,
        }


def test_a_wrong_token_ends_the_connection(host: CliHost) -> None:
    for token in ("", "wrong", "t" * 43, "\ud800"):
        with Peer(host) as peer:
            peer.send("1", "host.hello", {"token": token})
            assert peer.refusal("refused") == "The token is not this host's."


def test_anything_else_before_the_hello_ends_the_connection(host: CliHost) -> None:
    with Peer(host) as peer:
        peer.send("1", "host.stop", {})
        assert peer.refusal("refused") == "A connection begins with host.hello."
    for data, code in ((b"{}\n", "bad-request"), (b"\xff\xfe\n", "bad-request")):
        with Peer(host) as peer:
            peer.say(data)
            assert peer.refusal(code)
    with Peer(host) as peer:
        peer.send("1", "host.hello", {"token": 5})
        assert peer.refusal("bad-request") == "payload.token: expected a string"
    assert host.run("status").returncode == 0


def test_a_peer_that_says_nothing_is_not_waited_for(host: CliHost) -> None:
    with Peer(host) as peer:
        assert peer.refusal("refused") == "The hello took too long."


@pytest.mark.parametrize("how", ["itself", "detached"])
def test_a_worker_does_not_steer_its_host(host: CliHost, how: str) -> None:
    """It has the right token: it runs as the same user and can read the file."""
    said = host.chat(f"knock {how}").stdout
    assert "A worker does not steer its host." in said
    assert '"ok":true' not in said
    assert "control connection refused: a worker's process" in host.log()


def test_no_more_than_the_bound_are_connected_at_one_time(host: CliHost) -> None:
    peers = [Peer(host).hello() for _ in range(4)]
    try:
        with Peer(host) as late:
            assert late.refusal("busy") == "The host has 4 control connections already."
        done = host.run("status")
        assert done.returncode == 1
        assert done.stderr == "ahpd-supervisor: The host has 4 control connections already.\n"
    finally:
        for peer in peers:
            peer.__exit__()
    until(lambda: host.run("status").returncode == 0, "the connections to be free again")


def test_a_frame_that_is_too_long_ends_its_connection_alone(host: CliHost) -> None:
    with Peer(host) as other, Peer(host) as peer:
        other.hello()
        peer.hello()
        try:
            peer.say(b"x" * (MAX_CONTROL_REQUEST_BYTES + 1))
            assert "larger than" in peer.refusal("bad-request")
        except BrokenPipeError:
            pass
        assert other.ask("host.status", {})["ok"] is True


# -- requests -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "payload", "code", "message"),
    [
        ("host.dance", {}, "unknown-request", "There is no request 'host.dance'."),
        ("host.kill", {}, "bad-request", "payload.id: is missing"),
        ("host.kill", {"id": 7}, "bad-request", "payload.id: expected a string"),
        ("host.kill", [], "bad-request", "payload: expected an object"),
        ("host.logs", {"id": "x", "tailBytes": 0}, "bad-request", "payload.tailBytes"),
        ("host.logs", {"id": "x", "tailBytes": 1e9}, "bad-request", "payload.tailBytes"),
        ("host.kill", {"id": "nobody"}, "not-found", "There is no session and no chat 'nobody'."),
        ("host.kill", {"id": ""}, "not-found", "There is no session and no chat ''."),
        ("host.kill", {"id": "::"}, "not-found", "There is no session"),
        ("host.restart", {"id": "nobody"}, "not-found", "There is no session"),
        ("host.logs", {"id": "nobody"}, "not-found", "There is no session"),
    ],
)
def test_a_request_that_cannot_be_done_is_refused_and_the_connection_lives(
    host: CliHost, kind: str, payload: Any, code: str, message: str
) -> None:
    with Peer(host) as peer:
        peer.hello()
        told = failure(peer.ask(kind, payload, id="7"))
        assert told[0] == code
        assert told[1].startswith(message)
        assert peer.ask("host.status", {})["ok"] is True


def test_a_line_that_is_no_request_is_answered_and_the_connection_lives(host: CliHost) -> None:
    with Peer(host) as peer:
        peer.hello()
        peer.say(b"nonsense\n\n")
        frame = peer.hear()
        assert frame["id"] is None
        assert failure(frame)[0] == "bad-request"
        # A second hello is no request.
        assert failure(peer.ask("host.hello", {"token": peer.token}))[0] == "unknown-request"
        peer.say(b'{"id":"1","type":"host.sta')
        time.sleep(0.05)  # So that it is read in two pieces; in one it must work all the same.
        peer.say(b'tus","payload":{}}\n')
        assert peer.hear()["result"]["pid"] == host.pid


def test_the_status_counts_and_names_what_is_there(host: CliHost) -> None:
    session = new_session(host, "hello")
    with Peer(host) as peer:
        result = peer.hello().ask("host.status", {})["result"]
        rows = peer.ask("host.processes", {})["result"]["workers"]
    assert result["pid"] == host.pid
    assert result["ahp"] == host.ahp.partition("?")[0]
    assert result["agents"] == [{"name": "operated"}]
    assert result["sessions"] == result["chats"] == len(host.rows())
    assert result["workers"] == len(rows)
    assert is_running(result["keeperPid"])
    assert result["memoryBytes"] > 1_000_000
    (row,) = [row for row in rows if row.get("session") == session]
    assert row["memoryBytes"] > 1_000_000
    assert is_running(row["pid"])
    assert (row["chat"], row["agent"], row["status"]) == (session, "operated", "idle")
    assert "waitsOn" not in row


def test_a_row_says_what_its_chat_is_doing(host: CliHost) -> None:
    failed = new_session_with_failure(host)
    assert row_of(host, failed)["status"] == "error"
    with talking(host, "wait", id=failed):
        until(lambda: row_of(host, failed)["status"] == "needs-you", "the chat to wait")
        assert row_of(host, failed)["waits_on"] == "Wait"
    host.run("kill", failed)
    quiet = new_session(host, "hello")
    with talking(host, "sleep", id=quiet):
        until(lambda: row_of(host, quiet)["status"] == "running", "the turn to run")
        assert row_of(host, quiet)["waits_on"] is None


def new_session_with_failure(host: CliHost) -> str:
    before = {row["session"] for row in host.rows()}
    assert host.chat("fail").returncode == 1
    (made,) = {row["session"] for row in host.rows()} - before
    return str(made)


def test_an_agents_words_are_cut_so_that_the_list_stays_a_list(host: CliHost) -> None:
    host.create_session("loud")
    with talking(host, "shout", id="loud"):
        until(lambda: row_of(host, "loud")["status"] == "needs-you", "the agent to shout")
        row = row_of(host, "loud")
        assert row["title"].startswith("loud loud")
        assert len(row["title"]) < 300
        assert len(row["waits_on"]) < 300
        host.run("kill", "loud")


# -- ending -------------------------------------------------------------------------------


def test_a_kill_ends_the_session_with_all_that_it_started_and_counts_them(host: CliHost) -> None:
    session = new_session(host, "children 3")
    tree = _tree(row_of(host, session)["pid"])
    assert len(tree) == 4
    with Peer(host) as peer:
        result = peer.hello().ask("host.kill", {"id": session})["result"]
        assert result == {"session": session, "processes": 4}
        assert [pid for pid in tree if is_running(pid)] == []
        assert failure(peer.ask("host.kill", {"id": session}))[0] == "not-found"


@pytest.mark.parametrize("spell", ["ahp-session:/{}", "echo:/{}", "ahp-chat:/{}", "{:.8}"])
def test_a_session_is_found_in_any_spelling(host: CliHost, spell: str) -> None:
    session = new_session(host, "hello")
    with Peer(host) as peer:
        killed = peer.hello().ask("host.kill", {"id": spell.format(session)})
        assert killed["result"] == {"session": session, "processes": 1}


def test_a_beginning_of_more_than_one_id_names_them_and_kills_nobody(host: CliHost) -> None:
    sessions = ["alike-0", "alike-1"]
    for session in sessions:
        host.create_session(session)
    with Peer(host).hello() as peer:
        code, message = failure(peer.ask("host.kill", {"id": "alike"}))
        assert code == "ambiguous"
        assert message == (
            "'alike' is the beginning of more than one id: session alike-0, session alike-1."
        )
        assert {row["session"] for row in host.rows()} >= set(sessions)
        for session in sessions:
            assert peer.ask("host.kill", {"id": session})["ok"] is True


def test_other_requests_are_answered_while_a_kill_takes_its_time(host: CliHost) -> None:
    session = new_session(host, "hello")
    with talking(host, "spin", id=session), Peer(host).hello() as peer:
        until(lambda: row_of(host, session)["status"] == "running", "the turn to run")
        peer.send("kill", "host.kill", {"id": session})
        peer.send("status", "host.status", {})
        assert [peer.hear()["id"] for _ in range(2)] == ["status", "kill"]


def test_an_operator_that_leaves_has_killed_all_the_same(host: CliHost) -> None:
    session = new_session(host, "children 1")
    with Peer(host) as peer:
        peer.hello().send("1", "host.kill", {"id": session})
    until(lambda: session not in {row["session"] for row in host.rows()}, "the session to go")


def test_a_restart_ends_the_process_and_keeps_the_thread(host: CliHost) -> None:
    session = new_session(host, "hello", "again")
    before = row_of(host, session)["pid"]
    with talking(host, "spin", id=session) as chat, Peer(host).hello() as peer:
        until(lambda: row_of(host, session)["status"] == "running", "the turn to run")
        result = peer.ask("host.restart", {"id": session})["result"]
        assert result == {"session": session, "chat": session, "processes": 1}
        assert not is_running(before)
        assert chat.stdout is not None
        until_said(chat.stdout, "error: The agent's process was restarted by its operator")
        said = host.chat("pid", id=session).stdout
        after = row_of(host, session)["pid"]
        assert f"pid {after} after 3 turns" in said
        assert after != before


def test_one_chat_of_a_session_is_ended_and_its_siblings_go_on(host: CliHost) -> None:
    host.create_session("family")
    host.create_chat("family", "family-second")
    until(lambda: len(rows_of(host, "family")) == 2, "both workers")
    kept = row_of(host, "family")["pid"]
    with Peer(host).hello() as peer:
        killed = peer.ask("host.kill", {"id": "family-second"})["result"]
        assert killed == {"session": "family", "chat": "family-second", "processes": 1}
        assert [row["pid"] for row in rows_of(host, "family")] == [kept]
        assert "heard hello" in host.chat("hello", id="family").stdout
        host.create_chat("family", "family-third")
        until(lambda: len(rows_of(host, "family")) == 2, "both workers")
        killed = peer.ask("host.kill", {"id": "family"})["result"]
        assert killed == {"session": "family", "processes": 2}


def test_a_subagents_chat_is_ended_by_asking_its_agent(host: CliHost) -> None:
    host.create_session("parent")
    with talking(host, "subagent", id="parent") as chat, Peer(host).hello() as peer:
        assert chat.stdout is not None
        until_said(chat.stdout, "opened")
        (subagent,) = {one.id for one in host.chats("parent")} - {"parent"}
        code, message = failure(peer.ask("host.restart", {"id": subagent}))
        assert code == "unfit"
        assert "is a subagent's and runs in the process of the chat parent" in message
        killed = peer.ask("host.kill", {"id": subagent})["result"]
        assert killed == {"session": "parent", "chat": subagent, "processes": 0}
        assert row_of(host, "parent")["status"] == "running"
        until(
            lambda: "stopped " in peer.ask("host.logs", {"id": "parent"})["result"]["text"],
            "the agent to hear of it",
        )
        host.run("kill", "parent")


# -- logs ---------------------------------------------------------------------------------


def test_a_log_is_its_end_and_then_what_comes(host: CliHost) -> None:
    session = new_session(host, "print first", "print second é")
    with Peer(host) as peer:
        result = peer.hello().ask("host.logs", {"id": session})["result"]
        assert result["chat"] == session
        lines = result["text"].splitlines()
        assert [line.split(" ", 2)[2].strip() for line in lines] == ["first", "second é"]
        short = peer.ask("host.logs", {"id": session, "tailBytes": len(lines[1].encode()) + 2})
        assert short["result"]["text"] == lines[1] + "\n"

        followed = peer.ask("host.logs", {"id": session, "follow": True}, id="f")
        assert followed["result"] == {"chat": session, "text": ""}
        told = peer.hear()
        assert told["event"] == "host.log"
        assert told["payload"] == {"request": "f", "text": result["text"]}
        host.chat("print third", id=session)
        assert peer.hear()["payload"]["text"].endswith(" third\n")

        assert peer.ask("host.logs.stop", {"request": "f"}, id="s") in (
            {"id": "s", "ok": True, "result": {}},
            {"type": "event", "event": "host.logEnded", "payload": {"request": "f"}},
        )
        peer.hear()
        host.chat("print fourth", id=session)
        assert peer.ask("host.status", {}, id="last")["id"] == "last"


def test_a_followed_log_ends_with_its_chat(host: CliHost) -> None:
    session = new_session(host, "print first")
    with Peer(host) as peer:
        peer.hello().ask("host.logs", {"id": session, "follow": True}, id="f")
        host.run("kill", session)
        heard = []
        while not heard or heard[-1]["event"] != "host.logEnded":
            heard.append(peer.hear())
        assert heard[-1]["payload"] == {"request": "f"}


def test_requests_of_one_connection_are_bounded_at_one_time(host: CliHost) -> None:
    session = new_session(host, "hello")
    with Peer(host) as peer:
        peer.hello()
        for number in range(16):
            peer.ask("host.logs", {"id": session, "follow": True}, id=f"f{number}")
        assert failure(peer.ask("host.status", {}))[0] == "busy"
        # A following can be ended all the same.
        peer.send("s", "host.logs.stop", {"request": "f3"})
        heard = [peer.hear(), peer.hear()]
        assert {"id": "s", "ok": True, "result": {}} in heard
        until(lambda: peer.ask("host.status", {})["ok"], "room for another")


def _tree(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text()
        found += [int(child) for child in children.split()]
    return found
