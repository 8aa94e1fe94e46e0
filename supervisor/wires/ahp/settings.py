"""What an agent is asked before it acts: settings and their values, and how a text goes on."""

from typing import TYPE_CHECKING, Any

import structlog
import trio

from ....contracts.ahp.commands import (
    Completions,
    ResolveSessionConfig,
    SessionConfigCompletions,
)
from ....contracts.ahp.errors import AhpError, ErrorCode
from ....contracts.ahp.uris import path_of_file_uri
from ....contracts.worker_wire import Completions as AskCompletions
from ....contracts.worker_wire import Items
from ...agents import AgentUnavailable
from ...processes.worker_client import WorkerGone, WorkerRefused
from ...sessions.settings import initial_settings

if TYPE_CHECKING:
    from .connection import AhpConnection

Json = dict[str, Any]

_log = structlog.get_logger(__name__)


def _provider(connection: "AhpConnection", named: str | None) -> str:
    provider = named or connection.host.agents.default
    if provider is None or provider not in connection.host.agents.by_name:
        raise AhpError(ErrorCode.PROVIDER_NOT_FOUND, f"There is no agent {provider}.")
    return provider


async def resolve_session_config(connection: "AhpConnection", params: ResolveSessionConfig) -> Json:
    """What a session of an agent can be told, and its values so far. Raises `AhpError`."""
    provider = _provider(connection, params.provider)
    try:
        described = await connection.host.agents.describe(provider)
    except AgentUnavailable as fault:
        raise AhpError(ErrorCode.PROVIDER_NOT_FOUND, str(fault)) from None
    values = initial_settings(described.schema, described.defaults, params.config or {})
    if isinstance(values, str):
        raise AhpError(ErrorCode.INVALID_PARAMS, f"params.config: {values}")
    return {"schema": described.schema, "values": values}


async def session_config_completions(
    connection: "AhpConnection", params: SessionConfigCompletions
) -> Json:
    """Values of a setting that is completed and not listed. Raises `AhpError`."""
    provider = _provider(connection, params.provider)
    directory = params.working_directory
    path = path_of_file_uri(directory) if directory is not None else None
    try:
        items = await connection.host.agents.config_completions(
            provider, params.property, params.query or "", params.config or {}, path
        )
    except AgentUnavailable as fault:
        raise AhpError(ErrorCode.PROVIDER_NOT_FOUND, str(fault)) from None
    return {"items": [item for item in items if _is_value_item(item)]}


async def completions(connection: "AhpConnection", params: Completions) -> Json:
    """How a text that a person types could go on, as the agent says."""
    channel = connection.host.resolve(params.channel)
    chat = (
        connection.host.session_at(params.channel).default_chat
        if channel is None or channel.family != "chat"
        else connection.host.chat_at(params.channel)
    )
    worker = chat.worker
    if worker is None or "completions" not in worker.members:
        return {"items": []}
    asked = AskCompletions(kind=params.kind, text=params.text, offset=params.offset)
    try:
        answered: Items = await worker.ask("session.completions", asked)
    except (WorkerGone, WorkerRefused, trio.TooSlowError) as error:
        _log.info("no completions", chat=chat.id, why=str(error))
        return {"items": []}
    return {"items": [item for item in answered.items if _is_completion(item)]}


def _is_value_item(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and isinstance(item.get("value"), str)
        and isinstance(item.get("label"), str)
    )


def _is_completion(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and isinstance(item.get("insertText"), str)
        and isinstance(item.get("attachment"), dict)
    )
