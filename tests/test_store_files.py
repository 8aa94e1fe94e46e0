"""Sessions as files, copies of everything, looking through it: export, import, backup, verify."""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ahpd.supervisor.store.transfer import ImportRefused, export_lines, read_export
from ahpd.supervisor.store.upkeep import check_database
from cli_host import FIXTURE_AGENTS, OPERATED, CliHost, run
from test_store_sqlite import change

Json = dict[str, Any]


def operated(state_dir: Path) -> CliHost:
    return CliHost(state_dir, "--agent-path", FIXTURE_AGENTS, "--agent", OPERATED)


def said_in(host: CliHost, id: str, *lines: str) -> None:
    host.create_session(id, "operated")
    done = host.chat(*lines, id=id)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def file() -> Iterator[Path]:
    """A session with two chats, written by the program."""
    with tempfile.TemporaryDirectory(prefix="ahpd-", dir="/tmp") as folder:
        out = Path(folder, "one.jsonl")
        with operated(Path(folder, "home")) as host:
            said_in(host, "one", "hello", "and more", "once again")
            host.create_chat("one", "more")
            done = host.run("export", "on", "-o", out)
            assert done.returncode == 0, done.stderr
            assert done.stdout == f"Wrote session one with 3 turns to {out}.\n"
            assert out.stat().st_mode & 0o777 == 0o600
            again = host.run("export", "one", "-o", out)
            assert again.stderr == f"ahpd-supervisor: Cannot write {out}: File exists.\n"
            # To the standard output, and under any spelling of its URI.
            assert host.run("export", "operated:/one").stdout == out.read_text()
        yield out


@pytest.fixture
def exported(file: Path) -> list[Json]:
    """Its lines."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def lines_of(values: list[Json]) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def test_a_session_goes_out_and_comes_in_elsewhere(
    state_dir: Path, file: Path, exported: list[Json]
) -> None:
    assert [line["kind"] for line in exported] == [
        *("session", "chat", "turn", "turn", "turn", "chat", "end")
    ]
    assert exported[-1] == {"kind": "end", "lines": 7}
    elsewhere, offline = state_dir / "second", state_dir / "third"
    with operated(elsewhere) as host:
        done = host.run("import", file)
        assert done.stdout == "Took in session one: 2 chats, 3 turns.\n", done.stderr
        assert host.json("status")["sessions"] == 1
        again = host.run("import", file)
        assert (again.returncode, again.stderr) == (
            1,
            "ahpd-supervisor: There is one already.\n",
        )
        # It goes on where it was, and goes out as it came in.
        assert host.run("export", "one").stdout == file.read_text()
        done = host.chat("pid", id="one")
        assert "after 3 turns" in done.stdout
    with operated(elsewhere) as host:
        assert host.json("status")["sessions"] == 1
    # Without a host it is the same, and the host finds it.
    assert run("import", file, "--state-dir", offline).returncode == 0
    again = run("import", file, "--state-dir", offline)
    assert again.stderr == "ahpd-supervisor: There is one already.\n"
    assert run("export", "one", "--state-dir", offline).stdout == file.read_text()
    with operated(offline) as host:
        assert "after 3 turns" in host.chat("pid", id="one").stdout


def cut_short(lines: list[Json]) -> str:
    del lines[-1]
    return "it ends after line 6, before its own end: it was cut short"


def without_a_turn(lines: list[Json]) -> str:
    del lines[3]
    return "line 5: 1 turns of the chat before are missing"


def of_a_later_format(lines: list[Json]) -> str:
    lines[0]["format"] = 2
    return "line 1: it is of the format 2, and this program knows 1"


def another_programs(lines: list[Json]) -> str:
    lines[:] = [{"role": "user", "text": "hello"}]
    return "line 1: a file of `export` has something else here"


def with_a_folder_for_an_id(lines: list[Json]) -> str:
    lines[0]["spelling"] = "ahp-session:/../../etc"
    return "line 1: ahp-session:/../../etc is no URI of the session one"


def with_a_path_that_is_no_uri(lines: list[Json]) -> str:
    lines[0]["state"]["workingDirectories"] = ["../../etc"]
    return "line 1: workingDirectories: expected file:// URIs"


def with_a_turn_twice(lines: list[Json]) -> str:
    lines[3] = lines[2]
    return f"line 4: the turn {lines[2]['turn']['id']} was there before"


def with_a_turn_that_is_none(lines: list[Json]) -> str:
    lines[2]["turn"]["responseParts"] = [{"kind": "markdown", "content": 5}]
    return "line 3: turnsLoaded does not fit: "


def with_a_state_that_is_none(lines: list[Json]) -> str:
    lines[0]["state"]["lifecycle"] = "odd"
    return "line 1: it.state.lifecycle: expected one of creating, ready, failed"


def with_a_chat_of_nobody(lines: list[Json]) -> str:
    lines[5]["parent"] = "nobody"
    return "line 6: its parent 'nobody' does not stand before it"


def without_its_default_chat(lines: list[Json]) -> str:
    lines[0]["defaultChat"] = "other"
    return "line 7: the session's default chat is missing"


def with_more_behind(lines: list[Json]) -> str:
    lines.append(lines[2])
    return "line 8: something follows the end"


@pytest.mark.parametrize(
    "harm",
    [
        cut_short,
        without_a_turn,
        of_a_later_format,
        another_programs,
        with_a_folder_for_an_id,
        with_a_path_that_is_no_uri,
        with_a_turn_twice,
        with_a_turn_that_is_none,
        with_a_state_that_is_none,
        with_a_chat_of_nobody,
        without_its_default_chat,
        with_more_behind,
    ],
    ids=lambda harm: harm.__name__,
)
def test_a_file_that_is_not_as_it_was_written_is_refused_whole(
    exported: list[Json], harm: Callable[[list[Json]], str]
) -> None:
    assert list(export_lines(read_export(lines_of(exported))))
    said = harm(exported)
    with pytest.raises(ImportRefused) as refused:
        read_export(lines_of(exported))
    assert str(refused.value).startswith(said)


def test_what_is_no_file_of_ours_is_named_by_the_command(state_dir: Path) -> None:
    odd = state_dir / "odd.jsonl"
    odd.write_text('{"kind":"session"}\n')
    home = state_dir / "home"
    done = run("import", odd, "--state-dir", home)
    assert done.returncode == 1
    assert done.stderr == f"ahpd-supervisor: {odd}, line 1: it.format: is missing.\n"
    for path, why in ((state_dir / "none", "No such file or directory"), ("/dev/zero", "no file")):
        done = run("import", path, "--state-dir", home)
        assert (done.returncode, why in done.stderr) == (1, True), done.stderr


def test_a_backup_of_a_running_host_is_put_back_by_putting_it_there(state_dir: Path) -> None:
    home, copy = state_dir / "home", state_dir / "copy.db"
    with operated(home) as host:
        said_in(host, "one", "hello")
        done = host.run("backup", copy)
        assert done.stdout == f"Copied to {copy}: {copy.stat().st_size} bytes.\n", done.stderr
        again = host.run("backup", copy)
        assert again.stderr == f"ahpd-supervisor: Cannot make {copy}: File exists.\n"
        said_in(host, "two", "hello")
        assert host.run("verify").stdout == "Everything that is kept can be read.\n"
    assert check_database(copy) == []
    restored = state_dir / "restored"
    restored.mkdir(mode=0o700)
    copy.rename(restored / "state.db")
    with operated(restored) as host:
        assert host.json("status")["sessions"] == 1
        assert "after 1 turns" in host.chat("pid", id="one").stdout
    # Without a host as well.
    done = run("backup", state_dir / "later.db", "--state-dir", restored)
    assert done.returncode == 0, done.stderr
    assert check_database(state_dir / "later.db") == []


def test_verify_says_what_cannot_be_read(state_dir: Path) -> None:
    home = state_dir / "home"
    done = run("verify", "--state-dir", home)
    assert (done.returncode, done.stderr) == (
        2,
        f"ahpd-supervisor: Nothing is kept in {home}: there is no state.db.\n",
    )
    with operated(home) as host:
        said_in(host, "one", "hello")
    change(home / "state.db", "UPDATE turns SET body = x'7b'")
    done = run("verify", "--state-dir", home)
    assert done.returncode == 1
    assert done.stdout.startswith("The chat one cannot be read from disk: ")
    done = run("export", "one", "--state-dir", home)
    assert (done.returncode, "The chat one cannot be read" in done.stderr) == (1, True)
    done = run("export", "nobody", "--state-dir", home)
    assert done.stderr == "ahpd-supervisor: There is no session 'nobody'.\n"


def test_a_database_of_a_later_version_does_not_start_and_is_left_as_it_is(
    state_dir: Path,
) -> None:
    with operated(state_dir):
        pass
    database = state_dir / "state.db"
    change(database, "PRAGMA user_version = 99")
    before = database.read_bytes()
    done = run("start", "--port", "0", "--state-dir", state_dir)
    assert done.returncode == 2
    assert done.stderr.startswith(f"ahpd-supervisor: {database} was written by a later version ")
    assert done.stderr.count("\n") == 1
    assert database.read_bytes() == before
