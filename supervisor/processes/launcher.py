"""The port that starts workers: what the host knows of a process, whoever runs it.

`KeeperLauncher` (keeper_launcher.py) is the implementation for this machine. A
sandbox, a container or a remote machine is another one; nothing above this
port learns which.
"""

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping

import trio
from attrs import frozen


class LaunchError(Exception):
    """A worker could not be started; the message is one sentence for a person."""


@frozen(kw_only=True)
class LaunchSpec:
    """What to start. The environment is exact: nothing is inherited beside it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    #: For logs: the chat's id, or the agent's name for a catalogue worker.
    label: str


@frozen(kw_only=True)
class Exit:
    """How a worker's own process ended: a status or a signal; both None when nobody knows.

    It is not known only when the keeper died before it could say.
    """

    code: int | None = None
    signal: int | None = None

    def sentence(self) -> str:
        """What follows "the worker" in a sentence, such as "exited with status 3"."""
        if self.signal is not None:
            return f"was killed by {_signal_name(self.signal)}"
        if self.code is not None:
            return f"exited with status {self.code}"
        return "ended in a way that is not known"


@frozen(kw_only=True)
class ProcessInfo:
    """One process of a worker's tree, as `/proc` showed it."""

    pid: int
    ppid: int
    #: Resident set size.
    memory_bytes: int
    #: User and system time since the process started, without its children's.
    cpu_s: float


class WorkerProcess(ABC):
    """A started worker and everything it starts in turn.

    Not for subclassing outside of a launcher.
    """

    #: The worker's own process.
    pid: int
    #: Frames to the worker: what it reads on its descriptor 3.
    frames_in: trio.abc.SendStream
    #: Frames from the worker: what it writes on its descriptor 4.
    frames_out: trio.abc.ReceiveStream
    stdout: trio.abc.ReceiveStream
    stderr: trio.abc.ReceiveStream

    @abstractmethod
    async def wait(self) -> Exit:
        """Waits until the worker's own process has ended, and says how.

        Told by the process's parent, never by end-of-file: a grandchild can
        hold every pipe open. Any number of tasks may wait; it answers at once
        when the process has already ended.
        """

    @abstractmethod
    def end(self, grace_s: float) -> None:
        """Starts ending the tree: SIGTERM to all of it, and after the grace SIGKILL in rounds.

        Answers at once; `gone` tells when nothing is left. Calling again with
        a shorter grace shortens it, a longer one changes nothing. Harmless
        when the worker is gone already.

        Args:
            grace_s: seconds between SIGTERM and SIGKILL; 0 kills at once.
        """

    @abstractmethod
    async def gone(self) -> int:
        """Waits until nothing of the tree is left, and says how many processes have ended in all.

        The worker's own process counts as one. It does not start the ending:
        a worker that lives is waited for. When the worker dies by itself, what
        it leaves behind is ended without being asked.
        """

    @abstractmethod
    def processes(self) -> list[ProcessInfo]:
        """The worker and everything of its tree, read now; the worker first. Empty when gone."""

    @abstractmethod
    async def aclose(self) -> None:
        """Ends the tree without grace, waits until nothing is left, and closes the four pipes.

        The waiting is bounded and shielded from cancellation; closing twice is harmless.
        """


class Launcher(ABC):
    """Starts workers."""

    @abstractmethod
    async def start(self, spec: LaunchSpec) -> WorkerProcess:
        """Starts one worker. When cancelled, nothing that it started is left running.

        Raises:
            LaunchError: it could not be started; the sentence says why.
        """


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
