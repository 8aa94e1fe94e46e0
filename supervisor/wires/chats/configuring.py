"""Settings: configure, preferences, skills, providers; from what agents report of themselves.

Decisions, where the contracts leave them open:

- A selection is the person's word for the messages that follow: each carries its model.
- Account and `resumeAtReset` are refused where they would ask for what this host lacks.
"""

from typing import TYPE_CHECKING, Any

from ....contracts.chats import (
    ChatConfigure,
    ChatError,
    ChatPreferences,
    ChatTarget,
    Empty,
    ModelInfo,
    ProviderCapabilities,
    ProviderInfo,
    ProviderListResult,
    Shape,
    Skill,
    SkillsListResult,
    is_default_account,
    write,
)
from ...agents import Agent
from .answers import Acting, Answer, Later, Told
from .facts import (
    PERMISSION_MODE,
    RUNTIME_MODE,
    SELECTION,
    commands_of,
    kind_of,
    models_of,
    permission_for,
    skills_in,
)
from .sending import COMPACT
from .words import prose

if TYPE_CHECKING:
    from .connection import ChatsConnection

Json = dict[str, Any]


def configure(connection: "ChatsConnection", payload: ChatConfigure) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    kind = kind_of(connection.threads.agent_of(chat))
    if not is_default_account(kind, payload.account):
        raise ChatError("account-unavailable", f"This host has no account {payload.account!r}.")
    if payload.resume_at_reset:
        raise ChatError("chat-unsupported", "This host does not resume chats by itself.")
    wishes: Json = {}
    if payload.selection is not None:
        wishes[SELECTION] = write(payload.selection)
    acting: Acting | None = None
    if payload.runtime_mode is not None:
        wishes[RUNTIME_MODE] = payload.runtime_mode
        config = chat.session.channel.state.get("config")
        schema = config.get("schema") if isinstance(config, dict) else None
        there, word = permission_for(payload.runtime_mode, schema)
        if there and word is None:
            raise ChatError(
                "chat-unsupported", f"The agent of this chat has no mode {payload.runtime_mode}."
            )
        if word is not None:
            changed = {"type": "session/configChanged", "config": {PERMISSION_MODE: word}}
            acting = connection.dispatch_to_session(chat, changed)

    async def wait() -> Shape | Told:
        reason = None if acting is None else await acting.refusal()
        if reason is not None:
            raise ChatError("chat-unsupported", reason)
        connection.threads.chat(payload.chat_id)
        chat.beside = {**chat.beside, **wishes}
        return Told(lambda: connection.threads.live(chat).look().info)

    return Later(wait, holds=True)


def set_preferences(connection: "ChatsConnection", payload: ChatPreferences) -> Answer:
    connection.threads.prefer(connection, payload)
    return Told(Empty)


def list_skills(connection: "ChatsConnection", payload: ChatTarget) -> Answer:
    chat = connection.threads.chat(payload.chat_id)
    agent = connection.threads.agent_of(chat)
    found = skills_in(chat.session.channel.state, agent)
    return SkillsListResult(skills=tuple(Skill(**skill) for skill in found))  # type: ignore[arg-type]


def list_providers(connection: "ChatsConnection", payload: Shape) -> Answer:
    agents = connection.host.agents.by_name.values()
    return ProviderListResult(providers=tuple(map(_provider, agents)))


def _provider(agent: Agent) -> ProviderInfo:
    described = agent.description
    models = models_of(agent)
    commands = commands_of(agent)
    return ProviderInfo(
        kind=kind_of(agent),
        name=described.display_name if described is not None else agent.name,
        installed=agent.fault is None,
        version=None,
        models=tuple(
            ModelInfo(
                slug=model["id"],
                name=prose(model.get("name")) or model["id"],
                legacy=False,
                is_default=index == 0,
                options=(),
            )
            for index, model in enumerate(models)
        ),
        default_model=models[0]["id"] if models else None,
        capabilities=ProviderCapabilities(
            chat=True,
            terminal=False,
            hooks=False,
            streams_tool_output=True,
            diffs="none",
            attachments=True,
            mentions=True,
            deny_reason=True,
            allow_always=True,
            async_questions=True,
            compaction="prompt" if COMPACT in commands else "none",
            reports_cost=True,
            reports_context_window=any("maxContextWindow" in model for model in models),
            reports_thinking=True,
            slash_commands=bool(commands),
        ),
        resume_command="",
        agent=agent.name,
    )
