"""The chat's turn machine: what happens to a chat, and the steps that follow, in one table.

Two rules of what may live here:

1. Nothing here knows a socket, a process, a clock or a store. A happening and a
   phase go in, steps come out; `Chat` takes the steps.
2. Every chat in every phase has an answer to every happening. `tests/test_turns.py`
   is written from this table and from the design's section "A turn always ends".

The order of steps is the order that clients see: what is parked is settled
first, then the turn ends, then the queue moves or waits. A client that applies
envelopes in order never sees an open approval under a finished turn.

One queue, one rule: only a completed turn drains it. Every other ending pauses
it, and what lifts the pause is a person's next message.
"""

from collections.abc import Mapping
from enum import Enum, auto


class Phase(Enum):
    """What a chat is doing. Derived from its state, never stored beside it."""

    IDLE = auto()
    """No turn is running."""
    RUNNING = auto()
    """A turn is running and nothing waits on a person."""
    WAITING = auto()
    """A turn is running and at least one approval or question is parked."""


class Happening(Enum):
    """What can happen to a chat."""

    TURN_ASKED = auto()
    """A client starts a turn (`chat/turnStarted`)."""
    MESSAGE_QUEUED = auto()
    """A message was put into the queue."""
    CANCEL = auto()
    """A client cancels the running turn (`chat/turnCancelled`)."""
    COMPLETED = auto()
    """The agent says that its turn is complete."""
    FAILED = auto()
    """The agent ends its turn in any other way."""
    WORKER_DIED = auto()
    """The worker is gone without having been asked to go."""
    KILLED = auto()
    """The chat is removed, with everything that runs for it."""
    HOST_STOPS = auto()
    """The host goes down and says goodbye."""
    RESTORED = auto()
    """The chat comes back in a new life of the host; its earlier worker is gone."""


class Step(Enum):
    """What the chat then does."""

    REFUSE = auto()
    """Answer the client's action with a reason; nothing changes."""
    DROP = auto()
    """The agent's action breaks a rule: dropped, logged, counted."""
    LIFT_PAUSE = auto()
    PAUSE_QUEUE = auto()
    BEGIN_TURN = auto()
    """Apply the client's turn and hand it to the worker, starting one if there is none."""
    SETTLE_PARKED = auto()
    """Every approval and question that is open is answered as cancelled."""
    END_AS_CANCELLED = auto()
    END_AS_SAID = auto()
    """The agent's own ending, mended where it is faulty."""
    END_AS_DIED = auto()
    """`chat/error` of type `workerDied` that says how."""
    END_AS_INTERRUPTED = auto()
    """`chat/error` of type `interrupted`."""
    TELL_CANCEL = auto()
    """Tell the worker; one that does not come back within the grace is replaced."""
    DRAIN_QUEUE = auto()
    """The oldest waiting message begins the next turn, unless the queue is paused."""
    FORGET_WORKER = auto()
    """The next message starts a new one."""
    END_WORKER = auto()
    """The worker and its process tree end, by the kill grace."""
    CLOSE_WORKER = auto()
    """The worker is asked to close, then ended like any other."""
    REMOVE_CHAT = auto()


_S = Step

#: Happening and phase to steps. `DIED` while idle only forgets the worker: no
#: turn was cut off, so there is nothing to say and the queue is empty or paused.
TABLE: Mapping[Happening, Mapping[Phase, tuple[Step, ...]]] = {
    Happening.TURN_ASKED: {
        Phase.IDLE: (_S.LIFT_PAUSE, _S.BEGIN_TURN),
        Phase.RUNNING: (_S.REFUSE,),
        Phase.WAITING: (_S.REFUSE,),
    },
    Happening.MESSAGE_QUEUED: {
        Phase.IDLE: (_S.LIFT_PAUSE, _S.DRAIN_QUEUE),
        Phase.RUNNING: (_S.LIFT_PAUSE,),
        Phase.WAITING: (_S.LIFT_PAUSE,),
    },
    Happening.CANCEL: {
        Phase.IDLE: (_S.REFUSE,),
        Phase.RUNNING: (_S.END_AS_CANCELLED, _S.PAUSE_QUEUE, _S.TELL_CANCEL),
        Phase.WAITING: (_S.SETTLE_PARKED, _S.END_AS_CANCELLED, _S.PAUSE_QUEUE, _S.TELL_CANCEL),
    },
    Happening.COMPLETED: {
        Phase.IDLE: (_S.DROP,),
        Phase.RUNNING: (_S.END_AS_SAID, _S.DRAIN_QUEUE),
        Phase.WAITING: (_S.SETTLE_PARKED, _S.END_AS_SAID, _S.DRAIN_QUEUE),
    },
    Happening.FAILED: {
        Phase.IDLE: (_S.DROP,),
        Phase.RUNNING: (_S.END_AS_SAID, _S.PAUSE_QUEUE),
        Phase.WAITING: (_S.SETTLE_PARKED, _S.END_AS_SAID, _S.PAUSE_QUEUE),
    },
    Happening.WORKER_DIED: {
        Phase.IDLE: (_S.FORGET_WORKER,),
        Phase.RUNNING: (_S.END_AS_DIED, _S.PAUSE_QUEUE, _S.FORGET_WORKER),
        Phase.WAITING: (_S.SETTLE_PARKED, _S.END_AS_DIED, _S.PAUSE_QUEUE, _S.FORGET_WORKER),
    },
    Happening.KILLED: {
        Phase.IDLE: (_S.END_WORKER, _S.REMOVE_CHAT),
        Phase.RUNNING: (_S.END_AS_CANCELLED, _S.END_WORKER, _S.REMOVE_CHAT),
        Phase.WAITING: (_S.SETTLE_PARKED, _S.END_AS_CANCELLED, _S.END_WORKER, _S.REMOVE_CHAT),
    },
    Happening.HOST_STOPS: {
        Phase.IDLE: (_S.CLOSE_WORKER,),
        Phase.RUNNING: (_S.END_AS_INTERRUPTED, _S.PAUSE_QUEUE, _S.CLOSE_WORKER),
        Phase.WAITING: (
            _S.SETTLE_PARKED,
            _S.END_AS_INTERRUPTED,
            _S.PAUSE_QUEUE,
            _S.CLOSE_WORKER,
        ),
    },
    Happening.RESTORED: {
        Phase.IDLE: (_S.FORGET_WORKER,),
        Phase.RUNNING: (_S.END_AS_INTERRUPTED, _S.PAUSE_QUEUE, _S.FORGET_WORKER),
        Phase.WAITING: (
            _S.SETTLE_PARKED,
            _S.END_AS_INTERRUPTED,
            _S.PAUSE_QUEUE,
            _S.FORGET_WORKER,
        ),
    },
}
