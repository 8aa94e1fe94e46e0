"""The sources that are packaged: their digest, and a clean copy of them to build from.

    clean_copy.py ROOT            prints the digest of the sources under ROOT
    clean_copy.py ROOT FOLDER     copies them into FOLDER, prints the digest of the copy

A build in the working tree would keep what an earlier one left in `build/lib`,
deleted modules among it. The list is made from the folders, not from git: a
module that nobody added yet counts, and an unpacked archive has no git.
"""

import hashlib
import sys
from pathlib import Path

ROOMS = ("contracts", "worker", "supervisor", "agents")
FILES = ("pyproject.toml", "README.md", "LICENSE")


def source_files(root: Path) -> list[Path]:
    """Paths of the packaged sources, relative to `root` and in one order everywhere."""
    found = [Path(name) for name in FILES if (root / name).is_file()]
    for room in ROOMS:
        for path in (root / room).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found.append(path.relative_to(root))
    return sorted(found)


def main() -> None:
    root = Path(sys.argv[1])
    copy = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    digest = hashlib.sha256()
    for path in source_files(root):
        # Read once: the digest is that of the copy, whoever is editing meanwhile.
        content = (root / path).read_bytes()
        name = path.as_posix().encode()
        digest.update(b"%d %d\n%b\n%b\n" % (len(name), len(content), name, content))
        if copy is not None:
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            (copy / path).write_bytes(content)
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
