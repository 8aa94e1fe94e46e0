"""`chat`: a plain terminal client. This module finds the host and the chat; `chat_loop` talks."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from .failures import BadInput, CommandFailed
from .folders import current_folder
from .operate import ID_HELP
from .options import state_dir_option
from .output import on_one_line

if TYPE_CHECKING:
    import ssl

    from ..client import AhpClient, Mirror

Json = dict[str, Any]

#: How many of its last turns a chat shows when it is opened again.
TURNS_SHOWN = 20

#: How many ids an ambiguous beginning is answered with.
MAX_LISTED = 10

#: A session's creation, its agent's import included.
CREATION_LIMIT_S = 90.0


@click.command(short_help="Talk to an agent.", epilog=ID_HELP)
@click.argument("id", required=False)
@click.option("--agent", metavar="NAME", help="The new session's agent.  [default: the host's]")
@click.option(
    "--url",
    metavar="URL",
    help="A host's WebSocket address with its token, in place "
    "of the one that runs on the state directory.",
)
@state_dir_option
def chat(id: str | None, agent: str | None, url: str | None, state_dir: Path) -> int:
    """Talk to an agent: in a new session in the current folder, or in the chat named ID.

    Type a message and see the answer stream. Approvals are answered with y or n, or an
    option's number; questions with a number or in your own words. Ctrl-C cancels the turn,
    Ctrl-D leaves; the session stays, and `chat ID` comes back to it.

    Input may be a pipe: each line is a message, or the answer to what the agent asks then.
    A turn that runs already is waited for before the first line, and left to itself when
    there is none. The status is 1 if the last turn failed or the input ended before an answer.
    """
    if id is not None and agent is not None:
        raise BadInput("Either an ID or --agent: a session keeps the agent that it has.")
    # What can be wrong here is told before a host is asked for anything.
    folder = current_folder() if id is None else None
    address, tls = (url, None) if url is not None else running_host(state_dir)

    import trio

    return trio.run(_chat, address, tls, id, agent, folder)


def running_host(state_dir: Path) -> "tuple[str, ssl.SSLContext | None]":
    """The address of the host on a state directory, and how to check that it is that host."""
    from ...contracts.control_wire import Access, Nothing
    from .control import ControlClient

    with ControlClient.connect(state_dir) as host:
        access: Access = host.ask("host.access", Nothing())
    return access.ahp, _trusting(access.tls_cert) if access.tls_cert is not None else None


def _trusting(certificate: str) -> "ssl.SSLContext":
    import ssl

    try:
        context = ssl.create_default_context(cafile=certificate)
    except OSError as error:
        raise CommandFailed(f"Cannot read the host's certificate {certificate}: {error}.") from None
    # It is this very certificate that is trusted, whatever name stands in it.
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


async def _chat(
    url: str,
    tls: "ssl.SSLContext | None",
    id: str | None,
    agent: str | None,
    folder: Path | None,
) -> int:
    from ..client import open_client
    from ..client_dial import ClientError
    from .chat_loop import ChatLoop

    loop = ChatLoop(sys.stdin.fileno(), sys.stdout)
    failure: click.ClickException | None = None
    status = 0
    try:
        async with open_client(
            url,
            tls=tls,
            on_envelope=loop.on_envelope,
            on_notification=loop.on_notification,
        ) as client:
            # Not past the nursery, which would wrap it.
            try:
                if id is None:
                    session, chat_uri = await _create(client, agent, folder)
                else:
                    session, chat_uri = await _find(client, id)
                status = await loop.run(client, session, chat_uri)
            except click.ClickException as error:
                failure = error
            except ClientError as error:
                failure = CommandFailed(_sentence(error))
    except* ClientError as errors:
        found: BaseException = errors
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        failure = CommandFailed(_sentence(found))
    if failure is not None:
        raise failure
    return status


def _sentence(error: BaseException) -> str:
    text = on_one_line(str(error))
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


async def _create(client: "AhpClient", agent: str | None, folder: Path | None) -> tuple[str, str]:
    """A new session in that folder; answers its URI and its chat's."""
    from ...contracts.ahp.errors import ErrorCode
    from ...contracts.ahp.uris import default_chat_uri, file_uri, session_uri
    from ..client import RequestRefused

    uri = session_uri(str(uuid4()))
    params: Json = {} if folder is None else {"workingDirectories": [file_uri(str(folder))]}
    if agent is not None:
        params["provider"] = agent
    try:
        await client.create_session(uri, **params)
    except RequestRefused as refused:
        if refused.code == ErrorCode.PROVIDER_NOT_FOUND:
            raise BadInput(str(refused)) from None
        raise
    session = await client.subscribe(uri)
    await _created(client, session)
    chat_uri = session.state.get("defaultChat") or default_chat_uri(uri)
    await client.subscribe(chat_uri)
    return uri, chat_uri


async def _created(client: "AhpClient", session: "Mirror") -> None:
    """Waits until a session is there; one that could not be created is told with its id."""
    from ...contracts.ahp.uris import id_in

    await client.until(lambda: session.state["lifecycle"] != "creating", limit_s=CREATION_LIMIT_S)
    if session.state["lifecycle"] != "failed":
        return
    why = session.state.get("creationError", {}).get("message") or "no reason was given"
    ident = on_one_line(id_in(session.uri) or session.uri)
    raise CommandFailed(
        f"{_sentence(Exception(why))} "
        f"There is no talking in session {ident}; `ahpd-supervisor logs {ident}` may say more."
    )


async def _find(client: "AhpClient", given: str) -> tuple[str, str]:
    """The session and chat that a person means by an id, a URI or the beginning of an id."""
    from ...contracts.ahp.uris import default_chat_uri, id_in, parse_channel

    name = parse_channel(given) if ":" in given else None
    wanted = name.id if name is not None else given
    family = name.family if name is not None else None
    sessions = {id_in(item["resource"]) or "": item["resource"] for item in await _list(client)}
    if wanted in sessions:
        session = await client.subscribe(sessions[wanted])
        chat_uri = session.state.get("defaultChat") or default_chat_uri(session.uri)
        return await _opened(client, session.uri, chat_uri)
    meant = [(id, uri, None) for id, uri in sessions.items() if wanted and id.startswith(wanted)]
    chats = [] if family == "session" else await _chats(client, list(sessions.values()))
    exact = [(uri, chat_uri) for id, uri, chat_uri in chats if id == wanted]
    if exact:
        return await _opened(client, *exact[0])
    others: list[tuple[str, str, str | None]] = [
        (id, uri, chat_uri)
        for id, uri, chat_uri in chats
        if wanted and id.startswith(wanted) and id not in sessions
    ]
    found = [*meant, *others]
    if not found or name is not None:
        raise CommandFailed(f"There is no session and no chat {on_one_line(given, 80)!r}.")
    if len(found) > 1:
        ids = ", ".join(on_one_line(id) for id, _, _ in sorted(found)[:MAX_LISTED])
        more = f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
        raise CommandFailed(f"{given!r} is the beginning of more than one id: {ids}{more}.")
    _, session_found, chat_found = found[0]
    return await _opened(client, session_found, chat_found or default_chat_uri(session_found))


async def _opened(client: "AhpClient", session_uri: str, chat_uri: str) -> tuple[str, str]:
    await _created(client, await client.subscribe(session_uri))
    await client.subscribe(chat_uri, view={"turns": TURNS_SHOWN})
    return session_uri, chat_uri


async def _list(client: "AhpClient") -> list[Json]:
    """Every session of the host, as `listSessions` tells it."""
    from ...contracts.ahp.uris import ROOT_URI

    items: list[Json] = []
    params: Json = {"channel": ROOT_URI, "limit": 200}
    while True:
        page = await client.request("listSessions", params)
        items += page["items"]
        if page.get("nextCursor") is None:
            return items
        params["cursor"] = page["nextCursor"]


async def _chats(client: "AhpClient", sessions: list[str]) -> list[tuple[str, str, str]]:
    """Every chat of these sessions: its id, its session's URI and its own."""
    from ...contracts.ahp.uris import parse_channel
    from ..client import RequestRefused

    found = []
    for uri in sessions:
        try:
            session = await client.subscribe(uri)
        except RequestRefused:
            continue  # It ended this instant.
        for row in session.state["chats"]:
            name = parse_channel(row["resource"])
            if name is not None:
                found.append((name.id, uri, row["resource"]))
        await client.unsubscribe(uri)
    return found
