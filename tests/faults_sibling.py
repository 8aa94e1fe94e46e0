"""The sibling's client as a program of its own, so that nothing else holds up its clock.

    faults_sibling.py URL UNTIL

Makes the session `steady-1` of the agent `steady` and prints a JSON line when it is
there. Then it obeys lines on stdin: `speak TURN` begins a turn, `end` ends it and
answers what was lost and measured. It leaves when its stdin ends.
"""

import json
import sys
from pathlib import Path
from typing import Any

import trio

from ahp_client import connect
from hostile_sibling import UNGATHERED, Sibling

SESSION = "ahp-session:/steady-1"


async def main(url: str, until: str) -> None:
    async with connect(url, "beside") as client, trio.open_nursery() as nursery:
        await client.initialize(initialSubscriptions=["ahp-root://"])
        await client.request("createSession", channel=SESSION, provider="steady")
        chat = (await client.subscribe(SESSION))["defaultChat"]
        await client.subscribe(chat, delivery=UNGATHERED)
        await client.until(lambda: client.states[SESSION]["lifecycle"] == "ready")
        sibling = Sibling(client, SESSION, chat, Path(until))
        nursery.start_soon(sibling.watch)
        _say({"ready": True})
        await _obey(sibling)
        nursery.cancel_scope.cancel()


async def _obey(sibling: Sibling) -> None:
    while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        match line.split():
            case ["speak", turn_id]:
                await sibling.speak(turn_id)
                _say({"speaks": turn_id})
            case ["end"]:
                pause_ms = sibling.longest_pause_s * 1000
                way_ms = sibling.longest_way_s * 1000
                lost = await sibling.end()
                _say({"lost": lost, "pause_ms": pause_ms, "way_ms": way_ms})


def _say(told: dict[str, Any]) -> None:
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:3])
