"""A host as a user starts it, the sibling beside, and how to look at its processes from outside."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import trio

from ahpd.contracts.control_wire import Nothing, Processes, Status
from ahpd.supervisor.cli.control import ControlClient
from ahpd.supervisor.processes.kernel import Stat, read_stat, read_tree
from cli_host import CliHost
from hostile_stage import mark_of, marked_pids, same_process
from hostile_table import Row
from live_host import AGENTS_FOLDER, HOSTILE_FOLDER

Json = dict[str, Any]

SIBLING = Path(__file__).parent / "faults_sibling.py"
SIBLING_ID = "steady-1"

#: Of one answer of the sibling's program, on a machine that is busy.
ANSWER_LIMIT_S = 60


class SiblingProgram:
    """`faults_sibling.py` at work."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin: IO[str] = process.stdin
        self._stdout: IO[str] = process.stdout

    async def answer(self) -> Json:
        """The next line that it says.

        Raises:
            AssertionError: it died, or does not answer.
        """
        line = ""
        with trio.move_on_after(ANSWER_LIMIT_S):
            line = await trio.to_thread.run_sync(self._stdout.readline, abandon_on_cancel=True)
        assert line, "the sibling's client died or hangs"
        return dict(json.loads(line))

    async def ask(self, *words: str) -> Json:
        """Tells it to do something and answers what came of it."""
        try:
            self._stdin.write(" ".join(words) + "\n")
            self._stdin.flush()
        except OSError:
            raise AssertionError("the sibling's client died") from None
        return await self.answer()


class FaultsHost:
    """A started host, and what runs for it.

    Attributes:
        url: where it listens.
        pid: the supervisor's process.
        mark: what its workers bear in their environment.
    """

    def __init__(self, cli: CliHost, control: ControlClient, sibling: SiblingProgram) -> None:
        self.url = cli.ahp
        self.pid = cli.pid
        self.sibling = sibling
        self._process = cli.process
        self._control = control
        pids = [worker.pid for worker in self._workers() if worker.session == SIBLING_ID]
        assert pids[0] is not None
        self.mark = mark_of(pids[0])
        self._spared = self._spared_now()

    @property
    def death(self) -> str | None:
        """How the supervisor died; None while it lives."""
        code = self._process.poll()
        return None if code is None else f"the host died (status {code})"

    def memory_bytes(self) -> int:
        """What the supervisor holds (`VmRSS`); 0 for one that is dead."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return 0
        found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
        return int(found[1]) * 1024 if found is not None else 0

    def running(self) -> set[Stat]:
        """What runs for hostile sessions now: the keeper's tree, less what has another reason."""
        status: Status = self._control.ask("host.status", Nothing())
        tree = read_tree(status.keeper_pid) if status.keeper_pid is not None else []
        spared = self._spared_now()
        return {stat for stat in tree[1:] if stat.pid not in spared}

    def left(self, met: set[Stat]) -> list[Stat]:
        """Of what was met and of what bears the mark: what is still there."""
        found = self._left(met)
        if found:
            # A catalogue's worker may have come meanwhile. Asked only then: to answer it the
            # host reads a file or two of each process.
            self._spared = self._spared_now()
            found = self._left(met)
        return found

    def _left(self, met: set[Stat]) -> list[Stat]:
        marked = set(marked_pids(self.mark)) - self._spared
        still = {stat.pid for stat in met if same_process(stat)}
        stats = [read_stat(pid) for pid in marked | still]
        return [stat for stat in stats if stat is not None]

    def _spared_now(self) -> set[int]:
        pids = [
            worker.pid
            for worker in self._workers()
            if worker.chat is None or worker.session == SIBLING_ID
        ]
        return {stat.pid for pid in pids if pid is not None for stat in read_tree(pid)}

    def _workers(self) -> list[Any]:
        told: Processes = self._control.ask("host.processes", Nothing())
        return told.workers


@contextmanager
def started(folder: Path, rows: Sequence[Row], bounds: Json) -> Iterator[tuple[CliHost, Path]]:
    """A host that serves those agents and the sibling's, and the file that ends the sibling's turn.

    Args:
        folder: an empty one, for its state and its configuration.
    """
    until = folder / "until"
    config = folder / "faults.toml"
    config.write_text(_configuration(rows, bounds, until))
    paths = [word for path in (AGENTS_FOLDER, HOSTILE_FOLDER) for word in ("--agent-path", path)]
    with CliHost(folder / "state", "--config", config, *paths, cwd=folder) as cli:
        yield cli, until


@contextmanager
def sibling_of(cli: CliHost, until: Path) -> Iterator[SiblingProgram]:
    """The sibling's program, talking to that host."""
    command = [sys.executable, str(SIBLING), cli.ahp, str(until)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield SiblingProgram(process)
            # It leaves when its stdin ends; one whose host died has left before.
            process.communicate(timeout=ANSWER_LIMIT_S)
        finally:
            process.kill()


def _configuration(rows: Sequence[Row], bounds: Json, until: Path) -> str:
    # What JSON says of a string or a number TOML says as well.
    tables = [("bounds", bounds)]
    tables += [(f"agents.{row.name}", {"factory": row.factory}) for row in rows]
    tables += [("agents.steady", {"factory": "steady:create"})]
    tables += [("agents.steady.options", {"until": str(until)})]
    return "\n".join(
        line
        for name, table in tables
        for line in (f"[{name}]", *(f"{key} = {json.dumps(table[key])}" for key in table))
    )
