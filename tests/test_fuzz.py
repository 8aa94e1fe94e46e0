"""The fuzzing in short: a few examples of each strand against one host (`scripts/fuzz` runs many).

What the fuzzing found, each in its smallest form, stands below as a test of its own.
"""

from collections.abc import Iterator

import pytest

from fuzzing import STRANDS, FuzzedHost, fuzz, fuzzed_host

#: Examples of each strand, and how long they may take on a machine that is busy: a worker
#: dies in most of its own, so that they are dear.
EXAMPLES = {"bytes": 60, "frames": 60, "messages": 40, "worker": 20}
WITHIN_S = 6.0

SEED = 20261001


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzedHost]:
    with fuzzed_host(tmp_path_factory.mktemp("fuzz")) as host:
        yield host


@pytest.mark.parametrize("strand", STRANDS)
def test_whatever_comes_the_host_lives_and_its_neighbour_works_on(
    host: FuzzedHost, strand: str
) -> None:
    turns = host.neighbour.turns
    fuzz(host, strand, examples=EXAMPLES[strand], seed=SEED, within_s=WITHIN_S)
    host.neighbour_works_on(turns)
