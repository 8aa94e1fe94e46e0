"""Accounts: under whose name an agent runs, and what the agent said of it when asked last."""

from typing import Annotated, Final, Literal

from attrs import frozen

from .limits import MAX_ACCOUNT_LABEL
from .names import AccountId, AgentKind, VariableName
from .shape import NonEmpty, Shape, TrimmedLength


@frozen(kw_only=True)
class AccountVariable(Shape):
    """A variable of the agent's environment.

    A sensitive value never travels: it is sent as an empty `value` with
    `value_redacted`, and a save that sends that back keeps what is stored.
    """

    name: VariableName
    value: str
    sensitive: bool
    value_redacted: bool | None = None


@frozen(kw_only=True)
class Account(Shape):
    """An account. `kind` is any text, so that an account of an unknown kind is kept as it is.

    Absent `enabled` is on; `home` is the agent's folder for it, `~` allowed.
    """

    kind: NonEmpty
    label: str | None = None
    color: str | None = None
    enabled: bool | None = None
    home: NonEmpty | None = None
    shadow_home: NonEmpty | None = None
    env: tuple[AccountVariable, ...] | None = None


@frozen(kw_only=True)
class AccountStatus(Shape):
    """What the agent said of an account; never stored. `checked_at` is 0 for never asked."""

    id: AccountId
    kind: str
    state: Literal[
        "checking",
        "disabled",
        "not-found",
        "signed-out",
        "ready",
        "folder-missing",
        "unavailable",
        "failed",
    ]
    email: str | None
    plan: str | None
    organization: str | None
    home: str
    message: str | None
    checked_at: float
    transcripts: str | None = None


@frozen(kw_only=True)
class Accounts(Shape):
    """Every account and what is known of it.

    `secrets_available` says whether the host can keep a sensitive variable at all.
    """

    accounts: dict[AccountId, Account]
    statuses: tuple[AccountStatus, ...]
    secrets_available: bool | None = None
    login_commands: dict[AgentKind, str] | None = None


@frozen(kw_only=True)
class AccountsSave(Shape):
    """`accounts.save`: the whole map; an id that is missing is removed."""

    accounts: dict[AccountId, Account]


@frozen(kw_only=True)
class AccountCreate(Shape):
    """`accounts.create`."""

    kind: AgentKind
    label: Annotated[str, TrimmedLength(1, MAX_ACCOUNT_LABEL)]
    color: str | None = None


@frozen(kw_only=True)
class AccountCreateResult(Accounts):
    """Every account, and the id of the new one."""

    id: AccountId


@frozen(kw_only=True)
class AccountWatchLogin(Shape):
    """`accounts.watchLogin`: answered at once; `accounts.changed` says the rest."""

    id: AccountId


REDACTED: Final = ""


def redacted(variable: AccountVariable) -> AccountVariable:
    """The variable as it may travel: a sensitive one without its value."""
    if not variable.sensitive:
        return variable
    return AccountVariable(name=variable.name, value=REDACTED, sensitive=True, value_redacted=True)


def is_kept(variable: AccountVariable) -> bool:
    """Whether a saved variable says that what is stored under its name is to stay."""
    return variable.sensitive and variable.value_redacted is True and variable.value == REDACTED


def is_default_account(kind: str, account: str | None) -> bool:
    """Whether no account, or this one, is the kind's default account."""
    return account is None or account == kind
