"""The lens: canonical 1.0 on our side, the negotiated version's shapes on the client's.

Pure. A lens belongs to a line of versions (0.6, 0.7, 0.8, 0.9, 0.10, 1.x). Out
go snapshots, actions, summaries and notifications; in come parameters and a
client's actions. What differs stands in `differences`, a row a thing, and the
rows drive the lens.

The law, which the tests hold for every line: that line's reducer over the
snapshot sent and the actions said equals the next snapshot sent. Masked are
`modifiedAt`, which the older reducers read from a clock, and the low status
bits of a session, which no action carries. What a line has no words for waits
for the channel's next snapshot, and its row names it.

Several actions for one number: clients keep the greatest number that they saw
and apply every envelope, so all of them carry that number, and the origin goes
with the first. Who reconnects may have missed some of them, so where such an
action stands at or behind the last number seen, snapshots answer in place of a
replay. `needs_states` tells which actions those are.
"""

from functools import lru_cache
from typing import Any, Final

from ..versions import LINES, Line, line_of
from . import differences, inward
from .sayings import FROM_STATES, SPELLINGS, UNSAID, Saying, spelled_back
from .shapes import Shapes

__all__ = ["CANONICAL", "Lens", "lens_for"]

Json = dict[str, Any]


class Lens:
    """One line's view of canonical states and actions. Nobody should subclass it.

    Attributes:
        line: the versions it is for.
        identity: whether it changes nothing at all: the very same objects come back.
    """

    def __init__(self, line: Line) -> None:
        release = (line.major, line.minor or 0)
        older = differences.older_than(release)
        self.line: Final = line
        self.identity: Final = not older
        self._shapes = Shapes(older)
        self._unsaid = frozenset().union(*(UNSAID.get(row, frozenset()) for row in older))
        self._sayings: dict[str, Saying] = {
            kind: saying
            for row in older
            for kind, saying in FROM_STATES.get(row, {}).items()
            if kind not in self._unsaid
        }

    def snapshot(self, family: str, state: Json) -> Json:
        """A channel's state; `family` is `root`, `session`, `chat` and so on."""
        return state if self.identity else self._shapes.state(family, state)

    def needs_states(self, action: Json) -> bool:
        """Whether the action can only be said with the states around it, and maybe in several."""
        return action.get("type") in self._sayings

    def actions(self, action: Json, before: Json | None, after: Json | None) -> list[Json]:
        """What this line is told of an action.

        Args:
            action: canonical.
            before: the channel's canonical state before it; None where it is not known.
            after: the state after it. Without the states, what needs them is said as it is
                understood from the action alone: enough for its own sender, who knows it.

        Returns:
            One action, several, or none.
        """
        kind = action.get("type")
        if self.identity or not isinstance(kind, str):
            return [action]
        if kind in self._unsaid:
            return []
        saying = self._sayings.get(kind)
        if saying is not None:
            if before is None or after is None:
                return [self.said_back(action)]
            return saying(self._shapes, action, before, after)
        spelling = SPELLINGS.get(kind)
        return [action] if spelling is None else [spelling(self._shapes, action)]

    def said_back(self, action: Json) -> Json:
        """A client's own action as that client spells it, from the action alone.

        It may be malformed: an action is refused by sending it back.
        """
        return action if self.identity else spelled_back(self._shapes, action)

    def summary(self, summary: Json) -> Json:
        """A session's entry in the list, or the changes of one."""
        return summary if self.identity else self._shapes.session_row(summary)

    def notification(self, method: str, params: Json) -> Json:
        """The parameters of a notification that is no action."""
        match method:
            case "root/sessionAdded" if not self.identity:
                return {**params, "summary": self.summary(params["summary"])}
            case "root/sessionSummaryChanged" if not self.identity:
                return {**params, "changes": self.summary(params["changes"])}
            case _:
                return params

    def result(self, method: str, result: Any) -> Any:
        """A request's result; snapshots in it are the caller's, who knows their families."""
        if self.identity or method != "listSessions":
            return result
        return {**result, "items": [self.summary(item) for item in result["items"]]}

    def params(self, method: str, params: Json) -> Json:
        """A request's parameters, in: canonical.

        Raises:
            ValueError: this version can ask for what no later one has; the message is for
                the client.
        """
        return params if self.identity else inward.canonical_params(self._shapes, method, params)

    def client_action(self, action: Json, state: Json) -> Json:
        """A client's action, in: canonical. It may be malformed, and is checked afterwards."""
        return action if self.identity else inward.canonical_action(self._shapes, action, state)


@lru_cache(maxsize=len(LINES))
def _lens(line: Line) -> Lens:
    return Lens(line)


def lens_for(version: str) -> Lens:
    """The lens of the line that a version belongs to: one object a line.

    Raises:
        ValueError: that version is none, or is not spoken.
    """
    line = line_of(version)
    if line is None:
        raise ValueError(f"this host does not speak {version}")
    return _lens(line)


#: The lens that changes nothing.
CANONICAL: Final = lens_for("1.0.0")
