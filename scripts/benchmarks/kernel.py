"""What the kernel says of processes: their children, their memory, the CPU they used."""

from pathlib import Path


def children(pid: int) -> list[int]:
    """A process's children, those of every thread of it."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found.extend(map(int, (task / "children").read_text().split()))
    return found


def descendants(pid: int) -> set[int]:
    """Its children and theirs; what ends meanwhile is passed over."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        try:
            for child in children(waiting.pop()):
                if child not in found:
                    found.add(child)
                    waiting.append(child)
        except FileNotFoundError:
            continue
    return found


def pss_bytes(pid: int) -> int:
    """Proportional set size: memory that is shared counts in parts."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"no Pss of {pid}")


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used, in all its threads that still live."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
