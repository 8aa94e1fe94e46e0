"""The control socket's wire: what the command line asks a running host, with each shape.

Frames are those of `frames`, one a line. A client's first frame is `host.hello`
with the token of the state directory; anything else first, or a wrong token,
ends the connection. Requests are answered as they finish, so a reply may
overtake another. The wire's version stands in the answer to `host.hello`: the
major is the promise, a minor only adds optional fields and requests.
"""

from collections.abc import Mapping
from typing import Any, Literal

from attrs import field, frozen

from .shapes import ShapeError, structure

CONTROL_WIRE_VERSION = "1.1"

#: The socket's name in the state directory.
CONTROL_SOCKET = "control.sock"

#: A client's frame: an id or a token is all that it holds.
MAX_CONTROL_REQUEST_BYTES = 64 * 1024

#: A host's frame: the rows of some thousand workers, or a piece of a log.
MAX_CONTROL_REPLY_BYTES = 16 * 1024 * 1024

#: What `host.logs` gives of the end of a log unless it is told otherwise, and at most.
LOG_TAIL_BYTES = 64 * 1024
MAX_LOG_TAIL_BYTES = 512 * 1024

WorkerStatus = Literal["starting", "idle", "running", "needs-you", "error", "ending"]
"""What a worker is doing. `needs-you`: a person has to answer; `error`: the last turn failed;
`ending`: it was replaced or told to go, and has not gone yet."""


# -- what is asked --------------------------------------------------------------------


@frozen(kw_only=True)
class HostHello:
    """Opens the connection."""

    token: str = field(repr=False)


@frozen(kw_only=True)
class Nothing:
    """No payload, or no result."""


@frozen(kw_only=True)
class Named:
    """A session or chat: an id, a URI in any spelling, or the unambiguous beginning of an id."""

    id: str


@frozen(kw_only=True)
class Logs:
    """Asks for the end of a chat's log; a session's is its default chat's.

    An agent's name asks for what it printed while it was asked without a conversation.
    """

    id: str
    follow: bool = False
    """True: nothing in the reply; the end, and then each new piece, come as `host.log` events
    until `host.logs.stop`, the end of the connection, or `host.logEnded`."""
    tail_bytes: int = LOG_TAIL_BYTES


@frozen(kw_only=True)
class StopLogs:
    """Ends a following."""

    request: str
    """The id of the `host.logs` request."""


@frozen(kw_only=True)
class FileNamed:
    """A file on the host's machine, by its absolute path."""

    path: str


# -- what is answered -----------------------------------------------------------------


@frozen(kw_only=True)
class HelloAnswer:
    wire: str
    version: str
    """The host's own."""
    pid: int


@frozen(kw_only=True)
class AgentStatus:
    name: str
    fault: str | None = None
    """Why it cannot be used, when it cannot."""


@frozen(kw_only=True)
class Status:
    version: str
    pid: int
    keeper_pid: int | None = None
    """None for the moment between a keeper's death and the next one."""
    ahp: str
    """The WebSocket address, without the token."""
    uptime_s: float
    memory_bytes: int
    """Of the supervisor's own process."""
    agents: list[AgentStatus]
    sessions: int
    chats: int
    connections: int
    workers: int


@frozen(kw_only=True)
class Access:
    """All that a client on this machine needs to connect."""

    ahp: str = field(repr=False)
    """The WebSocket address with its token."""
    tls_cert: str | None = None
    """The path of the host's certificate, which a client may trust for this address."""


@frozen(kw_only=True)
class WorkerRow:
    """One worker."""

    session: str | None = None
    """The session's id; None for a catalogue worker, and so is `chat`."""
    chat: str | None = None
    agent: str
    title: str
    status: WorkerStatus
    pid: int | None = None
    """None until it was started."""
    memory_bytes: int
    """Of its whole tree, as `cpu_s`."""
    cpu_s: float
    age_s: float
    waits_on: str | None = None
    """What a person is asked."""


@frozen(kw_only=True)
class Processes:
    workers: list[WorkerRow]


@frozen(kw_only=True)
class Killed:
    """The session or chat is gone, and nothing of it runs."""

    session: str
    chat: str | None = None
    """None: the whole session was ended."""
    processes: int


@frozen(kw_only=True)
class LogTail:
    chat: str | None = None
    """The chat's id; None for an agent's."""
    text: str


@frozen(kw_only=True)
class Restarted:
    """The process has ended; the next message starts another one."""

    session: str
    chat: str
    processes: int


@frozen(kw_only=True)
class Imported:
    """A session is there that was not."""

    session: str
    chats: int
    turns: int


#: Request name to the shape of its payload and of its result.
CONTROL_REQUESTS: Mapping[str, tuple[type, type]] = {
    "host.hello": (HostHello, HelloAnswer),
    "host.status": (Nothing, Status),
    "host.access": (Nothing, Access),
    "host.processes": (Nothing, Processes),
    "host.kill": (Named, Killed),
    "host.logs": (Logs, LogTail),
    "host.logs.stop": (StopLogs, Nothing),
    "host.restart": (Named, Restarted),
    "host.backup": (FileNamed, Nothing),
    "host.import": (FileNamed, Imported),
    "host.stop": (Nothing, Nothing),
}


# -- what is told ---------------------------------------------------------------------


@frozen(kw_only=True)
class LogPiece:
    """A piece of a followed log, as long as it comes: not always whole lines."""

    request: str
    text: str


@frozen(kw_only=True)
class LogEnded:
    """The chat of a followed log is gone; nothing more comes."""

    request: str


#: Event name to the shape of its payload.
CONTROL_EVENTS: Mapping[str, type] = {
    "host.log": LogPiece,
    "host.logEnded": LogEnded,
}


# -- why not --------------------------------------------------------------------------

FAILURE_REFUSED = "refused"
"""Not let in: another user, a worker, no hello, a wrong token. The connection ends."""
FAILURE_BUSY = "busy"
"""Too many connections, or too many requests of one connection at one time."""
FAILURE_BAD_REQUEST = "bad-request"
FAILURE_UNKNOWN_REQUEST = "unknown-request"
FAILURE_NOT_FOUND = "not-found"
FAILURE_AMBIGUOUS = "ambiguous"
"""The beginning of more than one id; the message lists them."""
FAILURE_UNFIT = "unfit"
"""The thing that was named cannot be treated so; the message says why."""
FAILURE_TIMEOUT = "timeout"
"""It was begun, and is not over after all the time that it may take."""
FAILURE_INTERNAL = "internal"


def read_payload(kind: str, payload: Any) -> Any:
    """The payload of a request, in its shape.

    Raises:
        KeyError: there is no such request.
        ShapeError: it has another shape, or a number out of its range.
    """
    given: Any = structure(payload, CONTROL_REQUESTS[kind][0], at="payload")
    if isinstance(given, Logs) and not 0 < given.tail_bytes <= MAX_LOG_TAIL_BYTES:
        raise ShapeError(f"payload.tailBytes: expected 1 to {MAX_LOG_TAIL_BYTES}")
    return given
