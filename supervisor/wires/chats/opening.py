"""Opening and reading a chat: create, list, attach, detach, history.

Decisions, where the contracts leave them open:

- A chat's id is a session's id, and the session is spelled `ahp-session:/<id>`. What no
  channel can be called by (`uris.MAX_ID_CHARS`) is a `bad-request`.
- A kind with several agents means the first of them in the configuration.
- Creating waits for the session, not for its worker, which may fail yet: the chat then
  is `exited`, and what is sent to it is refused with the reason.
"""

import os
from typing import TYPE_CHECKING, Any

from ....contracts.ahp.errors import AhpError, ErrorCode
from ....contracts.ahp.uris import MAX_ID_CHARS, file_uri, is_valid_id, session_uri
from ....contracts.chats import (
    ChatAttach,
    ChatCreate,
    ChatError,
    ChatHistory,
    ChatListResult,
    ChatTarget,
    Empty,
    ModelSelection,
    RuntimeMode,
    Shape,
    is_default_account,
    write,
)
from ....contracts.chats.limits import MAX_HISTORY_PAGE_ITEMS
from ...agents import Agent, AgentUnavailable
from ...state_dir import home_folder
from .answers import Answer, Later, Told
from .facts import (
    PERMISSION_MODE,
    RUNTIME_MODE,
    SELECTION,
    kind_of,
    permission_for,
)

if TYPE_CHECKING:
    from .connection import ChatsConnection

Json = dict[str, Any]


def create(connection: "ChatsConnection", payload: ChatCreate) -> Answer:
    if not is_valid_id(payload.chat_id):
        raise ChatError(
            "bad-request", f"payload.chatId: expected at most {MAX_ID_CHARS} characters"
        )
    if payload.chat_id in connection.host.chats:
        return _info(connection, payload.chat_id)

    async def wait() -> Shape | Told:
        host, uri = connection.host, session_uri(payload.chat_id)
        while payload.chat_id not in host.chats:
            made = host.being_created(uri)
            if made is not None:
                await made.wait()
            else:
                await _create(connection, payload, uri)
        return _info(connection, payload.chat_id)

    return Later(wait, holds=True)


def _info(connection: "ChatsConnection", chat_id: str) -> Told:
    chat = connection.threads.chat(chat_id)
    return Told(lambda: connection.threads.live(chat).look().info, reads=True)


async def _create(connection: "ChatsConnection", payload: ChatCreate, uri: str) -> None:
    agent = await _agent_for(connection, payload)
    preferred = connection.threads.preferences
    kind = kind_of(agent)
    mode = payload.runtime_mode or preferred.runtime_mode
    selection = payload.selection or (preferred.selections or {}).get(kind)
    account = payload.account or (preferred.accounts or {}).get(kind)
    if not is_default_account(kind, account):
        raise ChatError("account-unavailable", f"This host has no account {account!r}.")
    folder = _folder(payload.cwd)
    config = _config_for(agent, mode or "full-access", asked=payload.runtime_mode is not None)
    try:
        session = await connection.host.create_session(
            uri,
            provider=agent.name,
            directories=[folder],
            config=config,
            resume=payload.resume,
        )
    except AhpError as error:
        if error.code == ErrorCode.SESSION_ALREADY_EXISTS:
            # It is there meanwhile, is just being made, or is kept and cannot be read.
            if connection.host.being_created(uri) is None:
                connection.threads.chat(payload.chat_id)
            return
        raise ChatError(*_refused(error)) from None
    session.default_chat.beside = _wishes(mode, selection)


def _refused(error: AhpError) -> Any:
    unserved = error.code == ErrorCode.PROVIDER_NOT_FOUND
    return ("chat-unsupported" if unserved else "chat-busy"), error.message


def _wishes(mode: RuntimeMode | None, selection: ModelSelection | None) -> Json:
    wishes: Json = {} if mode is None else {RUNTIME_MODE: mode}
    return wishes if selection is None else {**wishes, SELECTION: write(selection)}


def _folder(cwd: str | None) -> str:
    path = home_folder() if cwd is None else os.path.expanduser(cwd)
    try:
        return file_uri(path)
    except ValueError:
        raise ChatError("bad-request", "payload.cwd: expected an absolute path") from None


def _config_for(agent: Agent, mode: RuntimeMode, *, asked: bool) -> Json:
    schema = agent.description.schema if agent.description is not None else None
    there, word = permission_for(mode, schema)
    if there and word is None and asked:
        raise ChatError("chat-unsupported", f"The agent {agent.name} has no mode {mode}.")
    return {} if word is None else {PERMISSION_MODE: word}


async def _agent_for(connection: "ChatsConnection", payload: ChatCreate) -> Agent:
    """The agent that is meant, described as far as it can be.

    Raises:
        ChatError: there is none such.
    """
    agents = connection.host.agents
    if payload.agent is not None:
        named = agents.by_name.get(payload.agent)
        if named is None:
            raise ChatError("bad-request", f"payload.agent: there is no agent {payload.agent!r}")
        found = named
    elif payload.provider is not None:
        for agent in agents.by_name.values():
            await _describe(connection, agent)
        of_kind = connection.threads.agents_of(payload.provider)
        if not of_kind:
            raise ChatError(
                "chat-unsupported", f"No agent of this host shows itself as {payload.provider}."
            )
        found = of_kind[0]
    elif agents.default is not None:
        found = agents.by_name[agents.default]
    else:
        raise ChatError("chat-unsupported", "This host has no agents.")
    await _describe(connection, found)
    if payload.provider is not None and kind_of(found) != payload.provider:
        raise ChatError(
            "bad-request",
            f"payload.provider: the agent {found.name} shows itself as {kind_of(found)}",
        )
    return found


async def _describe(connection: "ChatsConnection", agent: Agent) -> None:
    if agent.description is None:
        try:
            await connection.host.agents.describe(agent.name)
        except AgentUnavailable:
            # Its chat says so: it cannot be created.
            return


def list_chats(connection: "ChatsConnection", payload: Shape) -> Answer:
    host, threads = connection.host, connection.threads

    def told() -> Shape:
        return ChatListResult(chats=tuple(live.look().info for live in threads.all()))

    asleep = [session_uri(ident) for ident in host.kept.rows]
    if not asleep:
        return Told(told, reads=True)

    async def wait() -> Told:
        # What is only kept has to be read for its info.
        for uri in asleep:
            await host.wake(uri)
        return Told(told, reads=True)

    return Later(wait)


def attach(connection: "ChatsConnection", payload: ChatAttach) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    # What is being gathered is told first, to those attached before and to nobody twice.
    chat.flush()

    def told(limit: int | None = payload.history_limit, since: int | None = payload.since) -> Shape:
        return connection.threads.live(chat).attach(connection, limit=limit, since=since)

    # More than a frame holds is paged unasked.
    return Told(told, reads=True, smaller=lambda: told(MAX_HISTORY_PAGE_ITEMS, None))


def detach(connection: "ChatsConnection", payload: ChatTarget) -> Answer:
    chat = connection.threads.chat(payload.chat_id)

    def told() -> Shape:
        connection.threads.live(chat).detach(connection)
        return Empty()

    return Told(told, reads=True)


def history(connection: "ChatsConnection", payload: ChatHistory) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    return Told(
        lambda: connection.threads.live(chat).history(payload.cursor, payload.limit), reads=True
    )
