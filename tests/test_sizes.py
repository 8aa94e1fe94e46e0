"""Sizes: what an agent says in one turn is bounded, whether its actions add or replace."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ahpd.supervisor.sessions.sizes import UNSEEN_SHARE, TurnSize, cut, size_of

Json = dict[str, Any]

LIMIT = 2000


class Turn:
    """A turn of parts that grow and are replaced, as an agent's actions have it."""

    def __init__(self) -> None:
        self.size = TurnSize(LIMIT)
        self.state: Json = {"id": "t", "message": {"text": "m" * 5 * LIMIT}, "responseParts": []}

    def put(self, index: int | None, text: str) -> bool:
        """Replaces the part of that number, or adds one; answers whether there was room."""
        part = {"kind": "markdown", "content": text}
        if not self.size.has_room(self.state, size_of(part) + 1):
            return False
        parts = list(self.state["responseParts"])
        if index is None:
            parts.append(part)
        else:
            parts[index : index + 1] = [part]
        self.state = {**self.state, "responseParts": parts}
        return True

    @property
    def bytes(self) -> int:
        return size_of({**self.state, "message": None})


@given(st.lists(st.tuples(st.none() | st.integers(0, 5), st.integers(0, 500)), max_size=200))
def test_a_turn_never_grows_past_its_limit_by_more_than_the_unseen_share(
    steps: list[tuple[int | None, int]],
) -> None:
    turn = Turn()
    empty = turn.bytes
    for index, length in steps:
        turn.put(index, "x" * length)
        assert turn.bytes <= LIMIT * (1 + UNSEEN_SHARE) + empty
        assert turn.bytes <= turn.size.at_most + empty


def test_a_part_that_is_replaced_again_and_again_does_not_fill_a_turn() -> None:
    turn = Turn()
    assert all(turn.put(0, "x" * 1000) for _ in range(1000))


def test_what_is_added_again_and_again_does() -> None:
    turn = Turn()
    assert not all(turn.put(None, "x" * 100) for _ in range(30))
    # What is measured for one turn does not count for the next.
    turn.size.begin()
    turn.state = {**turn.state, "responseParts": []}
    assert turn.put(None, "x" * 100)


def test_words_are_cut_with_an_ellipsis() -> None:
    assert cut("short", 5) == "short"
    assert cut("longer", 5) == "long…"
