"""The host that is fuzzed, as a process of its own: `fuzz_host.py STATE_DIR`.

One line on stdout says where it listens. It runs until its stdin ends, so that it
never outlives whoever started it, and logs on stderr.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import trio

from ahpd.supervisor import log
from live_host import live_host

AGENTS = {"echo": "ahpd.agents.echo:create", "fuzzed": "fixture_fuzzed:create"}

#: Small where a small bound makes a limit reachable, short where a fuzzed turn waits for it.
BOUNDS: dict[str, Any] = {
    "max_frame_bytes": 1024 * 1024,
    "max_outbound_bytes": 4 * 1024 * 1024,
    "replay_bytes": 8 * 1024 * 1024,
    "max_queued_messages": 20,
    "sessions_per_minute": 100_000,
    "handshake_timeout_s": 1.0,
    "cancel_grace_s": 0.2,
    "kill_grace_s": 0.2,
    "partial_frame_s": 0.5,
    "setter_timeout_s": 2.0,
    "gather_window_ms": 5.0,
}


async def main(state_dir: Path) -> None:
    options = {"echo": {"delay_ms": 5}}
    async with live_host(state_dir, AGENTS, options=options, **BOUNDS) as live:
        print(json.dumps({"url": live.url, "pid": os.getpid()}), flush=True)
        async with trio.lowlevel.FdStream(os.dup(0)) as stdin:
            while await stdin.receive_some():
                pass


if __name__ == "__main__":
    log.configure()
    trio.run(main, Path(sys.argv[1]))
