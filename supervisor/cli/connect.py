"""`connect --stdio`: relays one connection to the running host, one message a line.

So `ssh HOST ahpd-supervisor connect --stdio` is a client's whole set-up: no port, no
token and no certificate of another machine.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import click

from .chat import running_host
from .failures import BadInput, CommandFailed, OutputRefused
from .options import state_dir_option

if TYPE_CHECKING:
    import ssl

    from trio_websocket import WebSocketConnection

#: Where each wire is served.
PATHS = {"ahp": "/", "chats": "/chats"}

READ_CHUNK_BYTES = 64 * 1024
NORMAL_CLOSURE = 1000


@click.command(short_help="Relay one connection over stdin and stdout.")
@click.option("--stdio", is_flag=True, help="Relay over stdin and stdout.")
@click.option(
    "--wire",
    type=click.Choice(list(PATHS)),
    default="ahp",
    show_default=True,
    help="Which protocol: the Agent Host Protocol, or agent-contracts.",
)
@state_dir_option
def connect(stdio: bool, wire: str, state_dir: Path) -> int:
    """Relay one connection to the running host: each line of stdin is a message to it, and
    each message of it a line on stdout.

    Ends with stdin, or when the host closes the connection (then the status is 1).
    """
    if not stdio:
        raise BadInput("Say --stdio: there is no other way to relay yet.")
    address, tls = running_host(state_dir)

    import trio

    return trio.run(_relay, _at(address, PATHS[wire]), tls)


def _at(address: str, path: str) -> str:
    parts = urlsplit(address)
    return urlunsplit(parts._replace(path=path))


async def _relay(address: str, tls: "ssl.SSLContext | None") -> int:
    from contextlib import AsyncExitStack

    import trio

    from ..client_dial import ClientError, dial

    faults: list[str] = []
    async with AsyncExitStack() as stack:
        try:
            socket = await dial(stack, address, tls)
        except ClientError as error:
            raise CommandFailed(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None
        async with trio.open_nursery() as nursery:

            async def until_over(way: Any) -> None:
                fault = await way(socket)
                if fault is not None:
                    faults.append(fault)
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_over, _to_host)
            nursery.start_soon(until_over, _from_host)
    if faults:
        raise CommandFailed(faults[0])
    return 0


async def _to_host(socket: "WebSocketConnection") -> str | None:
    """Each line of stdin as a message; answers what was wrong, or None at the end of it."""
    import trio
    from trio_websocket import ConnectionClosed

    from ...contracts.frames import FrameTooLong, LineDecoder

    decoder = LineDecoder()
    while True:
        # A thread, since what this process does to its stdin others who share it would feel.
        data = await trio.to_thread.run_sync(os.read, 0, READ_CHUNK_BYTES, abandon_on_cancel=True)
        if not data:
            return None
        try:
            for line in decoder.feed(data):
                await socket.send_message(line.decode())
        except FrameTooLong as error:
            return f"A line is no message: {error}."
        except UnicodeDecodeError:
            return "A line is no message: it is not UTF-8."
        except ConnectionClosed:
            # The other way tells how it ended.
            await trio.sleep_forever()


async def _from_host(socket: "WebSocketConnection") -> str | None:
    """Each message of the host as a line; answers how the host ended the connection."""
    import trio
    from trio_websocket import ConnectionClosed

    while True:
        try:
            message = await socket.get_message()
        except ConnectionClosed as closed:
            reason = closed.reason
            if reason is not None and reason.code == NORMAL_CLOSURE:
                return None
            said = f"{reason.code}: {reason.reason}" if reason is not None else "it is gone"
            return f"The host closed the connection ({said})."
        data = message if isinstance(message, bytes) else message.encode()
        await trio.to_thread.run_sync(_write, data + b"\n", abandon_on_cancel=True)


def _write(data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(1, view) :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputRefused(error) from None
