"""The configuration: a TOML file and the command line's own settings, checked as a whole.

Nothing of an agent is imported or looked for here: a factory is a name, and the
installed agents are found by their distributions' metadata alone.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, get_args

import attrs
from attrs import field, frozen

from ..contracts.json import JsonError, decode_json, encode_json
from .bounds import Bounds
from .store.interface import Durability
from .toml_keys import (
    Keys,
    WrongKey,
    boolean_of,
    check_keys,
    integer_of,
    kind_of,
    line_of,
    list_of,
    path_of,
    port_of,
    string_of,
    syntax_sentence,
    table_of,
    value_or_text,
)

#: The entry point group under which distributions offer agents.
AGENTS_GROUP = "ahpd.agents"

#: A configuration file is read no further than this.
MAX_FILE_BYTES = 1024 * 1024

#: What an agent can show itself as on the agent-contracts wire (its schema's `AgentKind`).
AGENT_KINDS = ("claude", "codex", "gemini", "copilot", "apple")

# A name is the provider on every wire, and clients spell a session `NAME:/<id>`:
# so it is written like a URI's scheme (RFC 3986, 3.1), and is none of AHP's own.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,63}")
_RESERVED_NAME = re.compile(r"(?i:ahp-.*|file|https?|wss?)")
_FACTORY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: Environment variables that are the host's to set in a worker.
_OWN_VARIABLES = frozenset({"AHPD_MARK"})


class ConfigurationError(Exception):
    """The configuration cannot be used; the message is one sentence, with the file and the line."""


@frozen(kw_only=True)
class AgentConfig:
    """One agent that the host offers.

    Attributes:
        factory: `module:callable`, looked up by the worker, never by the host.
        options: JSON values, the factory's keyword arguments.
        env: variables set for its workers.
        pass_env: variables of the host that its workers get too.
        kind: how it shows itself on the agent-contracts wire, when not as it says itself.
    """

    factory: str
    options: Mapping[str, Any] = field(factory=dict)
    env: Mapping[str, str] = field(factory=dict)
    pass_env: tuple[str, ...] = ()
    kind: str | None = None


@frozen(kw_only=True)
class HostConfig:
    """Where the host listens and what it keeps; None and empty: the command line's default."""

    host: str | None = None
    port: int | None = None
    state_dir: Path | None = None
    durability: Durability | None = None
    agent_path: tuple[Path, ...] = ()
    allow_origin: tuple[str, ...] = ()
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    no_token: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False


@frozen(kw_only=True)
class Configuration:
    """Everything that `start` needs to know. Agents keep the order in which they were named."""

    agents: Mapping[str, AgentConfig] = field(factory=dict)
    bounds: Bounds = field(factory=Bounds)
    host: HostConfig = field(factory=HostConfig)

    def with_agents(self, named: Iterable[str]) -> "Configuration":
        """This configuration with the command line's `NAME=MODULE:FACTORY` added.

        One of a name that the file has too takes over its factory and keeps the rest.

        Raises:
            ConfigurationError: one is not spelled like that.
        """
        agents = dict(self.agents)
        for text in named:
            name, equals, factory = text.partition("=")
            try:
                if not equals:
                    raise WrongKey((), "is not spelled NAME=MODULE:FACTORY")
                _check_name(name, ())
                _check_factory(factory, ())
            except WrongKey as wrong:
                raise ConfigurationError(f"--agent {text}: {wrong.what}") from None
            known = agents.get(name, AgentConfig(factory=factory))
            agents[name] = attrs.evolve(known, factory=factory)
        return attrs.evolve(self, agents=agents)

    def with_agent_options(self, options: Iterable[str]) -> "Configuration":
        """This configuration with the command line's `NAME.KEY=VALUE` set.

        VALUE is read as TOML, and taken as a string when it is none.

        Raises:
            ConfigurationError: one is not spelled like that, or names no agent.
        """
        agents = dict(self.agents)
        for text in options:
            target, equals, value = text.partition("=")
            # An agent's name may have dots; an option's never has.
            name, dot, key = target.rpartition(".")
            where = f"--agent-option {text}"
            if not equals or not dot:
                raise ConfigurationError(f"{where}: is not spelled NAME.KEY=VALUE")
            if name not in agents:
                raise ConfigurationError(f"{where}: there is no agent {name!r}{_known(agents)}")
            merged = {**agents[name].options, key: value_or_text(value)}
            try:
                agents[name] = attrs.evolve(agents[name], options=_options(merged, ()))
            except WrongKey as wrong:
                raise ConfigurationError(f"{where}: {wrong.sentence()}") from None
        return attrs.evolve(self, agents=agents)

    def with_installed_agents(self) -> "Configuration":
        """This configuration with the installed agents added whose names are free."""
        installed = {name: AgentConfig(factory=value) for name, value in installed_agents().items()}
        return attrs.evolve(self, agents={**installed, **self.agents})


def load_configuration(path: Path) -> Configuration:
    """The configuration in a TOML file. Relative paths in it are relative to its folder.

    Raises:
        ConfigurationError: the file cannot be read, is no TOML, or a key or a
            value is not one of ours.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror or error}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigurationError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{path}, line {line}: not UTF-8") from None
    return parse_configuration(text, path)


def parse_configuration(text: str, path: Path) -> Configuration:
    """The configuration in a TOML text.

    Args:
        text: the file's text.
        path: its name, for sentences and for the relative paths in it.

    Raises:
        ConfigurationError: as `load_configuration`.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(syntax_sentence(path, text, error)) from None
    except RecursionError:
        raise ConfigurationError(f"{path}: nested too deeply") from None
    try:
        return _configuration(document, path.parent)
    except WrongKey as wrong:
        line = line_of(text, wrong.keys)
        place = f"{path}, line {line}" if line else str(path)
        raise ConfigurationError(f"{place}: {wrong.sentence()}") from None


def installed_agents() -> dict[str, str]:
    """Agents that installed distributions offer: name to `module:callable`, sorted, unimported.

    One whose name or factory could not be used is left out.
    """
    return {
        point.name: point.value
        for point in sorted(entry_points(group=AGENTS_GROUP), key=lambda point: point.name)
        if _NAME.fullmatch(point.name) and _FACTORY.fullmatch(point.value)
    }


def _configuration(document: dict[str, Any], folder: Path) -> Configuration:
    check_keys(document, ("agents", "bounds", "host"), ())
    agents = table_of(document.get("agents", {}), ("agents",))
    return Configuration(
        agents={name: _agent(name, value) for name, value in agents.items()},
        bounds=_bounds(table_of(document.get("bounds", {}), ("bounds",))),
        host=_host(table_of(document.get("host", {}), ("host",)), folder),
    )


def _agent(name: str, value: Any) -> AgentConfig:
    keys = ("agents", name)
    _check_name(name, keys)
    table = table_of(value, keys)
    check_keys(table, [attribute.name for attribute in attrs.fields(AgentConfig)], keys)
    if "factory" in table:
        factory = string_of(table["factory"], (*keys, "factory"))
        _check_factory(factory, (*keys, "factory"))
    else:
        installed = installed_agents()
        if name not in installed:
            what = f"needs a factory: no agent {name!r} is installed{_known(installed)}"
            raise WrongKey(keys, what)
        factory = installed[name]
    kind = string_of(table["kind"], (*keys, "kind")) if "kind" in table else None
    if kind is not None and kind not in AGENT_KINDS:
        raise WrongKey((*keys, "kind"), f"is one of {', '.join(AGENT_KINDS)}, not {kind!r}")
    return AgentConfig(
        factory=factory,
        kind=kind,
        options=_options(table.get("options", {}), (*keys, "options")),
        env=_environment(table.get("env", {}), (*keys, "env")),
        pass_env=_variables(table.get("pass_env", []), (*keys, "pass_env")),
    )


def _bounds(table: dict[str, Any]) -> Bounds:
    known = {attribute.name: attribute for attribute in attrs.fields(Bounds)}
    check_keys(table, known, ("bounds",))
    for name, value in table.items():
        if known[name].type is int:
            integer_of(value, ("bounds", name))
        elif not isinstance(value, int | float) or isinstance(value, bool):
            raise WrongKey(("bounds", name), f"a number is needed, not {kind_of(value)}")
        try:
            # Alone first, so that the key that is wrong is the one that is named.
            if name != "max_outbound_bytes":
                Bounds(**{"max_outbound_bytes": 1 << 62, name: value})
        except (ValueError, OverflowError) as error:
            raise WrongKey(("bounds", name), str(error)) from None
    try:
        return Bounds(**table)
    except (ValueError, OverflowError) as error:
        named = "max_outbound_bytes" if "max_outbound_bytes" in table else "max_frame_bytes"
        raise WrongKey(("bounds", named), str(error)) from None


def _host(table: dict[str, Any], folder: Path) -> HostConfig:
    readers: dict[str, Callable[[Any, Keys], Any]] = {
        "host": string_of,
        "port": port_of,
        "state_dir": lambda value, keys: path_of(value, keys, folder),
        "durability": _durability,
        "agent_path": lambda value, keys: tuple(
            path_of(one, keys, folder) for one in list_of(value, keys)
        ),
        "allow_origin": lambda value, keys: tuple(
            string_of(one, keys) for one in list_of(value, keys)
        ),
        "token": string_of,
        "token_file": lambda value, keys: path_of(value, keys, folder),
        "no_token": boolean_of,
        "tls_cert": lambda value, keys: path_of(value, keys, folder),
        "tls_key": lambda value, keys: path_of(value, keys, folder),
        "insecure": boolean_of,
    }
    check_keys(table, readers, ("host",))
    return HostConfig(
        **{name: readers[name](value, ("host", name)) for name, value in table.items()}
    )


def _durability(value: Any, keys: Keys) -> Durability:
    known: tuple[Durability, ...] = get_args(Durability)
    for one in known:
        if value == one:
            return one
    raise WrongKey(keys, f"is one of {', '.join(known)}, not {value!r}")


def _check_name(name: str, keys: Keys) -> None:
    if not _NAME.fullmatch(name):
        what = "an agent's name is a letter and then letters, digits, '+', '-' or '.', at most 64"
        raise WrongKey(keys, what)
    if _RESERVED_NAME.fullmatch(name):
        raise WrongKey(keys, f"{name!r} means something else in a URI; name the agent otherwise")


def _check_factory(factory: str, keys: Keys) -> None:
    if not _FACTORY.fullmatch(factory):
        raise WrongKey(keys, f"{factory!r} is not spelled MODULE:FACTORY")


def _options(value: Any, keys: Keys) -> dict[str, Any]:
    table = table_of(value, keys)
    for name, option in table.items():
        if not name.isidentifier():
            raise WrongKey((*keys, name), "an option is a keyword argument: a Python identifier")
        try:
            # What TOML has and JSON has not: dates, times, nan, inf. Depth and size of
            # numbers are JSON's too.
            if decode_json(encode_json(option)) != option:
                raise WrongKey((*keys, name), "an option is a value that JSON can say")
        except (JsonError, TypeError) as error:
            raise WrongKey(
                (*keys, name), f"an option is a value that JSON can say: {error}"
            ) from None
    return table


def _environment(value: Any, keys: Keys) -> dict[str, str]:
    table = table_of(value, keys)
    for name, setting in table.items():
        _variable(name, (*keys, name))
        if "\0" in string_of(setting, (*keys, name)):
            raise WrongKey((*keys, name), "a variable cannot hold a NUL")
    return table


def _variables(value: Any, keys: Keys) -> tuple[str, ...]:
    return tuple(_variable(string_of(name, keys), keys) for name in list_of(value, keys))


def _variable(name: str, keys: Keys) -> str:
    if not _VARIABLE.fullmatch(name):
        raise WrongKey(keys, f"{name!r} is no environment variable's name")
    if name in _OWN_VARIABLES:
        raise WrongKey(keys, f"{name} is the host's own to set")
    return name


def _known(names: Iterable[str]) -> str:
    said = ", ".join(sorted(names))
    return f"; there are: {said}" if said else "; there are none"
