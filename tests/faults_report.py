"""What was observed of a hostile agent, whether it was contained, and how that is told.

Pure: an observation in, sentences out. `faults.py` observes.
"""

import json
from collections.abc import Mapping, Sequence

from attrs import asdict, frozen

from hostile_table import Row

MIB = 1024 * 1024

#: What the longest pause of a sibling should stay under. Told, and no part of containment:
#: on a machine that is busy it is the machine's.
PAUSE_TARGET_MS = 100


@frozen(kw_only=True)
class Observed:
    """One hostile agent's run, as it was seen from outside.

    Attributes:
        agent: the name of its row.
        endings: for each client and turn the endings that it saw, in order.
        saw: the misbehaviour's end as a client was told it: the `errorType` if there
            was one, and a sentence.
        differs: the clients whose reduced state is not what a fresh snapshot shows, with
            the channel.
        left: the processes that were left after its session was killed.
        lost: what the sibling lost, if anything.
        unanswered: what the host or the chat did not answer afterwards, if anything.
        failure: what else did not happen that had to.
        pause_ms, way_ms: the longest of the sibling (see `hostile_sibling`).
        before_bytes, after_bytes: of the supervisor's memory.
    """

    agent: str
    endings: Mapping[str, Sequence[str]]
    saw: tuple[str, str]
    differs: Sequence[str] = ()
    left: Sequence[str] = ()
    lost: str | None = None
    unanswered: str | None = None
    failure: str | None = None
    pause_ms: float
    way_ms: float
    before_bytes: int
    after_bytes: int


@frozen(kw_only=True)
class Judged:
    """An observation and every reason why it is not containment; none: it is contained."""

    observed: Observed
    reasons: Sequence[str]

    @property
    def contained(self) -> bool:
        """Whether the walls held."""
        return not self.reasons


def judge(row: Row, seen: Observed) -> Judged:
    """Holds what was observed against what containment means, and against the agent's row."""
    reasons = []
    if seen.failure is not None:
        reasons.append(seen.failure)
    if not seen.endings:
        reasons.append("no client saw anything end")
    for who, kinds in seen.endings.items():
        if len(kinds) != 1:
            reasons.append(f"{who}: {len(kinds)} endings ({', '.join(kinds) or 'none'})")
        elif who.endswith(MISBEHAVED) and kinds[0] != row.ending:
            reasons.append(f"{who}: ended by {kinds[0]} and not by {row.ending}")
    error_type, sentence = seen.saw
    if row.says and (error_type != row.says[0] or not _in_order(row.says[1:], sentence)):
        reasons.append(f"its clients were told {error_type}: {sentence}")
    reasons += [f"{who}: not the state of a fresh snapshot" for who in seen.differs]
    if seen.left:
        reasons.append(f"left: {', '.join(seen.left)}")
    if seen.lost is not None:
        reasons.append(f"the sibling: {seen.lost}")
    if seen.unanswered is not None:
        reasons.append(seen.unanswered)
    return Judged(observed=seen, reasons=reasons)


#: How a name in `Observed.endings` ends that is of the misbehaviour's own turn.
MISBEHAVED = "misbehaviour"


def _in_order(texts: Sequence[str], sentence: str) -> bool:
    position = 0
    for text in texts:
        found = sentence.find(text, position)
        if found < 0:
            return False
        position = found + len(text)
    return True


# -- telling ------------------------------------------------------------------------------

HEAD = (
    f"{'agent':28}{'contained':>10}{'left':>6}{'pause ms':>10}{'way ms':>8}"
    f"{'memory MiB':>16}  what its clients saw"
)


def line_of(judged: Judged) -> str:
    """One row of the table; below it each reason why it is not contained."""
    seen = judged.observed
    error_type, sentence = seen.saw
    told = f"{error_type}: {sentence}" if error_type else sentence
    memory = f"{seen.before_bytes / MIB:.1f} > {seen.after_bytes / MIB:.1f}"
    lines = [
        f"{seen.agent:28}{'yes' if judged.contained else 'NO':>10}{len(seen.left):>6}"
        f"{seen.pause_ms:>10.0f}{seen.way_ms:>8.0f}{memory:>16}  {told[:160]}",
        *(f"    {reason}" for reason in judged.reasons),
    ]
    return "\n".join(lines)


def last_line(all_judged: Sequence[Judged], strays: int = 0) -> str:
    """`N of N contained, 0 processes left`.

    Args:
        strays: processes that were left when the hosts themselves had ended.
    """
    contained = sum(judged.contained for judged in all_judged)
    left = sum(len(judged.observed.left) for judged in all_judged) + strays
    processes = "process" if left == 1 else "processes"
    return f"{contained} of {len(all_judged)} contained, {left} {processes} left"


def status_of(all_judged: Sequence[Judged], strays: int = 0) -> int:
    """The exit status: 0 when there was something to contain and all of it was."""
    held = bool(all_judged) and all(judged.contained for judged in all_judged)
    return 0 if held and strays == 0 else 1


def pauses(all_judged: Sequence[Judged]) -> str:
    """The sibling's pauses over all rows, against the target."""
    if not all_judged:
        return "no agent ran"
    worst = max(all_judged, key=lambda judged: judged.observed.pause_ms).observed
    over = sum(judged.observed.pause_ms >= PAUSE_TARGET_MS for judged in all_judged)
    return (
        f"the sibling's longest pause: {worst.pause_ms:.0f} ms, beside {worst.agent}; "
        f"{over} of {len(all_judged)} reached {PAUSE_TARGET_MS} ms"
    )


def as_json(all_judged: Sequence[Judged], strays: int = 0) -> str:
    """All of it as one JSON document."""
    rows = [
        {
            **asdict(judged.observed),
            "contained": judged.contained,
            "reasons": list(judged.reasons),
        }
        for judged in all_judged
    ]
    return json.dumps({"agents": rows, "summary": last_line(all_judged, strays)}, indent=2)
