"""What holds a flood back: the pace at which a worker is read, and the news of a session's row."""

import trio
import trio.testing

from ahpd.supervisor.processes.pace import Pace
from ahpd.supervisor.sessions.row_news import AT_ONCE, WINDOW_S, RowNews


async def test_a_burst_is_free_and_the_rest_goes_at_the_rate(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pace = Pace(per_s=100, burst=50)
    began_s = trio.current_time()
    for _ in range(49):
        pace.spend()
        assert not pace.owes
    for _ in range(201):
        pace.spend()
        await pace.settle()
    assert 1.99 < trio.current_time() - began_s < 2.02


async def test_a_pause_earns_a_burst_and_never_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pace = Pace(per_s=100, burst=50)
    await trio.sleep(3600)
    for _ in range(49):
        pace.spend()
    assert not pace.owes
    for _ in range(2):
        pace.spend()
    assert pace.owes


async def test_what_is_spent_without_settling_is_owed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pace = Pace(per_s=100, burst=1)
    for _ in range(101):
        pace.spend()
    began_s = trio.current_time()
    await pace.settle()
    assert 0.99 < trio.current_time() - began_s < 1.02


async def test_what_is_large_counts_by_its_size(autojump_clock: trio.testing.MockClock) -> None:
    pace = Pace(per_s=100, burst=50, bytes_per_s=1000)
    pace.spend(499)
    assert not pace.owes
    pace.spend(2001)
    began_s = trio.current_time()
    await pace.settle()
    assert 1.99 < trio.current_time() - began_s < 2.02
    # What is small costs what one costs.
    for _ in range(100):
        pace.spend(9)
    await pace.settle()
    assert 2.99 < trio.current_time() - began_s < 3.02


class Row:
    """A row that changes, and everything that was told of it."""

    def __init__(self) -> None:
        self.value = 0
        self.told = [0]

    def tell(self) -> bool:
        if self.told[-1] == self.value:
            return False
        self.told.append(self.value)
        return True


async def test_a_few_changes_of_a_row_are_told_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        row = Row()
        news = RowNews(nursery, row.tell)
        for row.value in range(1, AT_ONCE + 1):
            news.changed()
            news.changed()  # nothing is other than before
        assert row.told == list(range(AT_ONCE + 1))


async def test_a_flood_of_changes_is_told_by_its_newest_state_and_ends_with_the_last(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        row = Row()
        news = RowNews(nursery, row.tell)
        for row.value in range(1, 100_001):
            news.changed()
            if row.value % 100 == 0:
                await trio.sleep(WINDOW_S / 100)
        assert len(row.told) <= 12 * (AT_ONCE + 1)
        await trio.sleep(2 * WINDOW_S)
        assert row.told[-1] == 100_000


async def test_who_is_shown_a_row_was_told_what_it_is(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        row = Row()
        news = RowNews(nursery, row.tell)
        for row.value in range(1, AT_ONCE + 11):
            news.changed()
        assert row.told[-1] == AT_ONCE
        news.flush()
        assert row.told[-1] == AT_ONCE + 10
