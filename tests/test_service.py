"""The service: how a host starts, what it refuses to start with, and how it stops."""

import json
import os
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path
from shutil import which

import pytest

from cli_host import FIXTURE_AGENTS, OPERATED, PROGRAM, CliHost, is_running, run, talking, until

#: A graceful stop, and what a loaded machine takes beside it.
STOP_LIMIT_S = 10


def operated(state_dir: Path, *arguments: str | Path) -> CliHost:
    """A host with the agent that does what it is told."""
    return CliHost(state_dir, "--agent-path", FIXTURE_AGENTS, "--agent", OPERATED, *arguments)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def pids_of(host: CliHost) -> list[int]:
    """The host's keeper and workers."""
    told = host.json("status")
    return [told["keeper_pid"], *(row["pid"] for row in host.json("ps"))]


def test_start_prints_one_line_of_json_and_what_it_keeps_is_its_owners_alone(
    state_dir: Path,
) -> None:
    home = state_dir / "made" / "by the start"
    with operated(home) as host:
        assert host.told.keys() == {"event", "pid", "ahp", "chats"}
        assert host.told["chats"] == host.ahp.replace("/?", "/chats?")
        addresses = f'"ahp":"{host.ahp}","chats":"{host.told["chats"]}"'
        assert host.line == f'{{"event":"listening","pid":{host.pid},{addresses}}}\n'
        assert host.pid == host.process.pid
        token = (home / "token").read_text().strip()
        assert host.ahp.startswith("ws://127.0.0.1:")
        assert host.ahp.endswith(f"/?token={token}")
        assert mode(home) == 0o700
        assert [mode(home / name) for name in ("token", "control.sock", "supervisor.json")] == [
            0o600
        ] * 3
        said = json.loads((home / "supervisor.json").read_text())
        assert said == {"pid": host.pid, "ahp": host.ahp.partition("?")[0]}
        host.process.terminate()
        assert host.wait(STOP_LIMIT_S) == 0
        assert host.process.stdout is not None
        assert host.process.stdout.read() == ""
    assert not (home / "control.sock").exists()
    assert not (home / "supervisor.json").exists()


def test_the_token_is_the_same_on_the_next_start(state_dir: Path) -> None:
    addresses = set()
    for _ in range(2):
        with operated(state_dir) as host:
            addresses.add(host.ahp.partition("?")[2])
    assert len(addresses) == 1


def test_a_second_supervisor_on_a_state_directory_names_the_first(state_dir: Path) -> None:
    with operated(state_dir) as host:
        done = run("start", "--port", "0", "--state-dir", state_dir)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr == (
            f"ahpd-supervisor: the state directory {state_dir} is in use by the supervisor of "
            f"process {host.pid}, which listens at {host.ahp.partition('?')[0]}\n"
        )
        assert host.json("status")["pid"] == host.pid


def test_a_killed_hosts_state_directory_can_be_used_again(state_dir: Path) -> None:
    with operated(state_dir) as host:
        host.process.kill()
        host.process.wait()
        assert (state_dir / "control.sock").exists()
        assert host.run("ps").returncode == 3
    with operated(state_dir) as host:
        assert host.json("status")["pid"] == host.pid


def test_a_port_in_use_is_one_sentence(state_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("start", "--port", str(port), "--state-dir", state_dir)
    assert done.returncode == 2
    assert done.stdout == ""
    assert (
        done.stderr == f"ahpd-supervisor: port {port} on 127.0.0.1 is in use by another program\n"
    )


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ("[agents.a]\nfactory = \n", "{file}, line 2"),
        ("[agents.a]\nfactory = 'm:f'\nfactroy = 'm:f'\n", "{file}, line 3: agents.a.factroy"),
        ("[bounds]\nmax_sessions = 0\n", "{file}, line 2: bounds.max_sessions"),
        ("[host]\nport = 'x'\n", "{file}, line 2: host.port"),
    ],
)
def test_a_broken_configuration_is_one_sentence_with_its_line(
    state_dir: Path, toml: str, sentence: str
) -> None:
    file = state_dir / "host.toml"
    file.write_text(toml)
    done = run("start", "--state-dir", state_dir / "state", "--config", file)
    assert done.returncode == 2
    assert done.stderr.startswith("ahpd-supervisor: " + sentence.format(file=file))
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--config", "/nowhere/host.toml"], "cannot read /nowhere/host.toml: No such file"),
        (["--agent", "echo"], "--agent echo: is not spelled NAME=MODULE:FACTORY"),
        (["--agent-option", "nobody.x=1"], "there is no agent 'nobody'"),
        (["--token", "two words"], "a token is one word"),
        (["--token-file", "/nowhere/token"], "cannot read the token /nowhere/token"),
        (["--token", "a", "--no-token"], "Only one of --token, --token-file and --no-token"),
        (["--host", "0.0.0.0"], "0.0.0.0 can be reached from other machines"),
        (["--host", "0.0.0.0", "--no-token", "--insecure"], "--no-token works on a loopback"),
        (["--tls-cert", "a.pem"], "--tls-cert needs --tls-key"),
        (["--tls-cert", "/no.pem", "--tls-key", "/no.key"], "cannot read /no.pem or /no.key"),
        (["--host", "no.such.host.invalid", "--insecure"], "cannot listen on no.such.host"),
        (["--port", "70000"], "Invalid value for '--port'"),
        (["--colour"], "No such option"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(
    state_dir: Path, arguments: list[str], sentence: str
) -> None:
    done = run("start", "--port", "0", "--state-dir", state_dir, *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_state_directory_that_users_share_is_refused(state_dir: Path) -> None:
    shared = state_dir / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    done = run("start", "--port", "0", "--state-dir", shared)
    assert done.returncode == 2
    assert f"{shared} is a folder that users share" in done.stderr
    assert mode(shared) == 0o1777


def test_a_state_directory_that_others_could_read_is_closed_to_them(state_dir: Path) -> None:
    state_dir.chmod(0o755)
    with operated(state_dir):
        assert mode(state_dir) == 0o700


def test_a_state_directory_that_is_a_file_is_refused(state_dir: Path) -> None:
    (state_dir / "file").touch()
    done = run("start", "--port", "0", "--state-dir", state_dir / "file")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_a_state_directory_that_takes_nothing_is_refused(state_dir: Path) -> None:
    # Every write there is refused, as on a disk that is full.
    (state_dir / "lock").symlink_to("/dev/full")
    done = run("start", "--port", "0", "--state-dir", state_dir)
    assert done.returncode == 2
    assert done.stderr.startswith(f"ahpd-supervisor: cannot use the state directory {state_dir}: ")
    assert done.stderr.count("\n") == 1


def test_a_socket_is_reached_however_long_its_folders_name_is(state_dir: Path) -> None:
    deep = state_dir / ("d" * 120) / ("e" * 120)
    with operated(deep) as host:
        assert host.json("status")["pid"] == host.pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_turns_connections_and_every_process(
    state_dir: Path, number: signal.Signals
) -> None:
    with operated(state_dir) as host, talking(host, "sleep") as chat:
        until(lambda: [row for row in host.rows() if row["status"] == "running"], "a turn")
        pids = pids_of(host)
        host.process.send_signal(number)
        assert host.wait(STOP_LIMIT_S) == 0
        assert [pid for pid in pids if is_running(pid)] == []
        said, _ = chat.communicate(timeout=STOP_LIMIT_S)
        assert "error: The host was stopped while this turn ran." in said
        assert "The host closed the connection (1001)" in said
        assert chat.returncode == 1


def test_a_worker_that_hears_nothing_does_not_keep_the_host(state_dir: Path) -> None:
    with operated(state_dir) as host, talking(host, "spin"):
        until(lambda: [row for row in host.rows() if row["status"] == "running"], "a turn")
        pids = pids_of(host)
        host.process.terminate()
        assert host.wait(STOP_LIMIT_S) == 0
        assert [pid for pid in pids if is_running(pid)] == []


def test_a_second_signal_hurries(state_dir: Path) -> None:
    config = state_dir / "host.toml"
    config.write_text("[bounds]\nkill_grace_s = 60\nstop_timeout_s = 60\n")
    with operated(state_dir, "--config", config) as host, talking(host, "spin"):
        until(lambda: [row for row in host.rows() if row["status"] == "running"], "a turn")
        pids = pids_of(host)
        host.process.terminate()
        until(lambda: "stopping" in host.log(), "the first signal to be heard")
        host.process.terminate()
        assert host.wait(STOP_LIMIT_S) == 0
        assert [pid for pid in pids if is_running(pid)] == []


def test_graces_longer_than_the_stop_limit_give_way_to_it(state_dir: Path) -> None:
    config = state_dir / "host.toml"
    config.write_text("[bounds]\nkill_grace_s = 60\nstop_timeout_s = 2\n")
    with operated(state_dir, "--config", config) as host, talking(host, "spin"):
        until(lambda: [row for row in host.rows() if row["status"] == "running"], "a turn")
        pids = pids_of(host)
        began_s = time.monotonic()
        host.process.terminate()
        assert host.wait(STOP_LIMIT_S) == 0
        assert time.monotonic() - began_s < 6
        assert [pid for pid in pids if is_running(pid)] == []


def test_what_is_given_to_start_goes_before_its_configuration(state_dir: Path) -> None:
    config = state_dir / "host.toml"
    config.write_text(
        f"[host]\nport = 1\nno_token = true\nagent_path = ['{FIXTURE_AGENTS}']\n"
        "[agents.mine]\nfactory = 'fixture_operated:create'\n"
    )
    with CliHost(state_dir / "state", "--config", config, "--token", "word") as host:
        assert host.ahp.endswith("/?token=word")
        assert [agent["name"] for agent in host.json("status")["agents"]] == ["mine"]
        assert "heard hello" in host.chat("hello", agent="mine").stdout


def test_without_a_token_operators_still_have_one(state_dir: Path) -> None:
    with operated(state_dir, "--no-token") as host:
        assert "token" not in host.ahp
        assert "No token" in host.log()
        assert "heard hello" in host.chat("hello").stdout
        (state_dir / "token").write_text("another\n")
        assert "The token is not this host's." in host.run("ps").stderr


def test_a_host_with_a_certificate_is_talked_to_by_its_own_commands(state_dir: Path) -> None:
    if which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    cert, key = state_dir / "cert.pem", state_dir / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2"),
            *("-subj", "/CN=somewhere.else", "-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
        timeout=30,
    )
    with operated(state_dir / "s", "--tls-cert", cert, "--tls-key", key) as host:
        assert host.ahp.startswith("wss://127.0.0.1:")
        assert "heard hello" in host.chat("hello").stdout
        # Whoever is given the address alone goes by the system's certificates.
        done = run("chat", "--url", host.ahp, input="hello\n")
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1


def test_started_for_a_person_it_says_what_to_do_next(state_dir: Path) -> None:
    process = subprocess.Popen(
        [PROGRAM, "start", "--port", "0", "--state-dir", str(state_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        until(lambda: (state_dir / "supervisor.json").exists(), "the host to listen")
        process.terminate()
        said, _ = process.communicate(timeout=STOP_LIMIT_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    token = (state_dir / "token").read_text().strip()
    assert f"/?token={token}\n" in said
    assert "agents  echo, notes" in said
    assert f"chat --state-dir {state_dir} --agent notes" in said


def test_a_host_whose_output_nobody_reads_serves_on(state_dir: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [PROGRAM, "start", "--port", "0", "--state-dir", str(state_dir)],
        stdout=writing,
        stderr=writing,
        start_new_session=True,
    )
    os.close(writing)
    try:
        until(lambda: run("status", "--state-dir", state_dir).returncode == 0, "the host to serve")
        assert run("stop", "--state-dir", state_dir).returncode == 0
        assert process.wait(STOP_LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()
