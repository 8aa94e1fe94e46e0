"""Models and providers: what an agent can be asked for, and what a host lists of it."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

from attrs import frozen

from ..shapes import MemberError
from .names import AgentKind
from .shape import Entries, Matching, NonEmpty, PositiveCount, Shape


@frozen(kw_only=True)
class ModelSelection(Shape):
    """A model and its options, as a person picked them; whether they exist is the host's to say."""

    model: NonEmpty
    options: dict[str, str | bool]


@frozen(kw_only=True)
class ModelOptionChoice(Shape):
    """One choice of a `SelectOption`."""

    id: NonEmpty
    label: str
    description: str | None = None


@frozen(kw_only=True)
class SelectOption(Shape):
    """An option with choices; `default_choice` is the id of one."""

    id: NonEmpty
    label: str
    type: Literal["select"] = "select"
    choices: Annotated[tuple[ModelOptionChoice, ...], Entries(1)]
    default_choice: str


@frozen(kw_only=True)
class BooleanOption(Shape):
    """An option that is on or off."""

    id: NonEmpty
    label: str
    type: Literal["boolean"] = "boolean"
    default_value: bool
    description: str | None = None


ModelOptionDescriptor: TypeAlias = SelectOption | BooleanOption


@frozen(kw_only=True)
class ModelInfo(Shape):
    """A model, as `provider.list` describes it."""

    slug: NonEmpty
    name: str
    legacy: bool
    is_default: bool
    options: tuple[ModelOptionDescriptor, ...]
    badge: str | None = None


@frozen(kw_only=True)
class ProviderCapabilities(Shape):
    """What an agent can do. A client draws a control only where the capability is."""

    chat: bool
    terminal: bool
    hooks: bool
    streams_tool_output: bool
    diffs: Literal["unified", "before-after", "none"]
    attachments: bool
    mentions: bool
    deny_reason: bool
    allow_always: bool
    async_questions: bool
    compaction: Literal["native", "prompt", "none"]
    reports_cost: bool
    reports_context_window: bool
    reports_thinking: bool
    slash_commands: bool


@frozen(kw_only=True)
class ProviderInfo(Shape):
    """An agent, as `provider.list` describes it.

    `resume_command` is what a terminal runs to go on with a conversation; fill it
    with `resume_command_for`. `agent` is ours beside the source's: the agent's own
    id, where several agents show themselves as one kind.
    """

    kind: AgentKind
    name: str
    installed: bool
    version: str | None
    models: tuple[ModelInfo, ...]
    default_model: str | None
    capabilities: ProviderCapabilities
    resume_command: str
    agent: str | None = None


@frozen(kw_only=True)
class ProviderListResult(Shape):
    """Every agent of the host."""

    providers: tuple[ProviderInfo, ...]


_PLACES: Final = re.compile(r"\{id\}|\{flags\}")


def resume_command_for(template: str, session_id: str, flags: Sequence[str] = ()) -> str:
    """A `ProviderInfo.resume_command` with the conversation's id and flags in their places.

    The id is quoted for a POSIX shell. The flags stand where the template has the
    word `{flags}`, as they are: quote what comes from outside. A template without
    the word takes none.
    """
    given = " ".join(flags)
    quoted = "'" + session_id.replace("'", "'\\''") + "'"
    words = [
        _PLACES.sub(lambda place: quoted if place[0] == "{id}" else given, word)
        for word in template.split(" ")
        if given or word != "{flags}"
    ]
    return " ".join(words)


# -- the models a host ships, and newer copies of them ------------------------------

_SLUG = Annotated[
    str, Matching(re.compile(r"[a-z0-9._][a-z0-9._-]*"), "a slug: a-z, 0-9, ., _ and -")
]


@frozen(kw_only=True)
class ModelCatalogProfile(Shape):
    """What a kind of model takes, and its context in tokens by its `contextWindow` option.

    Under `*` stands the size of a model that has but one.
    """

    options: tuple[ModelOptionDescriptor, ...]
    context_window_tokens: dict[str, PositiveCount]


@frozen(kw_only=True)
class ModelCatalogEntry(Shape):
    """A model of a catalogue. Its slug ends up on a command line, so it begins with no hyphen."""

    slug: _SLUG
    name: NonEmpty
    profile: NonEmpty
    aliases: tuple[_SLUG, ...] | None = None
    badge: str | None = None
    legacy: bool | None = None


@frozen(kw_only=True)
class ModelCatalog(Shape):
    """The models of one provider. `updated_at` is an ISO 8601 instant, which orders two copies.

    Made only of a catalogue whose default model is in it and whose models all have
    their profile; `catalog_doubts` says what else may be wrong with one.
    """

    updated_at: str
    default_model: str
    profiles: dict[str, ModelCatalogProfile]
    models: Annotated[tuple[ModelCatalogEntry, ...], Entries(1)]

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if instant_ms(self.updated_at) is None:
            raise MemberError("updatedAt", "expected an ISO 8601 date and time with its offset")
        for index, model in enumerate(self.models):
            if model.profile not in self.profiles:
                raise MemberError(f"models[{index}].profile", "expected a profile of the catalogue")
        if all(model.slug != self.default_model for model in self.models):
            raise MemberError("defaultModel", "expected a model of the catalogue")

    def resolve(self, name: str) -> str | None:
        """The slug of a model by its slug or an alias, or None."""
        for model in self.models:
            if name == model.slug or name in (model.aliases or ()):
                return model.slug
        return None

    def infos(self) -> tuple[ModelInfo, ...]:
        """The models as `provider.list` describes them."""
        return tuple(
            ModelInfo(
                slug=model.slug,
                name=model.name,
                legacy=model.legacy is True,
                is_default=model.slug == self.default_model,
                options=self.profiles[model.profile].options,
                badge=model.badge,
            )
            for model in self.models
        )

    def complete(
        self, model: str | None = None, options: Mapping[str, Any] | None = None
    ) -> ModelSelection:
        """A whole selection: an unknown model is the default, an unknown option is dropped,
        and one that is missing or does not fit has its default."""
        slug = (self.resolve(model) if model else None) or self.default_model
        given, chosen = options or {}, dict[str, str | bool]()
        for option in self._profile_of(slug).options:
            value = given.get(option.id)
            if isinstance(option, SelectOption):
                fits = any(value == choice.id for choice in option.choices)
                chosen[option.id] = str(value) if fits else option.default_choice
            else:
                chosen[option.id] = value if isinstance(value, bool) else option.default_value
        return ModelSelection(model=slug, options=chosen)

    def context_window(self, selection: ModelSelection) -> int | None:
        """The context of a selection in tokens, or None where the catalogue does not say."""
        if self.resolve(selection.model) is None:
            return None
        sizes = self._profile_of(selection.model).context_window_tokens
        chosen = selection.options.get("contextWindow")
        return sizes.get(chosen if isinstance(chosen, str) else "*", sizes.get("*"))

    def _profile_of(self, name: str) -> ModelCatalogProfile:
        slug = self.resolve(name)
        return next(self.profiles[one.profile] for one in self.models if one.slug == slug)


def catalog_doubts(catalog: ModelCatalog) -> tuple[str, ...]:
    """What a catalogue can be read with, but should not say: each a sentence."""
    doubts = []
    seen: set[str] = set()
    for model in catalog.models:
        for name in (model.slug, *(model.aliases or ())):
            if name in seen:
                doubts.append(f"{name} names more than one model")
            seen.add(name)
    for name, profile in catalog.profiles.items():
        for option in profile.options:
            if isinstance(option, SelectOption):
                ids = [choice.id for choice in option.choices]
                if option.default_choice not in ids:
                    doubts.append(f"{name}.{option.id}: its default is none of its choices")
                if len(set(ids)) < len(ids):
                    doubts.append(f"{name}.{option.id}: two choices have one id")
    return tuple(doubts)


def newer_catalog(shipped: ModelCatalog, offered: ModelCatalog) -> ModelCatalog:
    """The catalogue to go by: the one offered, unless it is older than the one shipped."""
    older = (instant_ms(offered.updated_at) or 0) < (instant_ms(shipped.updated_at) or 0)
    return shipped if older else offered


def instant_ms(text: str) -> float | None:
    """An ISO 8601 instant in milliseconds since the epoch; None for what is none, or has no
    offset."""
    try:
        instant = datetime.fromisoformat(text)
        return instant.timestamp() * 1000 if instant.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
