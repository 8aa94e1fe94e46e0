"""What a chat waits on, cut to what a card needs: `ChatInfo.requests`.

Every client hears it, attached or not, with each `chat.status`: so it is bounded
(reference: "Events"; `REQUEST_LIMITS`). What a call is about is read from its
input as the agents of this wire write theirs: `file_path`, `command`, `changes`.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from attrs import frozen

from .infos import RequestApproval, RequestQuestions, RequestSummary
from .items import ApprovalItem, ChatItem, QuestionItem, is_pending
from .limits import REQUEST_LIMITS
from .questions import AllowAlways, Question, QuestionChoice
from .text import clip_lines, clip_path, clip_text, first_line, is_blank, lines_of

#: The members of an input that name what a call is about, in the order a person would look.
_SUBJECTS: Final = (
    "file_path",
    "notebook_path",
    "path",
    "url",
    "query",
    "pattern",
    "skill",
    "description",
)


@frozen(kw_only=True)
class _Change:
    """The first file of a change, how many there are, and its lines out and in."""

    path: str
    files: int
    lines: Sequence[str]


def request_summaries(
    items: Iterable[ChatItem], paths: Mapping[str, Sequence[str]] | None = None
) -> tuple[RequestSummary, ...]:
    """What a thread waits on, oldest first, at most `REQUEST_LIMITS.per_chat`.

    Args:
        items: the thread, or those of its items that wait.
        paths: the files that an approval is known to touch, by item id, for calls
            whose input does not say.
    """
    waiting = (one for one in items if is_pending(one))
    known = paths or {}
    return tuple(
        request_summary(item, known.get(item.id, ()))
        for item in islice(waiting, REQUEST_LIMITS.per_chat)
        if isinstance(item, (ApprovalItem, QuestionItem))
    )


def request_summary(item: ApprovalItem | QuestionItem, paths: Sequence[str] = ()) -> RequestSummary:
    """One request as a card shows it."""
    if isinstance(item, ApprovalItem):
        return RequestSummary(
            request_id=item.request_id,
            item_id=item.id,
            kind="approval",
            created_at=item.created_at,
            approval=approval_summary(item, paths),
        )
    return RequestSummary(
        request_id=item.request_id,
        item_id=item.id,
        kind="question",
        created_at=item.created_at,
        question=RequestQuestions(
            questions=tuple(map(_cut_question, item.questions)), async_=item.async_
        ),
    )


def approval_summary(item: ApprovalItem, paths: Sequence[str] = ()) -> RequestApproval:
    """An approval cut to its limits: subject, command or diff, and the rule it could grant."""
    limits = REQUEST_LIMITS
    given = item.input if isinstance(item.input, dict) else {}
    change = _change_in(item.tool_name, given)
    if change is None and paths:
        change = _Change(path=paths[0], files=len(paths), lines=())
    # A command that names a file it changes is still shown as the command it is.
    command = _text_in(given, "command") if change is None or not change.lines else None
    if command is not None:
        subject = clip_text(first_line(command), limits.subject)
    elif change is not None:
        subject = clip_path(change.path, limits.subject)
    else:
        subject = clip_text(_subject_in(item.input), limits.subject)
    diff = clip_lines(change.lines if change else (), limits.diff_lines, limits.diff)
    shell = clip_lines(lines_of(command or ""), limits.command_lines, limits.command)
    rule = item.allow_always
    return RequestApproval(
        tool_name=clip_text(item.tool_name, limits.subject),
        subject=subject,
        description=_cut(item.description, limits.description),
        can_allow_always=item.can_allow_always,
        path=None if change is None else clip_path(change.path, limits.subject),
        files=change.files if change is not None and change.files > 1 else None,
        diff=diff[0] or None,
        command=None if command is None else shell[0],
        truncated=True if diff[1] or shell[1] else None,
        allow_always=None
        if rule is None
        else AllowAlways(
            label=clip_text(rule.label, limits.header),
            description=clip_text(rule.description, limits.description),
        ),
    )


def _cut(text: str | None, max_units: int) -> str | None:
    return None if text is None else clip_text(text, max_units)


def _cut_question(question: Question) -> Question:
    return Question(
        id=question.id,
        header=clip_text(question.header, REQUEST_LIMITS.header),
        question=clip_text(question.question, REQUEST_LIMITS.question),
        choices=tuple(
            QuestionChoice(
                label=choice.label,
                description=clip_text(choice.description, REQUEST_LIMITS.choice_description),
            )
            for choice in question.choices
        ),
        multi_select=question.multi_select,
    )


def _subject_in(given: Any) -> str:
    """One line on what a call is about; empty when its input names nothing."""
    if isinstance(given, str):
        return first_line(given)
    if not isinstance(given, dict):
        return ""
    texts = [given.get(key) for key in _SUBJECTS] + list(given.values())
    return next(
        (first_line(one) for one in texts if isinstance(one, str) and not is_blank(one)), ""
    )


def _change_in(tool_name: str, given: dict[str, Any]) -> _Change | None:
    """What a call changes, as a patch, an edit or a whole file in its input; None for others."""
    patches = [
        patch
        for patch in _objects_in(given, "changes")
        if isinstance(patch.get("path"), str) and isinstance(patch.get("diff"), str)
    ]
    if patches:
        lines = _changed_lines(patches[0]["diff"])
        return _Change(path=patches[0]["path"], files=len(patches), lines=lines)
    path = _text_in(given, "file_path")
    if path is None:
        return None
    match tool_name:
        case "Edit":
            return _Change(path=path, files=1, lines=_replaced_lines(given))
        case "Write":
            added = [f"+{line}" for line in lines_of(_text_in(given, "content") or "")]
            return _Change(path=path, files=1, lines=added)
        case "MultiEdit":
            edits = _objects_in(given, "edits")
            return _Change(
                path=path, files=1, lines=[line for one in edits for line in _replaced_lines(one)]
            )
        case _:
            return None


def _replaced_lines(edit: dict[str, Any]) -> list[str]:
    before = lines_of(_text_in(edit, "old_string") or "")
    after = lines_of(_text_in(edit, "new_string") or "")
    return [*(f"-{line}" for line in before), *(f"+{line}" for line in after)]


def _changed_lines(diff: str) -> list[str]:
    """Only what a unified diff takes out and puts in: no headers, no context."""
    return [
        line for line in lines_of(diff) if line[:1] in ("-", "+") and line[:3] not in ("---", "+++")
    ]


def _objects_in(given: dict[str, Any], key: str) -> list[dict[str, Any]]:
    entries = given.get(key)
    return [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []


def _text_in(given: dict[str, Any], key: str) -> str | None:
    value = given.get(key)
    return value if isinstance(value, str) else None
