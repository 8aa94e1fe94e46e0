"""The codes of failures on this wire (reference: "Codes"), and an error that carries one."""

from typing import Final, Literal, TypeAlias, get_args

ChatErrorCode: TypeAlias = Literal[
    "bad-request",
    "unknown-request",
    "internal",
    "chat-not-found",
    "chat-busy",
    "chat-unreadable",
    "chat-unsupported",
    "request-not-found",
    "history-expired",
    "subagent-not-found",
    "task-not-found",
    "turn-not-found",
    "item-not-found",
    "bookmark-not-found",
    "too-many-bookmarks",
    "visual-invalid",
    "visual-too-large",
    "account-unavailable",
    "account-incompatible",
    "transcript-missing",
    "transcript-format",
    "fork-failed",
]
CHAT_ERROR_CODES: Final[tuple[ChatErrorCode, ...]] = get_args(ChatErrorCode)


class ChatError(Exception):
    """A request that is refused: a client goes by the code and shows the message."""

    def __init__(self, code: ChatErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
