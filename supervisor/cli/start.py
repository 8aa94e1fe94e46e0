"""`start`: runs a host in the foreground."""

import gc
import os
import shlex
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .failures import BadInput, OutputRefused
from .folders import absolute, current_folder
from .output import as_json, give_up_stdout

if TYPE_CHECKING:
    from ..configuration import Configuration, HostConfig
    from ..service import Options, Running

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9187

_FILE = click.Path(path_type=Path)


@click.command(short_help="Run a host in the foreground.")
@click.option("--host", metavar="ADDRESS", help=f"Where to listen.  [default: {DEFAULT_HOST}]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help=f"The port; 0 picks a free one.  [default: {DEFAULT_PORT}]",
)
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the host keeps what it keeps.  [default: the user's own, by XDG]",
)
@click.option("--config", type=_FILE, metavar="FILE", help="A configuration in TOML.")
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME=MODULE:FACTORY",
    help="An agent to serve; again for each. Without any, here and in the configuration, "
    "those that are installed.",
)
@click.option(
    "--agent-option",
    "agent_options",
    multiple=True,
    metavar="NAME.KEY=VALUE",
    help="An option of an agent's factory. VALUE is TOML, or a string when it is none.",
)
@click.option(
    "--agent-path",
    "agent_path",
    multiple=True,
    type=_FILE,
    metavar="DIR",
    help="Where agents' modules are found, beside the environment; again for each.  "
    "[default: the current folder]",
)
@click.option("--token", metavar="TOKEN", help="What clients must present.")
@click.option("--token-file", type=_FILE, metavar="FILE", help="A file that holds that token.")
@click.option("--no-token", is_flag=True, help="Let every client in (on loopback only).")
@click.option(
    "--allow-origin",
    "allow_origin",
    multiple=True,
    metavar="ORIGIN",
    help="A web page's origin that may connect; again for each.",
)
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="A certificate chain, PEM.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Its private key, PEM.")
@click.option("--insecure", is_flag=True, help="Listen beyond this machine without TLS.")
@click.option(
    "--json",
    "as_json_line",
    is_flag=True,
    help="Print one line of JSON, once it listens, in place of the text.",
)
def start(
    host: str | None,
    port: int | None,
    state_dir: Path | None,
    config: Path | None,
    agents: tuple[str, ...],
    agent_options: tuple[str, ...],
    agent_path: tuple[Path, ...],
    token: str | None,
    token_file: Path | None,
    no_token: bool,
    allow_origin: tuple[str, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    insecure: bool,
    as_json_line: bool,
) -> int:
    """Run a host in the foreground, until Ctrl-C or `ahpd-supervisor stop`.

    Prints its address, with the token that lets a client in, once it listens. A token is
    made on the first start and kept in the state directory. What is given here goes before
    what the configuration says.
    """
    from ..configuration import ConfigurationError, HostConfig
    from ..state_dir import StateDirError

    if sum((token is not None, token_file is not None, no_token)) > 1:
        raise BadInput("Only one of --token, --token-file and --no-token can be given.")
    given = HostConfig(
        host=host,
        port=port,
        state_dir=state_dir,
        agent_path=agent_path,
        allow_origin=allow_origin,
        token=token,
        token_file=token_file,
        no_token=no_token,
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure=insecure,
    )
    try:
        configuration = _configuration(config, agents, agent_options)
        options = _options(configuration, given)
    except (ConfigurationError, StateDirError) as error:
        raise BadInput(str(error)) from None
    return _run(options, as_json_line)


def _configuration(
    file: Path | None, agents: tuple[str, ...], agent_options: tuple[str, ...]
) -> "Configuration":
    from ..configuration import Configuration, load_configuration

    configuration = load_configuration(file) if file is not None else Configuration()
    configuration = configuration.with_agents(agents)
    if not configuration.agents:
        configuration = configuration.with_installed_agents()
    return configuration.with_agent_options(agent_options)


def _options(configuration: "Configuration", given: "HostConfig") -> "Options":
    """The configuration with the command line's words before the file's."""
    from ..service import Options
    from ..state_dir import default_state_dir

    filed = configuration.host
    # These belong together: who names a token here does not mean the file's `no_token`.
    admission = given if given.token is not None or given.token_file or given.no_token else filed
    tls = given if given.tls_cert or given.tls_key or given.insecure else filed
    agent_path = given.agent_path or filed.agent_path or (current_folder(),)
    port = given.port if given.port is not None else filed.port
    return Options(
        state_dir=absolute(given.state_dir or filed.state_dir or default_state_dir()),
        host=given.host or filed.host or DEFAULT_HOST,
        port=DEFAULT_PORT if port is None else port,
        durability=filed.durability or "process",
        agents=configuration.agents,
        agent_path=[str(absolute(path)) for path in agent_path],
        bounds=configuration.bounds,
        allow_origin=(*filed.allow_origin, *given.allow_origin),
        token=admission.token,
        token_file=admission.token_file,
        no_token=admission.no_token,
        tls_cert=None if tls.tls_cert is None else absolute(tls.tls_cert),
        tls_key=None if tls.tls_key is None else absolute(tls.tls_key),
        insecure=tls.insecure,
    )


def _run(options: "Options", as_json_line: bool) -> int:
    import trio

    from .. import log
    from ..service import StartError, serve, start_errors_unwrapped

    log.configure()
    # What was imported stays: a collection must not walk all of it while clients wait.
    gc.freeze()

    async def run() -> None:
        with start_errors_unwrapped():
            async with trio.open_nursery() as nursery:
                running: Running = await nursery.start(serve, options)
                _announce(options, running, as_json_line)
                await running.stopping.wait()
                # Whatever may be stuck then: the keeper ends the workers when we are gone.
                _leave_after(options.bounds.stop_timeout_s)

    try:
        trio.run(run)
    except StartError as error:
        raise BadInput(str(error)) from None
    return 0


def _announce(options: "Options", running: "Running", as_json_line: bool) -> None:
    if as_json_line:
        addresses = {"ahp": running.ahp, "chats": running.chats}
        said = as_json({"event": "listening", "pid": os.getpid(), **addresses})
    else:
        said = _welcome(options, running)
    try:
        print(said, flush=True)
    except (OSError, OutputRefused):
        # That nobody reads it is no reason to serve nobody.
        give_up_stdout()


def _welcome(options: "Options", running: "Running") -> str:
    from importlib.metadata import version

    named = "" if _is_default(options.state_dir) else f" --state-dir {_word(options)}"
    program = _program()
    # An agent that answers and asks shows more than one that echoes.
    agent = "notes" if "notes" in options.agents else next(iter(options.agents), None)
    lines = [
        f"ahpd-supervisor {version('ahpd-supervisor')} is listening (process {os.getpid()})",
        "",
        f"  AHP     {running.ahp}",
        f"  chats   {running.chats}",
        f"  agents  {', '.join(options.agents) or 'none'}",
        f"  state   {options.state_dir}",
        "",
    ]
    if agent is not None:
        lines += [
            "In another terminal, talk to an agent:",
            "",
            f"  {program} chat{named} --agent {agent}",
            "",
        ]
    return "\n".join([*lines, f"Ctrl-C, or `{program} stop{named}`, ends it."])


def _is_default(state_dir: Path) -> bool:
    from ..state_dir import StateDirError, default_state_dir

    try:
        return state_dir == default_state_dir()
    except StateDirError:
        return False


def _word(options: "Options") -> str:
    return shlex.quote(str(options.state_dir))


def _program() -> str:
    """How this program is called, from any folder."""
    name = Path(sys.argv[0]).name
    here = absolute(Path(sys.argv[0]))
    found = shutil.which(name)
    if found is not None and absolute(Path(found)) == here:
        return name
    if not here.is_file():
        return "ahpd-supervisor"
    return shlex.quote(str(here))


def _leave_after(seconds: float) -> None:
    def leave() -> None:
        print(f"the host did not stop within {seconds:g} s; it leaves now", file=sys.stderr)
        os._exit(1)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()
