"""The rules of the agent-contracts wire that stand beside its shapes."""

import shlex
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahpd.contracts.chats import (
    CHAT_ERROR_CODES,
    EMPTY_TOTALS,
    MAX_ATTACHMENT_BYTES,
    AccountVariable,
    AssistantItem,
    AttachmentUpload,
    ChatError,
    ChatSend,
    DeltaEvent,
    ItemEvent,
    MemberError,
    ModelCatalog,
    NoteItem,
    ShapeError,
    Thread,
    ToolItem,
    UsageTotals,
    UserItem,
    add_totals,
    catalog_doubts,
    check_uploads,
    excerpt_of,
    is_bookmarkable,
    is_default_account,
    is_kept,
    newer_catalog,
    redacted,
    resume_command_for,
    sum_costs,
    sum_totals,
    total_tokens_of,
    utf16_length,
    workflow_agent_id_of,
    workflow_agent_ref,
)
from ahpd.contracts.chats.thread import grown
from ahpd.contracts.shapes import structure

# -- attachments ----------------------------------------------------------------------

MOST_BASE64 = "A" * (4 * -(-MAX_ATTACHMENT_BYTES // 3))


def upload(data: str) -> AttachmentUpload:
    return AttachmentUpload(name="n", mime="m", data=data)


def test_an_attachment_has_at_most_ten_mebibytes() -> None:
    with pytest.raises(MemberError) as refused:
        upload(MOST_BASE64)
    assert "bytes" in refused.value.what
    # One character of padding less than the whole group: exactly ten mebibytes.
    padding = -MAX_ATTACHMENT_BYTES % 3
    assert upload(MOST_BASE64[: len(MOST_BASE64) - padding] + "=" * padding)


def test_a_messages_attachments_have_at_most_ten_mebibytes_together() -> None:
    half = upload("A" * (len(MOST_BASE64) // 8 * 4))
    assert ChatSend(chat_id="c", text="", attachments=(half,)).attachments == (half,)
    with pytest.raises(MemberError) as refused:
        ChatSend(chat_id="c", text="", attachments=(half, half, half))
    assert (refused.value.member, "together" in refused.value.what) == ("attachments", True)
    with pytest.raises(MemberError):
        check_uploads([half, half, half])
    with pytest.raises(MemberError):
        check_uploads([upload("AAAA")] * 9)
    check_uploads([upload("AAAA")] * 8)


# -- models ---------------------------------------------------------------------------

CATALOG: dict[str, Any] = {
    "updatedAt": "2026-10-05T00:00:00Z",
    "defaultModel": "m-1",
    "profiles": {
        "wide": {
            "options": [
                {
                    "id": "contextWindow",
                    "label": "Context",
                    "type": "select",
                    "defaultChoice": "1m",
                    "choices": [{"id": "200k", "label": "200k"}, {"id": "1m", "label": "1M"}],
                },
                {"id": "fast", "label": "Fast", "type": "boolean", "defaultValue": False},
            ],
            "contextWindowTokens": {"200k": 200_000, "1m": 1_000_000},
        },
        "plain": {"options": [], "contextWindowTokens": {"*": 32_000}},
    },
    "models": [
        {"slug": "m-1", "name": "M 1", "profile": "wide", "aliases": ["m"]},
        {"slug": "m-0.5", "name": "M 0.5", "profile": "plain", "legacy": True},
    ],
}


def catalog(**changes: Any) -> ModelCatalog:
    return structure({**CATALOG, **changes}, ModelCatalog, "catalog")


def test_a_catalogue_completes_a_selection() -> None:
    models = catalog()
    assert models.complete().options == {"contextWindow": "1m", "fast": False}
    picked = models.complete("m", {"contextWindow": "200k", "fast": "yes", "other": 1})
    assert (picked.model, picked.options) == ("m-1", {"contextWindow": "200k", "fast": False})
    assert models.context_window(picked) == 200_000
    assert models.context_window(models.complete("m-0.5")) == 32_000
    assert models.context_window(attrs.evolve(picked, model="unknown")) is None
    assert models.complete("unknown").model == "m-1"
    first, second = models.infos()
    assert (first.is_default, second.is_default, second.legacy) == (True, False, True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"updatedAt": "yesterday"}, "catalog.updatedAt: expected an ISO 8601"),
        ({"updatedAt": "2026-10-05T00:00:00"}, "catalog.updatedAt"),
        ({"models": []}, "catalog.models: expected at least 1"),
        ({"defaultModel": "m"}, "catalog.defaultModel: expected a model"),
        (
            {"models": [{"slug": "m-1", "name": "M", "profile": "none"}]},
            "catalog.models[0].profile: expected a profile",
        ),
        ({"models": [{"slug": "-m", "name": "M", "profile": "plain"}]}, "models[0].slug"),
        ({"models": [{"slug": "M", "name": "M", "profile": "plain"}]}, "expected a slug"),
        (
            {"profiles": {"plain": {"options": [], "contextWindowTokens": {"*": 0}}}},
            "catalog.profiles.plain.contextWindowTokens.*: expected at least 1",
        ),
    ],
)
def test_a_catalogue_that_cannot_be_used_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError) as refused:
        catalog(**changes)
    assert message in str(refused.value)


def test_what_a_catalogue_should_not_say_is_doubted() -> None:
    assert catalog_doubts(catalog()) == ()
    twice = [*CATALOG["models"], {"slug": "m", "name": "M", "profile": "plain"}]
    assert catalog_doubts(catalog(models=twice)) == ("m names more than one model",)
    option = {**CATALOG["profiles"]["wide"]["options"][0], "defaultChoice": "2m"}
    profiles = {**CATALOG["profiles"], "wide": {**CATALOG["profiles"]["wide"], "options": [option]}}
    assert "none of its choices" in catalog_doubts(catalog(profiles=profiles))[0]


def test_a_newer_catalogue_takes_the_shipped_ones_place_and_an_older_one_does_not() -> None:
    shipped = catalog()
    newer = catalog(updatedAt="2026-10-05T02:30:00+02:00")
    older = catalog(updatedAt="2026-10-05T01:30:00+02:00")
    assert newer_catalog(shipped, newer) is newer
    assert newer_catalog(shipped, older) is shipped


@pytest.mark.parametrize(
    ("template", "flags", "command"),
    [
        ("cli {flags} --resume {id}", ["--read-only"], "cli --read-only --resume 'it'\\''s-1'"),
        ("cli {flags} --resume {id}", [], "cli --resume 'it'\\''s-1'"),
        ("cli resume {id} {flags}", ["-a", "-b c"], "cli resume 'it'\\''s-1' -a -b c"),
        ("cli --resume={id}", ["-a"], "cli --resume='it'\\''s-1'"),
        ("cli", [], "cli"),
    ],
)
def test_a_resume_command(template: str, flags: list[str], command: str) -> None:
    assert resume_command_for(template, "it's-1", flags) == command


@given(st.text(st.characters(exclude_characters="\0")))
def test_an_id_is_one_word_to_a_shell_whatever_is_in_it(ident: str) -> None:
    assert shlex.split(resume_command_for("cli {flags} {id}", ident)) == ["cli", ident]


# -- usage and accounts ---------------------------------------------------------------

TOTALS = st.builds(UsageTotals, **dict.fromkeys(attrs.fields_dict(UsageTotals), st.integers(0, 99)))


@given(st.lists(TOTALS, max_size=4))
def test_totals_add_up_and_count_each_token_once(totals: list[UsageTotals]) -> None:
    summed = sum_totals(totals)
    assert summed == sum_totals(reversed(totals))
    assert total_tokens_of(summed) == sum(map(total_tokens_of, totals))
    assert add_totals(summed, EMPTY_TOTALS) == summed
    assert summed.reasoning == sum(one.reasoning for one in totals)


def test_the_total_leaves_out_what_is_part_of_another() -> None:
    totals = UsageTotals(
        calls=1, input=10, cache_read=20, cache_write=30, cache_write1h=5, output=40, reasoning=8
    )
    assert total_tokens_of(totals) == 100


def test_a_cost_is_unknown_when_a_part_of_it_is() -> None:
    assert sum_costs([]) == 0
    assert sum_costs([1.0, 0.5]) == 1.5
    assert sum_costs([1.0, None]) is None


def test_a_sensitive_variable_never_travels_and_is_kept_when_it_comes_back() -> None:
    secret = AccountVariable(name="KEY", value="s3cret", sensitive=True)
    sent = redacted(secret)
    assert (sent.value, sent.value_redacted) == ("", True)
    assert is_kept(sent)
    assert not is_kept(secret)
    plain = AccountVariable(name="REGION", value="", sensitive=False, value_redacted=True)
    assert redacted(plain) is plain
    assert not is_kept(plain)


def test_names() -> None:
    assert is_default_account("claude", None)
    assert is_default_account("claude", "claude")
    assert not is_default_account("claude", "work")
    assert workflow_agent_id_of(workflow_agent_ref("a:1")) == "a:1"
    assert workflow_agent_id_of("toolu_1") is None
    assert workflow_agent_id_of(workflow_agent_ref("")) is None


def test_an_error_carries_its_code() -> None:
    error = ChatError("chat-busy", "A turn is running")
    assert (error.code, error.message) == ("chat-busy", "A turn is running")
    assert len(set(CHAT_ERROR_CODES)) == 22


# -- items ----------------------------------------------------------------------------

BASE: dict[str, Any] = {"id": "i", "created_at": 0, "turn_id": None}
REPLY = AssistantItem(**BASE, text="a", streaming=True)
TOOL = ToolItem(
    **BASE,
    tool_use_id="u",
    name="n",
    output=None,
    state="running",
    parent_tool_use_id=None,
    input=None,
)


def test_a_delta_grows_what_takes_text_and_nothing_else() -> None:
    assert grown(REPLY, "b") == attrs.evolve(REPLY, text="ab")
    running = grown(grown(TOOL, "x") or TOOL, "y")
    assert isinstance(running, ToolItem)
    assert running.progress is not None
    assert running.progress.output == "xy"
    assert grown(attrs.evolve(TOOL, state="done"), "x") is None
    assert grown(NoteItem(**BASE, level="info", text="t"), "x") is None


def test_a_thread_passes_over_a_delta_for_what_it_does_not_hold() -> None:
    thread = Thread(info=None, items=(REPLY,))  # type: ignore[arg-type]  # no info is needed here
    assert thread.apply(DeltaEvent(item_id="other", text="x")) == thread
    longer = thread.apply(ItemEvent(item=attrs.evolve(TOOL, id="t")))
    assert [item.id for item in longer.items] == ["i", "t"]
    replaced = longer.apply(ItemEvent(item=attrs.evolve(REPLY, text="z")))
    assert [item.id for item in replaced.items] == ["i", "t"]


def test_bookmarks_hang_on_messages_of_the_chat_itself() -> None:
    assert is_bookmarkable(REPLY)
    assert is_bookmarkable(UserItem(**BASE, text=""))
    assert not is_bookmarkable(attrs.evolve(REPLY, parent_tool_use_id="u"))
    assert not is_bookmarkable(TOOL)


def test_an_excerpt_is_one_line_of_whole_characters() -> None:
    assert excerpt_of(attrs.evolve(REPLY, text=" a\n\n b\tc ")) == "a b c"
    family = "👨‍👩‍👧‍👦"
    cut = excerpt_of(attrs.evolve(REPLY, text=family * 100))
    assert utf16_length(cut) <= 160
    assert cut.removesuffix("…").replace(family, "") == ""
