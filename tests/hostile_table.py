"""The hostile set as a table: which agent, what is done about it, and what clients must see.

To add one, write the agent in `hostile/` and its row here; `test_hostile.py` and
`test_hostile_creation.py` hold every row to the same laws, and `scripts/faults` runs
them against a host as a user starts it.
"""

from enum import Enum, auto
from typing import Any

from attrs import field, frozen


class Then(Enum):
    """What is done once it misbehaves."""

    NOTHING = auto()
    """Its turn ends by itself, or by the host."""
    CANCEL = auto()
    """It never comes back: a client cancels its turn."""


@frozen(kw_only=True)
class Row:
    """One hostile agent.

    Attributes:
        factory: `module:factory` in `hostile/`.
        parked: how many approvals and questions wait on a person when it is ended.
        ending: the action that ends its turn, or `NOT_CREATED`: it never has one.
        says: of an error, its `errorType` and what its sentence holds, in order.
        leaves: how many processes it tells of that it left behind.
        lives_on: whether its worker is expected to go on, and not to be replaced.
        bounds: of the host that are shorter, so that the test is.
    """

    factory: str
    then: Then = Then.NOTHING
    parked: int = 0
    ending: str = "chat/error"
    says: tuple[str, ...] = ()
    leaves: int = 0
    lives_on: bool = False
    bounds: dict[str, Any] = field(factory=dict)

    @property
    def name(self) -> str:
        """A name that no other row has, fit for a provider's: `deaths-sys-exits`."""
        return self.factory.removeprefix("hostile_").replace(":", "-").replace("_", "-")

    @property
    def is_created(self) -> bool:
        """Whether its session comes to be."""
        return self.ending != NOT_CREATED

    @property
    def goes_on(self) -> bool:
        """Whether there is something left to kill once it misbehaved."""
        return self.then is Then.CANCEL or self.lives_on


NOT_CREATED = "session/creationFailed"
FAILED = "creationFailed"
DIED = "workerDied"
CANCELLED = "chat/turnCancelled"
NO_FRAME = "sent bytes that are no frame"

TABLE = (
    # It dies.
    Row(
        factory="hostile_deaths:exits",
        says=(DIED, "exited with status 3", "its last words were: I have had enough"),
    ),
    Row(
        factory="hostile_deaths:exits_with_parked",
        parked=3,
        says=(DIED, "exited with status 3"),
    ),
    Row(factory="hostile_deaths:exits_nought", says=(DIED, "exited with status 0")),
    Row(
        factory="hostile_deaths:aborts",
        says=(DIED, "was killed by SIGABRT", "its last words were: an assertion failed"),
    ),
    Row(factory="hostile_deaths:sys_exits", says=(DIED, "exited with status 3")),
    Row(factory="hostile_deaths:sys_exits_plainly", says=(DIED, "exited with status 3")),
    Row(
        factory="hostile_deaths:segfaults",
        says=(DIED, "was killed by SIGSEGV", "its last words were: reading address nought"),
    ),
    Row(factory="hostile_deaths:kills_itself", parked=2, says=(DIED, "was killed by SIGKILL")),
    Row(
        factory="hostile_deaths:dies_talking",
        says=(DIED, "exited with status 4", "its last words were: \\x1b[2J\ufffdwwwwww"),
    ),
    # It never comes back.
    Row(factory="hostile_hangs:loops", then=Then.CANCEL, ending=CANCELLED),
    Row(factory="hostile_hangs:loops_plainly", then=Then.CANCEL, ending=CANCELLED),
    Row(
        factory="hostile_hangs:takes_no_turn",
        says=(DIED, "did not take the turn within 1 s"),
        bounds={"begin_timeout_s": 1},
    ),
    Row(factory="hostile_hangs:loops_catching_all", then=Then.CANCEL, ending=CANCELLED),
    Row(factory="hostile_hangs:sleeps_in_c", then=Then.CANCEL, ending=CANCELLED),
    Row(factory="hostile_hangs:sleeps_in_c_plainly", then=Then.CANCEL, ending=CANCELLED),
    Row(factory="hostile_hangs:stopped", then=Then.CANCEL, ending=CANCELLED),
    Row(factory="hostile_hangs:ignores_sigterm", then=Then.CANCEL, ending=CANCELLED),
    Row(factory="hostile_hangs:never_settles", then=Then.CANCEL, parked=3, ending=CANCELLED),
    Row(
        factory="hostile_hangs:never_settles_plainly",
        then=Then.CANCEL,
        parked=3,
        ending=CANCELLED,
    ),
    Row(factory="hostile_hangs:cancel_hangs", then=Then.CANCEL, parked=2, ending=CANCELLED),
    Row(factory="hostile_words:streams_on", then=Then.CANCEL, ending=CANCELLED),
    # It leaves processes behind.
    Row(
        factory="hostile_strays:leaves_and_exits",
        leaves=5,
        says=(DIED, "exited with status 3"),
    ),
    Row(
        factory="hostile_strays:leaves_and_waits",
        then=Then.CANCEL,
        parked=2,
        leaves=5,
        ending=CANCELLED,
    ),
    Row(
        factory="hostile_strays:leaves_and_completes",
        leaves=5,
        lives_on=True,
        ending="chat/turnComplete",
    ),
    Row(
        factory="hostile_strays:leaves_by_nohup",
        leaves=1,
        says=(DIED, "exited with status 0"),
    ),
    Row(
        factory="hostile_strays:starts_processes",
        then=Then.CANCEL,
        leaves=300,
        ending=CANCELLED,
    ),
    Row(factory="hostile_strays:forks_without_end", then=Then.CANCEL, ending=CANCELLED),
    Row(factory="hostile_strays:stops_its_keeper", then=Then.CANCEL, ending=CANCELLED),
    # It says what is not its to say.
    Row(
        factory="hostile_words:speaks_for_others",
        says=(DIED, "broke the protocol's rules 100 times", "own-channel"),
    ),
    Row(factory="hostile_words:ends_twice", lives_on=True, ending="chat/turnComplete"),
    Row(factory="hostile_words:answers_unasked", lives_on=True, ending="chat/turnComplete"),
    Row(factory="hostile_words:replies_unasked", says=(DIED, "answered what nobody asked")),
    # It writes what nobody should.
    Row(factory="hostile_bytes:garbage", says=(DIED, NO_FRAME)),
    Row(
        factory="hostile_bytes:half_a_frame",
        says=(DIED, NO_FRAME, "was not finished within 0.5 s"),
        bounds={"partial_frame_s": 0.5},
    ),
    Row(factory="hostile_bytes:falls_silent", says=(DIED, "closed the pipe")),
    Row(factory="hostile_bytes:forged", says=(DIED, "asked the host")),
    Row(
        factory="hostile_bytes:huge_frame",
        says=(DIED, NO_FRAME, "a frame is larger than 16777216 bytes"),
    ),
    Row(
        factory="hostile_bytes:dense_frame",
        says=(DIED, NO_FRAME, "a frame holds more than 100000 values"),
    ),
    # It writes more than anybody can read. (What arrives of it: `test_hostile_floods.py`.)
    Row(factory="hostile_bytes:floods_deltas_for_ever", then=Then.CANCEL, ending=CANCELLED),
    Row(
        factory="hostile_bytes:floods_broken",
        says=(DIED, "broke the protocol's rules 100 times", "part-before-delta"),
    ),
    Row(factory="hostile_bytes:floods_parts", then=Then.CANCEL, ending=CANCELLED),
    Row(factory="hostile_bytes:floods_dense", lives_on=True, ending="chat/turnComplete"),
    Row(
        factory="hostile_swollen:streams_without_end",
        says=(DIED, "was ended: it said more in one turn than 12582912 bytes"),
    ),
    Row(factory="hostile_bytes:floods_output", then=Then.CANCEL, ending=CANCELLED),
    # Its session never comes to be.
    Row(
        factory="hostile_import:create",
        ending=NOT_CREATED,
        says=(FAILED, "cannot be imported: ModuleNotFoundError: No module named 'the_vendors_own'"),
    ),
    Row(
        factory="hostile_creation:raises",
        ending=NOT_CREATED,
        says=(FAILED, "could not create the session: PermissionError: the licence has run out"),
    ),
    Row(
        factory="hostile_creation:loops",
        ending=NOT_CREATED,
        says=(FAILED, "did not create the session within 4 s"),
        # The sibling is created within it too, on a machine that is busy.
        bounds={"create_timeout_s": 4},
    ),
    Row(
        factory="hostile_creation:exits",
        ending=NOT_CREATED,
        says=(FAILED, "exited with status 3; its last words were: no key in the drawer"),
    ),
    Row(factory="hostile_swollen:refuses", ending=NOT_CREATED, says=(FAILED, "ValueError: www")),
    Row(
        factory="hostile_creation:leaves_strays",
        leaves=5,
        ending=NOT_CREATED,
        says=(FAILED, "could not create the session: OSError: all for nothing"),
    ),
)

#: Those that have a turn to misbehave in.
CREATED = tuple(row for row in TABLE if row.is_created)
NEVER_CREATED = tuple(row for row in TABLE if not row.is_created)
