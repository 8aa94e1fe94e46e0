"""Every bound and timing of the host, each with its name, unit and default, in one place.

Names end in their unit: `_bytes` (UTF-8 bytes on the wire or on disk), `_s`,
`_ms`, `_days`, or count what they name. Each is a key of `[bounds]` in the
configuration file (see `configuration`).
"""

import math
from typing import Any

from attrs import Attribute, field, frozen

MIB = 1024 * 1024


def _positive(_: object, attribute: "Attribute[Any]", value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{attribute.name} must be greater than 0")


def _not_negative(_: object, attribute: "Attribute[Any]", value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{attribute.name} must not be less than 0")


def _count(default: int) -> int:
    value: int = field(default=default, validator=_positive)
    return value


def _time(default: float, *, zero_is_off: bool = False) -> float:
    value: float = field(
        default=default, validator=_not_negative if zero_is_off else _positive, converter=float
    )
    return value


@frozen(kw_only=True)
class Bounds:
    """The host's bounds. Immutable; made once, at start.

    Raises:
        ValueError: a bound is not positive, or two of them contradict each other.
    """

    # Connections

    #: Connections at one time, counted before their handshake; the next is answered 503.
    max_connections: int = _count(256)
    #: From accepting a connection to the end of its WebSocket handshake, TLS included.
    handshake_timeout_s: float = _time(10)
    #: A handshake's request line and headers; a longer head is answered 431.
    max_head_bytes: int = _count(16 * 1024)
    #: One message of a client, and one frame of a worker. A client is closed with
    #: 1009, a worker is ended. Nothing legitimate may need a larger one.
    max_frame_bytes: int = _count(16 * MIB)
    #: The parts in which one message may arrive (fragments and reads). It keeps a
    #: client from turning each byte of a message into an object of ours.
    max_message_pieces: int = _count(65_536)
    #: What may wait to be written to one client; past it the client is closed with
    #: 1013 and comes back with its last sequence number.
    max_outbound_bytes: int = field(default=32 * MIB, validator=_positive)
    #: How long a closing handshake, and what is written before it, may take until
    #: the TCP connection is torn down.
    close_timeout_s: float = _time(1)
    #: How long a client may take no byte at all while we have some for it.
    send_stall_s: float = _time(60)
    #: TCP keepalive: silence before the first probe, between probes, and how many
    #: are missed before a client that vanished without a FIN is given up.
    keepalive_idle_s: int = _count(60)
    keepalive_interval_s: int = _count(15)
    keepalive_probes: int = _count(4)
    #: Channels one connection may subscribe to.
    max_subscriptions_per_connection: int = _count(1000)
    #: Requests and dispatches of one connection that wait for a worker at one time.
    max_waiting_per_connection: int = _count(1000)
    #: Connections of the control socket at one time.
    max_control_connections: int = _count(32)
    #: Clients that are remembered for `reconnect`, and for how long.
    admitted_clients: int = _count(1000)
    admitted_days: float = _time(30)

    # Sessions and chats

    #: Those that are kept count too: what nobody looks at takes no more than its row.
    max_sessions: int = _count(100_000)
    #: Sessions that may be created in any 60 s.
    sessions_per_minute: int = _count(120)
    max_chats_per_session: int = _count(100)
    #: Queued messages of one chat.
    max_queued_messages: int = _count(1000)
    #: Approvals and questions of one chat that wait on a person at one time.
    max_parked_requests: int = _count(1000)
    #: What an agent may say in one turn. Every snapshot holds the running turn whole, so with
    #: the rest of the chat it must fit into a frame.
    max_turn_bytes: int = _count(12 * MIB)
    #: What the ended turns of a chat may come to before no further one begins in it; and what
    #: a chat's agent may say in the chats of its subagents.
    max_chat_bytes: int = _count(256 * MIB)
    #: Consecutive deltas of one part within this window become one action; 0: off.
    gather_window_ms: float = _time(50, zero_is_off=True)
    #: Envelopes kept for `reconnect`; what is older is answered with snapshots.
    replay_events: int = _count(10_000)
    replay_bytes: int = _count(64 * MIB)
    #: Events of one chat that are held on `/chats` for `since`, and their bytes; what is
    #: older is answered with the thread.
    chat_events: int = _count(2000)
    chat_events_bytes: int = _count(2 * MIB)

    #: Streamed text is kept within this time; everything else before it is told.
    flush_window_ms: float = _time(100)

    # Workers

    #: An agent's `create`.
    create_timeout_s: float = _time(60)
    #: Each question to a catalogue worker (describe, probe, list, find, …).
    catalogue_timeout_s: float = _time(10)
    #: A catalogue worker that nobody asks leaves after this.
    catalogue_idle_s: float = _time(30)
    #: An agent's setters (`set_config`, `set_tools`, …), `confirm`, `answer`, `steer`.
    setter_timeout_s: float = _time(5)
    #: Until a worker has said that it received a `begin`.
    begin_timeout_s: float = _time(5)
    #: From a cancel to the replacement of a worker that did not acknowledge it.
    cancel_grace_s: float = _time(5)
    #: From SIGTERM to SIGKILL of a worker's process tree.
    kill_grace_s: float = _time(2)
    #: Actions that break a rule within the window before their agent is ended.
    broken_actions_limit: int = _count(100)
    broken_actions_window_s: float = _time(10)
    #: Actions of one worker that go on to clients: in a second, and at once after a pause.
    #: A worker that says more is read more slowly. Deltas count after they were gathered.
    actions_per_s: int = _count(1000)
    actions_burst: int = _count(2000)
    #: The same in bytes of their JSON. A burst of bytes lasts as long as one of actions.
    action_bytes_per_s: int = _count(4 * MIB)
    #: JSON values in one frame of a worker: it is ended over a frame that holds more. Bytes
    #: alone are no measure, as each value costs memory and time of its own.
    max_frame_values: int = _count(100_000)
    #: The age of a worker's unfinished frame, in time in which we read.
    partial_frame_s: float = _time(10)
    #: What a chat's log keeps, in two files of half of it; older lines give way.
    log_bytes: int = _count(MIB)

    # The host

    #: A graceful stop, from the signal to the exit.
    stop_timeout_s: float = _time(10)

    @max_outbound_bytes.validator
    def _holds_a_frame(self, attribute: "Attribute[int]", value: int) -> None:
        if value < self.max_frame_bytes:
            raise ValueError(f"{attribute.name} must not be less than max_frame_bytes")
