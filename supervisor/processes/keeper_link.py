"""One keeper's life as the supervisor sees it: started, spoken with, heard out, reaped."""

import array
import json
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import trio
from attrs import frozen

from . import descriptors, keeper
from .launcher import LaunchError

#: From starting the program to its first word.
READY_LIMIT_S = 10.0

#: How long a keeper that somebody stopped (SIGSTOP) stays so at most.
AWAKE_INTERVAL_S = 1.0

#: Keepers of this process: of several hosts in one program, none sweeps another's.
KEEPER_PIDS: set[int] = set()


@frozen(kw_only=True)
class _Packet:
    data: bytes
    #: Ours until they are sent, then closed; the keeper has its own.
    descriptors: tuple[int, ...]

    def close(self) -> None:
        for fd in self.descriptors:
            os.close(fd)


class KeeperLink:
    """A running keeper and the socket to it. Made by `start`; lives as long as `run`.

    Not for subclassing.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
        self._process = process
        self._control = trio.socket.from_stdlib_socket(control)
        self._pidfd = os.pidfd_open(process.pid)
        self._outbox: deque[_Packet] = deque()
        self._posted = trio.Event()
        self._closed = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(cls) -> "KeeperLink":
        """Starts a keeper and waits until it is ready.

        Raises:
            LaunchError: it could not be started, is of no use here, or is silent.
        """
        process, ours = _spawn()
        try:
            link = cls(process, ours)
        except OSError as error:
            ours.close()
            process.kill()
            process.wait()
            raise LaunchError(f"the keeper could not be started: {error}") from error
        KEEPER_PIDS.add(process.pid)
        try:
            with trio.fail_after(READY_LIMIT_S):
                await link._hear_ready()
        except trio.TooSlowError:
            await link.aclose()
            raise LaunchError(f"the keeper said nothing within {READY_LIMIT_S:g} s") from None
        except BaseException:
            await link.aclose()
            raise
        return link

    def post(self, message: dict[str, Any], descriptors: Iterable[int] = ()) -> None:
        """Sends a message as soon as it can be sent, in order; never blocks.

        The descriptors are taken over, and closed whatever happens.
        """
        packet = _Packet(data=json.dumps(message).encode(), descriptors=tuple(descriptors))
        if self._closed:
            packet.close()
            return
        self._outbox.append(packet)
        self._posted.set()
        self._signal(signal.SIGCONT)

    async def run(self, on_event: Callable[[dict[str, Any]], None]) -> None:
        """Speaks and listens until the keeper is dead and all it said is heard."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_all)
            nursery.start_soon(self._receive_all, on_event)
            nursery.start_soon(self._keep_awake)
            await self._wait_dead()
            nursery.cancel_scope.cancel()
        self._hear_rest(on_event)

    def kill(self) -> None:
        """Kills the keeper itself; its workers die with it."""
        self._signal(signal.SIGKILL)

    async def aclose(self) -> None:
        """Closes the socket, which makes a living keeper end everything; waits until it is dead.

        After 5 s it is killed. Shielded from cancellation.
        """
        if self._closed:
            return
        self._closed = True
        self._control.close()
        while self._outbox:
            self._outbox.popleft().close()
        with trio.CancelScope(shield=True):
            with trio.move_on_after(5):
                await self._wait_dead()
            self.kill()
            await self._wait_dead()
        trio.lowlevel.notify_closing(self._pidfd)
        os.close(self._pidfd)
        self._process.wait()  # it is dead: this only takes its status
        KEEPER_PIDS.discard(self._process.pid)

    def _signal(self, number: int) -> None:
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except OSError:
            pass  # dead already

    async def _keep_awake(self) -> None:
        # A worker runs as our user, so it can stop its keeper; then nobody hears of any death.
        while True:
            self._signal(signal.SIGCONT)
            await trio.sleep(AWAKE_INTERVAL_S)

    async def _wait_dead(self) -> None:
        await trio.lowlevel.wait_readable(self._pidfd)

    async def _hear_ready(self) -> None:
        data = await self._control.recv(keeper.PACKET_BYTES)
        said = json.loads(data) if data else {"why": "the keeper ended before it was ready"}
        if said.get("event") != "ready":
            raise LaunchError(f"workers cannot be started here: {said.get('why')}")

    async def _send_all(self) -> None:
        while True:
            while self._outbox:
                packet = self._outbox[0]
                try:
                    await self._control.sendmsg([packet.data], _rights(packet.descriptors))
                except OSError:
                    return  # it is dying; `run` is told by its pidfd
                self._outbox.popleft().close()
            self._posted = trio.Event()
            await self._posted.wait()

    async def _receive_all(self, on_event: Callable[[dict[str, Any]], None]) -> None:
        while True:
            try:
                data = await self._control.recv(keeper.PACKET_BYTES)
            except OSError:
                return
            if not data:
                return
            on_event(json.loads(data))

    def _hear_rest(self, on_event: Callable[[dict[str, Any]], None]) -> None:
        """What a dead keeper had said before: statuses that nobody else can tell any more."""
        while True:
            try:
                # One packet. The socket is trio's, so it never blocks.
                data = os.read(self._control.fileno(), keeper.PACKET_BYTES)
            except OSError:
                return
            if not data:
                return
            on_event(json.loads(data))


def _spawn() -> tuple["subprocess.Popen[bytes]", socket.socket]:
    # From the caller's thread and without a pause: a keeper must not depend on
    # a thread that leaves.
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise LaunchError(f"the keeper could not be started: {error}") from error
    said = [str(theirs.fileno()), str(descriptors.given_limit())]
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", keeper.__file__, *said],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        raise LaunchError(f"the keeper could not be started: {error}") from error
    finally:
        theirs.close()
    return process, ours


def _rights(descriptors: tuple[int, ...]) -> list[tuple[int, int, Any]]:
    if not descriptors:
        return []
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
