"""The numbers of this wire: how much a chat takes, and where what it tells is cut.

Lengths are UTF-16 units, sizes decoded bytes.
"""

from typing import Final

from attrs import frozen

#: What a transport takes in one frame (reference: "Attachments" fits inside with base64).
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024

#: Decoded bytes of one attachment, and of all attachments of a message together.
MAX_ATTACHMENT_BYTES: Final = 10 * 1024 * 1024
MAX_ATTACHMENTS_BYTES: Final = MAX_ATTACHMENT_BYTES
MAX_ATTACHMENTS: Final = 8
#: Base64 of `MAX_ATTACHMENT_BYTES`.
MAX_ATTACHMENT_BASE64_CHARS: Final = 4 * -(-MAX_ATTACHMENT_BYTES // 3)
MAX_ATTACHMENT_NAME: Final = 255

MAX_MENTIONS: Final = 64
MAX_SKILLS: Final = 16
MAX_CHATS: Final = 16

#: Of a title an agent gave a conversation.
SUGGESTED_TITLE_LIMIT: Final = 80
#: Of a title or a branch a person gives, after trimming.
MAX_FORK_TITLE: Final = 120
#: Of an account's label, after trimming.
MAX_ACCOUNT_LABEL: Final = 80

#: A page of history, when nobody asks for another length, and at most.
HISTORY_PAGE_ITEMS: Final = 60
MAX_HISTORY_PAGE_ITEMS: Final = 100
#: Where a page stops all the same; its first item always goes.
HISTORY_PAGE_BYTES: Final = 512 * 1024
MAX_HISTORY_CURSOR: Final = 128
MAX_SUBAGENT_CURSOR: Final = 256
MAX_TOOL_USE_ID: Final = 256
MAX_TASK_ID: Final = 256


@frozen(kw_only=True)
class RequestLimits:
    """Where `ChatInfo.requests` is cut.

    Hosts cut there; the shapes hold no maximum on purpose, since one cut that a
    host got wrong would make every `chat.list` unreadable.
    """

    per_chat: int = 8
    subject: int = 200
    description: int = 300
    command: int = 1000
    command_lines: int = 12
    diff: int = 1500
    diff_lines: int = 12
    question: int = 500
    header: int = 100
    choice_description: int = 200


REQUEST_LIMITS: Final = RequestLimits()


@frozen(kw_only=True)
class BookmarkLimits:
    """What bookmarks hold."""

    name: int = 120
    excerpt: int = 160
    per_chat: int = 200


BOOKMARK_LIMITS: Final = BookmarkLimits()


@frozen(kw_only=True)
class VisualLimits:
    """What a host accepts as a visual; heights are CSS pixels, `size_bytes` is the stored page."""

    title: int = 200
    min_height: int = 80
    max_height: int = 2000
    size_bytes: int = 16 * 1024 * 1024
    heights: int = 24


VISUAL_LIMITS: Final = VisualLimits()
