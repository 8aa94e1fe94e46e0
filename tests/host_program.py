"""A host as a program of its own, for tests that kill it: `host_program.py STATE_DIR FACTORY`.

Serves one agent, `hostile`, and prints one JSON line `{"url": …, "keeper": …}`
once it listens: the address with its token, and the keeper's process.
"""

import json
import sys
from pathlib import Path

import trio

from live_host import live_host


async def main(state_dir: str, factory: str) -> None:
    """Serves until it is killed."""
    async with live_host(Path(state_dir), {"hostile": factory}) as live:
        print(json.dumps({"url": live.url, "keeper": live.launcher.pid}), flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
