"""How a request of the host is answered: a result, what travels before it, what follows it."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import frozen

from ..contracts.frames import PART_BYTES, Failure, Success
from ..contracts.json import encode_json
from ..contracts.shapes import unstructure
from ..contracts.worker_wire import FAILURE_NO_MEMBER, FAILURE_RAISED, Items, Part
from .port import WorkerPort

#: What a part's frame holds beside its items, counted generously.
ENVELOPE_BYTES = 1024


class Refused(Exception):
    """The request is answered by a failure of that code; the message is for a person."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def no_member(owner: str, name: str) -> Refused:
    """The agent left the member out, which is an answer."""
    return Refused(FAILURE_NO_MEMBER, f"the {owner} has no `{name}`")


@frozen(kw_only=True)
class Answered:
    """A result, with what is said around it."""

    result: Any
    parts: Sequence[Any] = ()
    """Travels before the result, as `worker.part` events."""
    then: Callable[[], Awaitable[None]] | None = None
    """Run in the same task, from the statement after the result was written."""


#: Takes the structured payload; answers an object of the worker wire, or that `Answered`.
Handler: TypeAlias = Callable[[Any], Awaitable[Any]]
Handlers: TypeAlias = Mapping[str, Handler]


def reply(port: WorkerPort, ident: str, answered: Answered) -> None:
    """Writes the parts and the result, or a failure when they cannot be said."""
    try:
        result, parts = answered.result, answered.parts
        if isinstance(result, Items):
            batches = list(cut(result.items))
            if len(batches) > 1:
                result, parts = Items(), result.items
        for batch in cut(parts):
            port.tell("worker.part", Part(id=ident, items=batch))
        port.send(Success(id=ident, result=unstructure(result)))
    except (ValueError, RecursionError) as error:
        # Not JSON, too large, or so deep that walking it failed.
        port.send(Failure(id=ident, code=FAILURE_RAISED, message=f"the answer {error}"))


def cut(items: Sequence[Any]) -> Iterator[list[Any]]:
    """The items in order, in batches of at most `PART_BYTES`; a larger item is a batch alone.

    Raises:
        JsonError: an item cannot be said in JSON.
    """
    batch: list[Any] = []
    held_bytes = ENVELOPE_BYTES
    for item in items:
        size = len(encode_json(item)) + 1
        if batch and held_bytes + size > PART_BYTES:
            yield batch
            batch, held_bytes = [], ENVELOPE_BYTES
        batch.append(item)
        held_bytes += size
    if batch:
        yield batch
