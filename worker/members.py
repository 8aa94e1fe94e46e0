"""Calling an agent's members: with the parameters they take, and what went wrong in words."""

import inspect
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeGuard

from ..contracts.worker_wire import Taken

#: The longest sentence that travels about an exception, in characters.
MAX_SENTENCE = 2000

#: How many exceptions of a group a sentence names.
MAX_NAMED = 3


def member(owner: object, name: str) -> Callable[..., Any] | None:
    """The member of that name, or None where the agent left it out."""
    found = getattr(owner, name, None)
    return found if callable(found) else None


def call(function: Callable[..., Any], *given: Any, **optional: Any) -> Any:
    """Calls with `given`, and with those of `optional` that the function has a parameter for.

    So an author writes `begin(self, turn_id, text)` and leaves the rest out.
    """
    if not optional:
        return function(*given)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        # A builtin without a signature is called with what the contract requires.
        return function(*given)
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return function(*given, **optional)
    taken = {
        name: value
        for name, value in optional.items()
        if name in parameters and parameters[name].kind is not inspect.Parameter.POSITIONAL_ONLY
    }
    return function(*given, **taken)


def awaits(result: Any) -> TypeGuard[Awaitable[Any]]:
    """Whether the member was an `async def`, or answered what one would."""
    return inspect.isawaitable(result)


async def settled(result: Any) -> Any:
    """What the member answered, once it has."""
    return await result if awaits(result) else result


def verdict(answer: Any) -> Taken:
    """What a setter's answer says: False and a sentence refuse, everything else takes."""
    if answer is False:
        return Taken(accepted=False)
    if isinstance(answer, str):
        return Taken(accepted=False, reason=answer[:MAX_SENTENCE])
    return Taken(accepted=True)


def error_type(error: BaseException) -> str:
    """The name of the exception; of a group, that of its first."""
    return type(next(leaves(error))).__name__


def error_text(error: BaseException) -> str:
    """What the exception says; of a group, what each says, the first `MAX_NAMED` of them."""
    all_leaves = list(leaves(error))
    if len(all_leaves) == 1:
        return (_said(all_leaves[0]) or type(all_leaves[0]).__name__)[:MAX_SENTENCE]
    texts = [_named(leaf) for leaf in all_leaves[:MAX_NAMED]]
    if len(all_leaves) > MAX_NAMED:
        texts.append(f"and {len(all_leaves) - MAX_NAMED} more")
    return "; ".join(texts)[:MAX_SENTENCE]


def sentence(error: BaseException) -> str:
    """`TypeName: text`, for a person."""
    return "; ".join(_named(leaf) for leaf in list(leaves(error))[:MAX_NAMED])[:MAX_SENTENCE]


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group, however deep; an exception that is none is its own leaf."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def report(where: str, error: BaseException) -> None:
    """The traceback, for the log."""
    print(f"{where} raised:", file=sys.stderr)
    traceback.print_exception(error)


def fields_of(answer: Any, where: str) -> Mapping[str, Any]:
    """The answer as a mapping.

    Raises:
        TypeError: it is none.
    """
    if isinstance(answer, Mapping):
        return answer
    raise TypeError(f"{where} answered {_kind(answer)}, not a dict")


def items_of(answer: Any, where: str) -> list[Any]:
    """The answer as a list; None is an empty one.

    Raises:
        TypeError: it is none.
    """
    if answer is None:
        return []
    if isinstance(answer, (str, bytes, Mapping)):
        raise TypeError(f"{where} answered {_kind(answer)}, not a list")
    try:
        return list(answer)
    except TypeError:
        raise TypeError(f"{where} answered {_kind(answer)}, not a list") from None


def paths_of(answer: Any, where: str) -> list[str]:
    """The answer as a list of paths.

    Raises:
        TypeError: it is none.
    """
    return [os.fsdecode(path) for path in items_of(answer, where)]


def text_of(answer: Any, where: str) -> str | None:
    """The answer as text, or None.

    Raises:
        TypeError: it is neither.
    """
    if answer is None or isinstance(answer, str):
        return answer
    raise TypeError(f"{where} answered {_kind(answer)}, not text")


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"


def _named(error: BaseException) -> str:
    text = _said(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as unsayable:  # an exception of the agent's may do anything in `__str__`
        return f"(its text could not be read: {type(unsayable).__name__})"
