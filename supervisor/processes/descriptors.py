"""Open files: how many this program may hold, what its workers get, and when they become scarce.

A session costs five descriptors and a client one, and the usual soft limit of
1,024 would be reached by two hundred sessions. At the limit nobody can connect
any more, not even the operator who wants to end something: so the limit is
raised at the start, and the last descriptors are not given to workers.
"""

import os
import resource

#: What we raise our own soft limit to, where the hard one allows it.
WANTED = 65_536

#: The descriptors that are left for clients, operators, logs and the next keeper.
RESERVED = 64

#: What a chat with a running worker takes: four pipes and a log, and what its start holds.
OF_A_CHAT = 10

_given: int | None = None


def raise_limit() -> None:
    """Raises this program's soft limit of open files. Its workers keep the one it was given."""
    global _given
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        _given = soft


def given_limit() -> int:
    """The soft limit that this program was started with."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] if _given is None else _given


def are_scarce(needed: int = 0) -> bool:
    """Whether so few descriptors are left that no worker may have any, or not so many."""
    try:
        # The kernel answers with the lowest number that is free.
        fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    os.close(fd)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and fd + needed >= soft - RESERVED


def scarcity() -> str:
    """Why nothing more can be started, and what to do about it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"the host holds nearly as many open files as it may, {soft}: raise `ulimit -n`"
