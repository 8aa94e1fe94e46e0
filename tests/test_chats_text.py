"""Text cut for other eyes: whole characters, UTF-16 units, and what a chat waits on."""

from typing import Any

import attrs
import pytest
import regex  # type: ignore[import-untyped]  # it ships none
from hypothesis import given
from hypothesis import strategies as st

from ahpd.contracts.chats import (
    REQUEST_LIMITS,
    AllowAlways,
    ApprovalItem,
    Question,
    QuestionChoice,
    QuestionItem,
    approval_summary,
    attachment_bytes,
    attachment_image_mime,
    clip_lines,
    clip_path,
    clip_text,
    request_summaries,
    trimmed,
    utf16_length,
)
from ahpd.contracts.chats.text import first_line

FAMILY = "👨‍👩‍👧‍👦"
SCOTLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
#: Whole characters of every awkward sort, and pieces of them.
PIECES = ["a", "é", "e\u0301\u0323", FAMILY, "🇳🇱", "🇳", SCOTLAND, "क्षि", "각", "\r\n", "\n", "/"]
BROKEN = ["\ud83d", "\ude00", "\u200d", "\u0301", "\ufe0f"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
ROUGH = st.lists(st.sampled_from([*PIECES, *BROKEN]), max_size=14).map("".join)


def units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def characters(text: str) -> list[str]:
    return list(regex.findall(r"\X", text))


@given(ROUGH)
def test_a_length_is_counted_in_utf16_units(text: str) -> None:
    assert utf16_length(text) == units(text)
    assert (utf16_length(text, 3) > 3) == (units(text) > 3)


@given(TEXTS, st.integers(0, 30))
def test_a_cut_text_is_the_longest_beginning_of_whole_characters(text: str, most: int) -> None:
    cut = clip_text(text, most)
    if units(text) <= most:
        assert cut == text
        return
    assert units(cut) <= most
    if most == 0:
        assert cut == ""
        return
    assert cut.endswith("…")
    kept = characters(cut[:-1])
    whole = characters(text)
    assert kept == whole[: len(kept)]
    # And not one character fewer than fits.
    assert units("".join(whole[: len(kept) + 1])) > most - 1


@given(ROUGH, st.integers(0, 30))
def test_no_cut_leaves_half_a_surrogate_pair(text: str, most: int) -> None:
    for cut in (clip_text(text, most), clip_path(text, most)):
        cut.encode()
        assert units(cut) <= most or units(text) <= most


@given(TEXTS, st.integers(1, 30))
def test_a_cut_path_is_the_longest_end_of_whole_characters(path: str, most: int) -> None:
    cut = clip_path(path, most)
    if units(path) <= most:
        assert cut == path
        return
    assert units(cut) <= most
    assert cut.startswith("…")
    kept, whole = characters(cut[1:]), characters(path)
    assert kept == whole[len(whole) - len(kept) :]
    assert units("".join(whole[len(whole) - len(kept) - 1 :])) > most - 1


def test_a_text_without_an_end_is_cut_in_no_time() -> None:
    for text in ("x" * 10_000_000, "e" + "\u0301" * 3_000_000, FAMILY * 500_000):
        assert units(clip_text(text, 200)) <= 200
        assert units(clip_path(text, 200)) <= 200


@given(st.lists(TEXTS.map(lambda text: text.replace("\n", " ").replace("\r", " ")), max_size=6))
def test_lines_are_whole_or_not_there(lines: list[str]) -> None:
    for most in (0, 5, 12, 40):
        text, truncated = clip_lines(lines, 3, most)
        assert units(text) <= most
        assert text.count("\n") < 3
        if truncated and text and not text.endswith("…"):
            assert text == "\n".join(lines[: text.count("\n") + 1])
        if not truncated:
            assert text == "\n".join(lines)


def test_a_first_line_too_long_is_cut_in_itself() -> None:
    assert clip_lines(["abcdef", "g"], 3, 4) == ("abc…", True)
    assert clip_lines(["ab", "cdef"], 3, 4) == ("ab", True)
    assert clip_lines(["ab\r", "cdef"], 3, 4) == ("ab", True)
    assert clip_lines([], 3, 4) == ("", False)
    assert first_line("\n\n  a  \nb") == "a"


def test_white_space_is_javascripts() -> None:
    assert trimmed("\ufeff\u00a0 a \u2028") == "a"
    assert trimmed("\x1ca") == "\x1ca"


@pytest.mark.parametrize(
    ("name", "mime", "picture"),
    [
        ("a.txt", "image/PNG; charset=x", "image/png"),
        ("a.JPG", "", "image/jpeg"),
        ("a.webp", "application/octet-stream", "image/webp"),
        ("a.gif", " binary/octet-stream ", "image/gif"),
        ("a.png", "application/pdf", None),
        ("png", "", None),
        ("a.svg", "image/svg+xml", None),
        ("a.bmp", "", None),
    ],
)
def test_a_picture_is_told_by_its_type_and_by_its_name_only_where_there_is_none(
    name: str, mime: str, picture: str | None
) -> None:
    assert attachment_image_mime(name, mime) == picture


def test_the_bytes_behind_base64() -> None:
    assert [attachment_bytes(data) for data in ("", "AAAA", "AAA=", "AA==")] == [0, 3, 2, 1]


# -- requests -----------------------------------------------------------------------


def approval(tool: str, given: Any, **more: Any) -> ApprovalItem:
    item = ApprovalItem(
        id="approval:0:t",
        created_at=5,
        turn_id="t",
        request_id="c",
        tool_use_id="c",
        tool_name=tool,
        description=None,
        can_allow_always=False,
        decision="pending",
        input=given,
    )
    return attrs.evolve(item, **more)


def test_a_command_is_shown_by_its_lines() -> None:
    shown = approval_summary(approval("Bash", {"command": "\nls -l\n" + "x\n" * 20}))
    assert shown.subject == "ls -l"
    assert shown.command is not None
    assert shown.command.count("\n") == REQUEST_LIMITS.command_lines - 1
    assert shown.truncated is True
    assert approval_summary(approval("Bash", {"command": "ls"})).truncated is None


def test_an_edit_is_shown_by_what_it_takes_out_and_puts_in() -> None:
    shown = approval_summary(
        approval("Edit", {"file_path": "/a/b.py", "old_string": "x\ny\n", "new_string": "z"})
    )
    assert (shown.subject, shown.path, shown.files) == ("/a/b.py", "/a/b.py", None)
    assert shown.diff == "-x\n-y\n+z"
    patch = {"path": "p", "diff": "--- a\n+++ b\n@@\n c\n-d\n+e\n"}
    shown = approval_summary(approval("apply_patch", {"changes": [patch, {**patch, "path": "q"}]}))
    assert (shown.path, shown.files, shown.diff) == ("p", 2, "-d\n+e")
    written = approval_summary(approval("Write", {"file_path": "/n", "content": "a\nb"}))
    assert written.diff == "+a\n+b"


def test_a_file_named_beside_the_input_keeps_its_end() -> None:
    path = "/deep" * 60 + "/name.txt"
    shown = approval_summary(approval("edit_file", None), [path, "/other"])
    assert shown.path is not None
    assert shown.path.startswith("…")
    assert shown.path.endswith("/name.txt")
    assert units(shown.path) <= REQUEST_LIMITS.subject
    assert shown.files == 2


@pytest.mark.parametrize(
    ("given", "subject"),
    [
        ({"url": "https://x", "prompt": "p"}, "https://x"),
        ({"prompt": " \n", "other": "first\nsecond"}, "first"),
        ({"count": 3}, ""),
        ("as it is", "as it is"),
        (None, ""),
        ([1], ""),
    ],
)
def test_a_subject_is_one_line_of_what_the_input_names(given: Any, subject: str) -> None:
    assert approval_summary(approval("T", given)).subject == subject


@given(ROUGH, st.integers(1, 60))
def test_everything_but_labels_and_ids_is_cut(text: str, times: int) -> None:
    long = text * times
    question = Question(
        id=long,
        header=long,
        question=long,
        choices=(QuestionChoice(label=long, description=long),),
        multi_select=False,
    )
    asked = QuestionItem(
        id="question:1:t",
        created_at=6,
        turn_id="t",
        request_id="q",
        questions=(question,),
        answers=None,
        state="pending",
    )
    rule = AllowAlways(label=long, description=long)
    edit = {"file_path": long, "old_string": long, "new_string": long}
    wanted = approval("Edit", edit, description=long, allow_always=rule, can_allow_always=True)
    command = approval(long, {"command": long})
    for shown in request_summaries([wanted, asked, command] * 5):
        limits = REQUEST_LIMITS
        if shown.approval is not None:
            cut = shown.approval
            assert units(cut.tool_name) <= limits.subject
            assert units(cut.subject) <= limits.subject
            assert units(cut.path or "") <= limits.subject
            assert units(cut.description or "") <= limits.description
            assert units(cut.diff or "") <= limits.diff
            assert len((cut.diff or "").split("\n")) <= limits.diff_lines
            assert units(cut.command or "") <= limits.command
            assert len((cut.command or "").split("\n")) <= limits.command_lines
            assert cut.allow_always is None or units(cut.allow_always.label) <= limits.header
        if shown.question is not None:
            (seen,) = shown.question.questions
            assert (seen.id, seen.choices[0].label) == (long, long)
            assert units(seen.header) <= limits.header
            assert units(seen.question) <= limits.question
            assert units(seen.choices[0].description) <= limits.choice_description


def test_at_most_eight_requests_the_oldest_first() -> None:
    items = [approval("T", {"path": str(n)}) for n in range(12)]
    settled = approval("T", {"path": "gone"}, decision="allow")
    shown = request_summaries([settled, *items])
    assert [one.approval.subject for one in shown if one.approval] == [str(n) for n in range(8)]
