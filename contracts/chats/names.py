"""The words and names of this wire: kinds, states and ids.

A closed set stays closed: a client that validates a whole thread refuses all of it
for one word it does not know, so what grows grows by optional members.
"""

import re
from typing import Annotated, Final, Literal, TypeAlias, get_args

from .limits import SUGGESTED_TITLE_LIMIT
from .shape import Length, Matching

#: How an agent shows itself. An agent that is none of these declares which it looks like.
AgentKind: TypeAlias = Literal["claude", "codex", "gemini", "copilot", "apple"]
AGENT_KINDS: Final[tuple[AgentKind, ...]] = get_args(AgentKind)

AgentStatus: TypeAlias = Literal["running", "needs-you", "idle", "error", "exited"]

#: What an agent may do without asking, from the least to the most.
RuntimeMode: TypeAlias = Literal["supervised", "auto-accept-edits", "auto", "full-access"]
RUNTIME_MODES: Final[tuple[RuntimeMode, ...]] = get_args(RuntimeMode)

#: Whose usage the tables of totals know.
UsageProvider: TypeAlias = Literal["claude", "codex"]
USAGE_PROVIDERS: Final[tuple[UsageProvider, ...]] = get_args(UsageProvider)

#: The client's to choose; any nonempty text.
ChatId = Annotated[str, Length(1)]

#: A name that a model gave a conversation: plain text, and never an instruction.
SuggestedTitle = Annotated[str, Length(1, SUGGESTED_TITLE_LIMIT)]

#: A slug and never a path. The default account of a kind has the kind as its id.
AccountId = Annotated[
    str, Matching(re.compile(r"[a-z][a-z0-9_-]{0,63}"), "an account's id: a-z, 0-9, _ and -")
]

VariableName = Annotated[
    str, Matching(re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}"), "the name of a variable")
]

#: Where an AHP message's `_meta` holds what only this wire knows of it.
MESSAGE_META_KEY: Final = "agent-contracts"

#: What names the agent of a workflow, which no call of its own opened.
_WORKFLOW_AGENT: Final = "workflow-agent:"


def workflow_agent_ref(agent_id: str) -> str:
    """What `chat.subagent` calls a workflow's agent by, in place of a tool use id."""
    return _WORKFLOW_AGENT + agent_id


def workflow_agent_id_of(ref: str) -> str | None:
    """The id in a `workflow_agent_ref`, or None for any other reference."""
    return (ref.removeprefix(_WORKFLOW_AGENT) or None) if ref.startswith(_WORKFLOW_AGENT) else None
