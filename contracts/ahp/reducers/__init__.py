"""Pure reducers over JSON state of AHP 1.0, one module a channel.

A reducer takes a state and any JSON value as the action. It reads no clock,
never raises, never changes what it was given, shares what is unchanged, and
answers the very `state` it was given when the action changes nothing: callers
ask `after is state`. An absent value is an absent key, never a null.

The shapes and the results are those of the protocol's own cases for 1.0; times
come from the actions (`startedAt`, `duration`).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .chat import reduce_chat
from .root import reduce_root
from .session import reduce_session
from .steps import Reducer

__all__ = ["REDUCERS", "Reducer", "reduce_chat", "reduce_root", "reduce_session"]

#: By family of channel. The other families (terminal, changeset, annotations,
#: resource watch, canvas, automation) get theirs when they are served.
REDUCERS: Final[Mapping[str, Reducer]] = MappingProxyType(
    {"root": reduce_root, "session": reduce_session, "chat": reduce_chat}
)
