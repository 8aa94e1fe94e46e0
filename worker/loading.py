"""Finding an agent by `module:callable`, in the environment or the agent path; what it is."""

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..contracts.worker_wire import Description, Load
from .members import fields_of, member, sentence, settled, text_of


class LoadError(Exception):
    """The agent cannot be had; the message is a sentence for the person who configured it."""


def load(request: Load) -> Any:
    """Imports the module and calls the factory with the options as keywords; answers the agent.

    Called before the session's folder is entered, so that nothing is ever
    imported from there. The environment goes before the agent path: a file
    beside an agent does not stand in for a library.

    Raises:
        LoadError: with what to mend.
    """
    module_name, colon, path = request.factory.partition(":")
    if not colon or not module_name or not path or module_name.startswith("."):
        raise LoadError(f"an agent is named `module:callable`, not {request.factory!r}")
    _look_in(request.agent_path)
    module = _imported(module_name, request.agent_path)
    factory = _looked_up(module, path, module_name)
    try:
        agent = factory(**request.options)
    except TypeError as error:
        if _raised_inside(error):
            raise _failed(request.factory, error) from error
        raise LoadError(
            f"the factory {request.factory} does not take its options: {error}"
        ) from error
    except Exception as error:
        raise _failed(request.factory, error) from error
    if agent is None:
        raise LoadError(f"the factory {request.factory} answered None, not an agent")
    _pin_paths()
    return agent


async def describe(agent: Any, factory: str) -> Description:
    """What the agent says of itself.

    Raises:
        LoadError: a required member is missing or answers something else.
    """
    try:
        for name in ("schema", "defaults", "create"):
            if member(agent, name) is None:
                raise LoadError(f"the agent of {factory} has no `{name}()`")
        return Description(
            provider=_required_text(agent, "provider", factory),
            display_name=_required_text(agent, "display_name", factory),
            description=text_of(getattr(agent, "description", None), "`description`"),
            kind=text_of(getattr(agent, "kind", None), "`kind`"),
            capabilities=await _optional_fields(agent, "capabilities"),
            schema=_schema(await settled(agent.schema())),
            defaults=dict(fields_of(await settled(agent.defaults()), "`defaults()`")),
            protected_resources=await _optional_list(agent, "protected_resources"),
        )
    except LoadError:
        raise
    except Exception as error:
        traceback.print_exception(error)
        raise LoadError(f"the agent of {factory} cannot be described: {sentence(error)}") from error


def _look_in(folders: Sequence[str]) -> None:
    for folder in folders:
        absolute = os.path.abspath(folder)
        if absolute not in sys.path:
            sys.path.append(absolute)
    importlib.invalidate_caches()


def _pin_paths() -> None:
    """Makes relative entries absolute: they would come to mean the session's folder."""
    sys.path[:] = [
        # What an editable install leaves there is a name for its finder, and no path.
        entry if entry.startswith("__editable__") else os.path.abspath(entry)
        for entry in sys.path
    ]


def _imported(name: str, folders: Sequence[str]) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            where = ", ".join(folders) if folders else "no folder"
            raise LoadError(
                f"there is no module {error.name!r}, neither in the environment "
                f"nor in the agent path ({where})"
            ) from None
        traceback.print_exception(error)
        # One that its own code raised need not say what is missing.
        wrong = (
            f"cannot be imported: {sentence(error)}"
            if error.name is None
            else f"needs {error.name!r}, which is not there"
        )
        raise LoadError(f"the module {name} {wrong}") from error
    except Exception as error:
        traceback.print_exception(error)
        raise LoadError(f"the module {name} cannot be imported: {sentence(error)}") from error


def _looked_up(module: Any, path: str, name: str) -> Callable[..., Any]:
    found = module
    for step in path.split("."):
        found = getattr(found, step, None)
    origin = getattr(module, "__file__", None) or "no file"
    if found is None:
        raise LoadError(f"the module {name} ({origin}) has no `{path}`")
    if not callable(found):
        raise LoadError(f"`{path}` of the module {name} ({origin}) cannot be called")
    checked: Callable[..., Any] = found
    return checked


def _raised_inside(error: TypeError) -> bool:
    """Whether the factory's own code ran; else the call itself did not fit."""
    here = error.__traceback__
    return here is not None and here.tb_next is not None


def _failed(factory: str, error: Exception) -> LoadError:
    traceback.print_exception(error)
    return LoadError(f"the factory {factory} raised {sentence(error)}")


def _required_text(agent: Any, name: str, factory: str) -> str:
    value = getattr(agent, name, None)
    if not isinstance(value, str) or not value:
        raise LoadError(f"the agent of {factory} has no `{name}`, a nonempty string")
    return value


def _schema(answer: Any) -> dict[str, Any]:
    schema = dict(fields_of(answer, "`schema()`"))
    if not schema:
        return {"type": "object", "properties": {}}
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), Mapping):
        raise TypeError("`schema()` is an object of `type: 'object'` with `properties`")
    return schema


async def _optional_fields(agent: Any, name: str) -> dict[str, Any] | None:
    value = await _attribute(agent, name)
    return None if value is None else dict(fields_of(value, f"`{name}`"))


async def _optional_list(agent: Any, name: str) -> list[Any] | None:
    value = await _attribute(agent, name)
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"`{name}` is a list, not a {type(value).__name__}")
    return list(value)


async def _attribute(agent: Any, name: str) -> Any:
    value = getattr(agent, name, None)
    return await settled(value()) if callable(value) else value
