"""Admission: the token and its file, origins, and what a host may be exposed to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ahpd.supervisor.admission import (
    Admission,
    TokenError,
    checked_token,
    ensure_token,
    exposure_fault,
    exposure_warnings,
    is_loopback,
    read_token,
)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_token_is_made_once_and_is_for_its_owner_alone(state_dir: Path) -> None:
    folder = state_dir / "made" / "on demand"
    old = os.umask(0)
    try:
        token = ensure_token(folder)
    finally:
        os.umask(old)
    assert len(token) >= 32
    assert mode_of(folder) == 0o700
    assert mode_of(folder / "token") == 0o600
    assert [path.name for path in folder.iterdir()] == ["token"]
    assert ensure_token(folder) == token
    assert ensure_token(state_dir / "another") != token


def test_starts_at_the_same_time_agree_on_one_token(state_dir: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from ahpd.supervisor.admission import ensure_token;"
        "sys.stdin.readline(); print(ensure_token(Path(sys.argv[1])))"
    )
    starts = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(state_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    said = {start.communicate("go\n", timeout=60)[0] for start in starts}
    assert len(said) == 1
    assert [path.name for path in state_dir.iterdir()] == ["token"]


def test_a_token_that_others_could_read_is_closed_to_them(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = ensure_token(state_dir)
    (state_dir / "token").chmod(0o644)
    assert ensure_token(state_dir) == token
    assert mode_of(state_dir / "token") == 0o600
    printed = capsys.readouterr()
    said = printed.out + printed.err
    assert "could be read by others" in said
    assert token not in said


def test_a_token_that_others_could_write_is_not_trusted(state_dir: Path) -> None:
    ensure_token(state_dir)
    (state_dir / "token").chmod(0o660)
    with pytest.raises(TokenError, match="can be written by others"):
        ensure_token(state_dir)


@pytest.mark.parametrize("content", [b"", b"\n", b"two words\n", b"caf\xc3\xa9", b"x" * 5000])
def test_a_file_that_holds_no_token_is_one_sentence(state_dir: Path, content: bytes) -> None:
    path = state_dir / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    for read in (lambda: ensure_token(state_dir), lambda: read_token(path)):
        with pytest.raises(TokenError) as error:
            read()
        assert str(error.value).startswith(str(path))
        assert "\n" not in str(error.value)


def test_what_is_no_file_in_the_tokens_place_is_one_sentence(state_dir: Path) -> None:
    path = state_dir / "token"
    path.mkdir()
    with pytest.raises(TokenError):
        ensure_token(state_dir)
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(TokenError, match="no regular file"):
        ensure_token(state_dir)
    path.unlink()
    path.symlink_to(state_dir / "nowhere")
    with pytest.raises(TokenError, match="cannot read the token"):
        ensure_token(state_dir)


def test_a_state_directory_that_cannot_be_made_is_one_sentence(state_dir: Path) -> None:
    (state_dir / "file").write_text("in the way")
    with pytest.raises(TokenError, match="cannot make the token"):
        ensure_token(state_dir / "file" / "below")


def test_a_users_own_token_file_may_have_any_mode_and_be_a_pipe(state_dir: Path) -> None:
    path = state_dir / "secret"
    path.write_text("  my-token\n")
    path.chmod(0o664)
    assert read_token(path) == "my-token"
    assert mode_of(path) == 0o664
    reading, writing = os.pipe()
    os.write(writing, b"from-a-pipe\n")
    os.close(writing)
    assert read_token(Path(f"/dev/fd/{reading}")) == "from-a-pipe"
    os.close(reading)


@pytest.mark.parametrize("token", ["", "two words", "tab\t", "caf\xe9", "new\nline"])
def test_a_token_that_no_address_carries_is_refused(token: str) -> None:
    with pytest.raises(TokenError):
        checked_token(token)


# Handshakes


def status(target: str, *headers: tuple[bytes, bytes], token: str | None = "s3cret+/=") -> int:
    admission = Admission(token=token, allowed_origins=["HTTPS://Example.com/"])
    refusal = admission.refusal(target, headers)
    return 101 if refusal is None else refusal.status


@pytest.mark.parametrize(
    "target",
    [
        "/?token=s3cret%2B%2F%3D",
        "/?tkn=s3cret%2b%2f%3d",
        "/?token=s3cret+/=",
        "/?token=wrong&tkn=s3cret+/=",
        "/?a&&=&token=s3cret+/=#fragment",
    ],
)
def test_either_spelling_of_the_token_is_taken(target: str) -> None:
    assert status(target) == 101


@pytest.mark.parametrize(
    "target",
    ["/", "/?", "/?token", "/?token=", "/?TOKEN=s3cret+/=", "/?token=s3cret%00", "/?token=%ff%fe"],
)
def test_anything_else_is_401(target: str) -> None:
    assert status(target) == 401


def test_a_bearer_is_taken_in_any_case_and_nothing_else_is() -> None:
    assert status("/", (b"authorization", b"bEaReR  s3cret+/= ")) == 101
    assert status("/", (b"authorization", b"Basic s3cret+/=")) == 401
    assert status("/", (b"authorization", b"s3cret+/=")) == 401
    assert status("/", (b"authorization", b"Bearer \xff")) == 401


def test_without_a_token_everyone_of_a_known_origin_is_let_in() -> None:
    assert status("/", token=None) == 101
    assert status("/", (b"origin", b"https://evil.example"), token=None) == 403


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (b"vscode-file://vscode-app", 101),
        (b"https://example.com", 101),
        (b"https://example.com:8443", 403),
        (b"http://example.com", 403),
        (b"https://example.com.evil.example", 403),
        (b"http://127.0.0.1:9187", 403),
        (b"null", 403),
        (b"", 403),
        (b"\xff", 403),
    ],
)
def test_an_origin_is_let_in_only_as_a_whole(origin: bytes, expected: int) -> None:
    assert status("/?tkn=s3cret+/=", (b"origin", origin)) == expected


def test_a_foreign_origin_beside_a_known_one_is_refused_and_named_with_its_option() -> None:
    admission = Admission(token=None)
    headers = [(b"origin", b"vscode-file://vscode-app"), (b"origin", b"https://evil.example")]
    refusal = admission.refusal("/", headers)
    assert refusal is not None
    assert "--allow-origin https://evil.example" in refusal.hint
    assert "evil" not in refusal.sentence


def test_the_token_is_not_in_what_is_printed_of_an_admission() -> None:
    assert "s3cret" not in repr(Admission(token="s3cret"))


# Exposure


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("localhost.example.com", False),
        ("", False),
    ],
)
def test_what_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("host", "options", "said"),
    [
        ("127.0.0.1", "token", None),
        ("127.0.0.1", "", None),
        ("127.0.0.1", "token cert key", None),
        ("0.0.0.0", "token cert key", None),
        ("0.0.0.0", "token insecure", None),
        ("0.0.0.0", "token", "--insecure"),
        ("0.0.0.0", "insecure", "--no-token works on a loopback address only"),
        ("0.0.0.0", "cert key", "--no-token works on a loopback address only"),
        ("127.0.0.1", "token cert", "--tls-cert needs --tls-key"),
        ("127.0.0.1", "token key", "--tls-key needs --tls-cert"),
        ("0.0.0.0", "token cert key insecure", "contradict"),
    ],
)
def test_a_host_is_exposed_only_on_purpose(host: str, options: str, said: str | None) -> None:
    given = options.split()
    fault = exposure_fault(
        host=host,
        has_token="token" in given,
        tls_cert="cert" in given,
        tls_key="key" in given,
        insecure="insecure" in given,
    )
    assert (fault is None) if said is None else (fault is not None and said in fault)


def test_what_is_allowed_but_open_is_warned_of() -> None:
    assert exposure_warnings(host="127.0.0.1", has_token=True, tls=False) == []
    assert "No token" in exposure_warnings(host="127.0.0.1", has_token=False, tls=False)[0]
    assert "No TLS" in exposure_warnings(host="0.0.0.0", has_token=True, tls=False)[0]
