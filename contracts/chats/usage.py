"""Usage: tokens and dollars over a period, and how much of a plan is left.

Token counts are whole numbers, prices dollars. A price nobody knows is None, which
is not free.
"""

from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias

from attrs import frozen

from .names import AccountId, UsageProvider
from .shape import Between, Count, NotNegative, Shape, WholeNumber

UsageResolution: TypeAlias = Literal["hour", "day"]


@frozen(kw_only=True)
class UsageTotals(Shape):
    """Tokens by what was done with them.

    `input` was neither read from a cache nor written to one. `cache_write1h` is a
    part of `cache_write`, and `reasoning` a part of `output`.
    """

    calls: Count
    input: Count
    cache_read: Count
    cache_write: Count
    cache_write1h: Count
    output: Count
    reasoning: Count


EMPTY_TOTALS = UsageTotals(
    calls=0, input=0, cache_read=0, cache_write=0, cache_write1h=0, output=0, reasoning=0
)


def total_tokens_of(totals: UsageTotals) -> int:
    """All tokens, each counted once."""
    return totals.input + totals.cache_read + totals.cache_write + totals.output


def add_totals(left: UsageTotals, right: UsageTotals) -> UsageTotals:
    """The totals of both."""
    return UsageTotals(
        calls=left.calls + right.calls,
        input=left.input + right.input,
        cache_read=left.cache_read + right.cache_read,
        cache_write=left.cache_write + right.cache_write,
        cache_write1h=left.cache_write1h + right.cache_write1h,
        output=left.output + right.output,
        reasoning=left.reasoning + right.reasoning,
    )


def sum_totals(totals: Iterable[UsageTotals]) -> UsageTotals:
    """The totals of all."""
    summed = EMPTY_TOTALS
    for one in totals:
        summed = add_totals(summed, one)
    return summed


def sum_costs(costs: Iterable[float | None]) -> float | None:
    """The dollars of all, or None when one of them is unknown: a part is not the whole."""
    summed = 0.0
    for cost in costs:
        if cost is None:
            return None
        summed += cost
    return summed


@frozen(kw_only=True)
class UsageAccount(Shape):
    """An account that a record names, removed ones included."""

    id: AccountId
    kind: UsageProvider
    label: str
    color: str | None = None


@frozen(kw_only=True)
class UsageBucket(Shape):
    """A slot of one model: `YYYY-MM-DD`, or an hour's ISO start, in the zone asked for."""

    slot: str
    provider: UsageProvider
    model: str
    totals: UsageTotals
    cost_usd: float | None
    cache_savings_usd: float
    sessions: Count
    account: AccountId | None = None


@frozen(kw_only=True)
class UsageModel(Shape):
    """A model over the whole period, and where its price came from."""

    provider: UsageProvider
    model: str
    totals: UsageTotals
    cost_usd: float | None
    price_basis: Literal["exact", "family", "override", "unknown"]
    priced_as: str | None
    account: AccountId | None = None


@frozen(kw_only=True)
class ProjectSpend(Shape):
    """What one provider took of a project."""

    cost_usd: float
    tokens: WholeNumber


@frozen(kw_only=True)
class UsageProject(Shape):
    """A folder over the whole period."""

    folder: str
    name: str
    project_id: str | None
    by_provider: dict[UsageProvider, ProjectSpend]
    totals: UsageTotals
    cost_usd: float


@frozen(kw_only=True)
class UsageSummary(Shape):
    """`usage.summary`: `from_` and `to` are dates, both in the period, read in `time_zone`.

    `accounts` narrows to those and splits every bucket and model by account.
    """

    from_: str
    to: str
    resolution: UsageResolution
    time_zone: str
    accounts: tuple[AccountId, ...] | None = None


@frozen(kw_only=True)
class UsageScan(Shape):
    """How fresh the numbers are."""

    at: float
    files: Count
    changed_files: Count
    duration_ms: Count
    running: bool
    failed: bool


@frozen(kw_only=True)
class UsagePricing(Shape):
    """Where prices came from."""

    source: Literal["litellm", "snapshot", "none"]
    fetched_at: float | None
    models: Count


@frozen(kw_only=True)
class UsageRate(Shape):
    """A reference rate from dollars to another currency, and its date."""

    currency: str
    rate: Annotated[float, Between(above=0)]
    date: str
    fetched_at: float


@frozen(kw_only=True)
class UsageRoot(Shape):
    """A place that records are read from."""

    provider: UsageProvider
    path: str
    status: Literal["ok", "missing", "failed"]
    message: str | None


@frozen(kw_only=True)
class UsageSummaryResult(Shape):
    """A period. `sessions` are distinct over all of it, which buckets cannot add up to."""

    from_: str
    to: str
    resolution: UsageResolution
    time_zone: str
    buckets: tuple[UsageBucket, ...]
    models: tuple[UsageModel, ...]
    projects: tuple[UsageProject, ...]
    sessions: Count
    scan: UsageScan
    pricing: UsagePricing
    rate: UsageRate | None
    roots: tuple[UsageRoot, ...]
    accounts: tuple[UsageAccount, ...] | None = None


@frozen(kw_only=True)
class UsageChanged(Shape):
    """`usage.changed`: ask for the period again."""

    scanned_at: float


@frozen(kw_only=True)
class UsageWindow(Shape):
    """A limit of a plan; `used` is a fraction from 0 to 1."""

    id: str
    kind: Literal["session", "weekly", "monthly", "other"]
    label: str
    used: Annotated[float, Between(0, 1)]
    resets_at: WholeNumber | None
    duration_ms: WholeNumber | None


@frozen(kw_only=True)
class UsageCost(Shape):
    """What the session cost so far."""

    session_usd: NotNegative


@frozen(kw_only=True)
class UsageUnavailable(Shape):
    """Why a plan could not be read."""

    reason: Literal["not-installed", "no-subscription", "failed"]
    message: str | None


@frozen(kw_only=True)
class UsageLimitsAccount(Shape):
    """The account whose plan it is."""

    id: AccountId
    label: str
    color: str | None = None


@frozen(kw_only=True)
class UsageLimitsProvider(Shape):
    """A plan: read by the host itself (`probe`) or told by a running turn (`event`)."""

    kind: UsageProvider
    plan: str | None
    checked_at: WholeNumber
    source: Literal["probe", "event"]
    windows: tuple[UsageWindow, ...]
    cost: UsageCost | None
    unavailable: UsageUnavailable | None
    account: UsageLimitsAccount | None = None


@frozen(kw_only=True)
class UsageLimits(Shape):
    """Every plan; one that is missing is unknown, not unused."""

    providers: tuple[UsageLimitsProvider, ...]
