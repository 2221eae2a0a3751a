"""The messages in a session file. A message can come from the user, the model or the CLI itself."""

from __future__ import annotations

from typing import Any

import msgspec

from geminids.gemini.protocol.journal.lenient import value_of

__all__ = ["NO_RAW", "StoredMessage", "StoredThought", "StoredTokens", "StoredToolCall"]

# The kinds of content parts that are not text. A message with such a part is not empty.
_OTHER_PARTS = (
    "thought",
    "videoMetadata",
    "codeExecutionResult",
    "executableCode",
    "fileData",
    "functionCall",
    "functionResponse",
    "inlineData",
)
_INJECTED = ("<session_context>", "<hook_context>")
# The default of `StoredMessage.raw`. msgspec decodes `raw` from the JSON field `$rewindTo`, which
# no message has. So if `raw` has another value after decoding, the line is not a message.
NO_RAW = b"{}"
_NULL = msgspec.Raw(b"null")


class StoredThought(msgspec.Struct, frozen=True, gc=False):
    """A thought in a session file: a summary of what the model thought before its answer."""

    subject: str = ""
    description: str = ""
    timestamp: str = ""


class StoredTokens(msgspec.Struct, frozen=True, gc=False):
    """The numbers of tokens of one API request in a session file. `input` includes `cached`.
    `output` does not include `thoughts`.

    `tool` is the number of input tokens that the API adds for its own tools, such as Google Search.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    thoughts: int = 0
    tool: int = 0
    total: int = 0


class StoredToolCall(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A tool call in a session file.

    `result` is the list of content parts that the model received. It is None while the tool runs.
    """

    id: str = ""
    name: str = ""
    args: dict[str, Any] = {}
    result: Any = None
    status: str = ""
    timestamp: str = ""
    agent_id: str | None = None
    display_name: str | None = None
    description: str | None = None
    shown: msgspec.Raw = msgspec.field(default=_NULL, name="resultDisplay")

    @property
    def result_display(self) -> Any:
        """The result of the tool call as the CLI shows it to the user: a text, or a JSON object
        such as a diff. None if there is none.
        """
        return value_of(bytes(self.shown))


class StoredMessage(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One message of a conversation in a session file. `raw` is the original JSON of the message,
    which can contain more fields.
    """

    id: str
    type: str = ""
    timestamp: str = ""
    content: Any = ""
    display_content: Any = None
    tool_calls: list[StoredToolCall] = []
    thoughts: list[StoredThought] = []
    tokens: StoredTokens | None = None
    model: str | None = None
    raw: bytes = msgspec.field(default=NO_RAW, name="$rewindTo")

    @property
    def original(self) -> dict[str, Any]:
        """The message as a decoded JSON object, with all fields that it has in the file."""
        value = value_of(self.raw)
        return value if isinstance(value, dict) else {}

    @property
    def parts(self) -> list[Any]:
        """The content of the message as a list of parts. If the content is a single value, the list
        has one item.
        """
        return self.content if isinstance(self.content, list) else [self.content]

    @property
    def text(self) -> str:
        """The text of the message. Thoughts of the model are not included."""
        if isinstance(self.content, str):
            return self.content
        return "".join(map(_text_of, self.parts))

    @property
    def is_tool_results(self) -> bool:
        """Whether the message contains results of tools.

        Since 0.54, the CLI stores results in separate messages. Their type is "user", although the
        user did not write them.
        """
        if self.type != "user" or isinstance(self.content, str):
            return False
        return any(isinstance(part, dict) and "functionResponse" in part for part in self.parts)

    @property
    def is_injected(self) -> bool:
        """Whether this message has the type "user", but was written by the CLI itself. Such a
        message contains context or the output of a hook.
        """
        if self.type != "user":
            return False
        text = self.text.strip()
        if text.startswith("<hook_context>"):
            # If text follows the output of a SessionStart hook, that text is the user's prompt.
            return text.endswith("</hook_context>") or "</hook_context>" not in text
        return text.startswith("<session_context>")

    @property
    def is_prompt(self) -> bool:
        """Whether this message is a prompt that the user wrote."""
        return self.type == "user" and not self.is_tool_results and not self.is_injected

    @property
    def is_resumable(self) -> bool:
        """Whether this message makes its session resumable: the CLI can resume a session that has
        at least one such message, and deletes all other sessions.

        True for messages of the user and of the model that have content, except prompts that begin
        with `/` or `?`, and messages that the CLI itself wrote.
        """
        text = self.text.strip() or any(map(_is_other, self.parts))
        if self.type == "user":
            return bool(text) and not (isinstance(text, str) and text.startswith(("/", "?", *_INJECTED)))
        return self.type == "gemini" and bool(text or self.tool_calls or self.thoughts)


def _text_of(part: Any) -> str:
    if isinstance(part, dict):
        # In a `$set` record that replaces all messages, a part can also be a thought.
        part = None if part.get("thought") else part.get("text")
    return part if isinstance(part, str) else ""


def _is_other(part: Any) -> bool:
    return isinstance(part, dict) and any(name in part for name in _OTHER_PARTS)
