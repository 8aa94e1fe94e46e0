"""Agents whose session never comes to be."""

import os
import sys
import time
from typing import Any

from fixture_base import Agent
from hostile_strays import leave_strays


def raises() -> Agent:
    return Agent(_raises)


def loops() -> Agent:
    return Agent(_loops)


def exits() -> Agent:
    return Agent(_exits)


def leaves_strays() -> Agent:
    return Agent(_leaves_strays)


def _raises(start: Any) -> Any:
    raise PermissionError("the licence has run out")


def _loops(start: Any) -> Any:
    while True:
        time.sleep(0.01)


def _exits(start: Any) -> Any:
    print("no key in the drawer", file=sys.stderr)
    os._exit(3)


def _leaves_strays(start: Any) -> Any:
    raise OSError(f"all for nothing: {leave_strays()}")
