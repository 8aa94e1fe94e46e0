"""Who is let in: the token, the origin, and what a host may be exposed to. No sockets here."""

import hmac
import ipaddress
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

import structlog
from attrs import field, frozen

from .state_dir import TOKEN_FILE

log = structlog.get_logger()

#: Random bytes in a token that the host makes.
TOKEN_BYTES = 32
#: A token file is read no further than this.
MAX_TOKEN_FILE_BYTES = 4096

#: The one web origin that may connect unasked: VS Code's window. (What runs outside
#: of a browser sends no origin; another site's page always sends its own.)
VSCODE_ORIGIN = "vscode-file://vscode-app"

# `token` is ours, `tkn` VS Code's spelling of the same.
_QUERY_KEYS = ("token", "tkn")
_TOKEN = re.compile(r"[\x21-\x7e]+")


class TokenError(Exception):
    """The token cannot be made, read or trusted; the message is one sentence for a person."""


@frozen(kw_only=True)
class Refusal:
    """Why a handshake is refused: the HTTP status, a sentence for the client, one for the log."""

    status: int
    sentence: str
    hint: str


def _origins(values: Iterable[str]) -> frozenset[str]:
    return frozenset({VSCODE_ORIGIN} | {_normal_origin(value) for value in values})


@frozen(kw_only=True)
class Admission:
    """The rule that each handshake is held against.

    Attributes:
        token: What a client must present; None lets everyone in (`--no-token`).
        allowed_origins: Origins beside `VSCODE_ORIGIN` (`--allow-origin`), each as
            `scheme://host[:port]`.
    """

    token: str | None = field(repr=False)
    allowed_origins: frozenset[str] = field(default=(), converter=_origins)

    def refusal(self, target: str, headers: Iterable[tuple[bytes, bytes]]) -> Refusal | None:
        """Why this handshake is refused; None lets it in.

        Args:
            target: the request's target as it came: a path, with its query.
            headers: its headers, names in lower case.
        """
        fields = list(headers)
        # A foreign page is told nothing about its token.
        for name, value in fields:
            origin = value.decode("latin-1")
            if name == b"origin" and _normal_origin(origin) not in self.allowed_origins:
                return Refusal(
                    status=403,
                    sentence="This host does not let pages of this origin in.",
                    hint=f"origin {origin} is not let in; to let it in: --allow-origin {origin}",
                )
        if self.token is None:
            return None
        presented = list(_presented_tokens(target, fields))
        if any(_same(token, self.token) for token in presented):
            return None
        return Refusal(
            status=401,
            sentence="A token is needed: ?token=… in the address, or Authorization: Bearer.",
            hint="wrong token" if presented else "no token",
        )


def ensure_token(state_dir: Path) -> str:
    """The token of this state directory, made on the first call, kept in its file `token` (0600).

    A file that others may read is closed to them, with a warning; one that
    others may write, or that is somebody else's, is not trusted.

    Raises:
        TokenError: it cannot be made or read, or must not be trusted.
    """
    path = state_dir / TOKEN_FILE
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.path.lexists(path):
            _write_new(path, secrets.token_urlsafe(TOKEN_BYTES))
    except OSError as error:
        raise TokenError(f"cannot make the token {path}: {error.strerror or error}") from None
    try:
        # Without O_NONBLOCK a FIFO in its place would be waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            _check_mode(path, descriptor)
            return _token_in(path, file.read(MAX_TOKEN_FILE_BYTES + 1))
    except OSError as error:
        raise _unreadable(path, error) from None


def read_token(path: Path) -> str:
    """The token in a file of the user's (`--token-file`), which may be a pipe and have any mode.

    Raises:
        TokenError: it cannot be read, or does not hold one word of printable ASCII.
    """
    try:
        with open(path, "rb") as file:
            return _token_in(path, file.read(MAX_TOKEN_FILE_BYTES + 1))
    except OSError as error:
        raise _unreadable(path, error) from None


def checked_token(token: str) -> str:
    """`token` itself.

    Raises:
        TokenError: it is empty, or has a character that no address can carry.
    """
    if not _TOKEN.fullmatch(token) or len(token) > MAX_TOKEN_FILE_BYTES:
        raise TokenError("a token is one word of printable ASCII characters")
    return token


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what is bound to `host`, an address or `localhost`.

    Any other name may mean any address, so it is not.
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def exposure_fault(
    *, host: str, has_token: bool, tls_cert: bool, tls_key: bool, insecure: bool
) -> str | None:
    """Why a host must not listen like this, as one sentence; None if it may."""
    if tls_cert != tls_key:
        given, missing = ("--tls-cert", "--tls-key") if tls_cert else ("--tls-key", "--tls-cert")
        return f"{given} needs {missing} beside it."
    if tls_cert and insecure:
        return "--insecure and --tls-cert contradict each other: leave one out."
    if is_loopback(host):
        return None
    if not has_token:
        return f"--no-token works on a loopback address only, and {host} is none."
    if not tls_cert and not insecure:
        return (
            f"{host} can be reached from other machines: give --tls-cert and --tls-key, or "
            "--insecure to send everything, the token too, in the clear."
        )
    return None


def exposure_warnings(*, host: str, has_token: bool, tls: bool) -> list[str]:
    """What a person should know about a way to listen that is allowed, a sentence each."""
    warnings = []
    if not has_token:
        warnings.append("No token: whoever can connect to this machine's loopback is let in.")
    if not is_loopback(host) and not tls:
        warnings.append(f"No TLS: on the way to {host} everything can be read, the token too.")
    return warnings


def _presented_tokens(target: str, headers: list[tuple[bytes, bytes]]) -> Iterator[str]:
    _, _, query = target.partition("?")
    for part in query.partition("#")[0].split("&"):
        key, equals, value = part.partition("=")
        if equals and key in _QUERY_KEYS:
            yield unquote(value)
    for name, raw in headers:
        if name == b"authorization":
            scheme, _, value = raw.decode("latin-1").strip().partition(" ")
            if scheme.lower() == "bearer":
                yield value.strip()


def _same(presented: str, token: str) -> bool:
    # Constant in time over the content; what differs in length tells only the length.
    return hmac.compare_digest(presented.encode("utf-8", "surrogatepass"), token.encode())


def _normal_origin(origin: str) -> str:
    return origin.strip().rstrip("/").lower()


def _write_new(path: Path, token: str) -> None:
    """Makes the file whole or not at all; one that another start made first is left alone."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(descriptor)
        os.link(temporary, path)
    except FileExistsError:
        return
    finally:
        os.unlink(temporary)


def _check_mode(path: Path, descriptor: int) -> None:
    status = os.fstat(descriptor)
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        raise TokenError(f"{path} is no regular file")
    if status.st_uid != os.geteuid():
        raise TokenError(f"{path} belongs to another user: remove it, and a new token is made")
    if mode & 0o022:
        raise TokenError(
            f"{path} can be written by others (mode {mode:04o}), who may know the token: "
            "remove it, and a new one is made"
        )
    if mode & 0o055:
        log.warning(
            "the token could be read by others; now it cannot, but consider a new one",
            file=str(path),
            mode=f"{mode:04o}",
        )
        os.fchmod(descriptor, 0o600)


def _token_in(path: Path, data: bytes) -> str:
    try:
        return checked_token(data.decode("ascii").strip())
    except (UnicodeDecodeError, TokenError):
        raise TokenError(
            f"{path} holds no token: one word of printable ASCII characters is needed"
        ) from None


def _unreadable(path: Path, error: OSError) -> TokenError:
    return TokenError(f"cannot read the token {path}: {error.strerror or error}")
