"""One message of a session file, and who wrote it."""

from __future__ import annotations

from typing import Any

import msgspec

from geminids.gemini.protocol.journal.lenient import value_of

__all__ = ["NO_RAW", "Message", "Thought", "Tokens", "ToolCall"]

# Parts that are not text. A message with one of them is not empty.
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
# `raw` is decoded from `$rewindTo`, a field that a message never has: any other value means that
# the line is not a message.
NO_RAW = b"{}"
_NULL = msgspec.Raw(b"null")


class Thought(msgspec.Struct, frozen=True, gc=False):
    """A summary of the model's thoughts before its answer."""

    subject: str = ""
    description: str = ""
    timestamp: str = ""


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """The tokens of one API request. `input` includes `cached`; `output` excludes `thoughts`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    thoughts: int = 0
    tool: int = 0
    total: int = 0


class ToolCall(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A tool call. `result` is what the model received: a list of parts, None while it runs."""

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
        """What the CLI would show, decoded lazily: text, or an object such as an edit's diff."""
        return value_of(bytes(self.shown))


class Message(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One message of a conversation. `raw` is its JSON on one line, including unknown fields."""

    id: str
    type: str = ""
    timestamp: str = ""
    content: Any = ""
    display_content: Any = None
    tool_calls: list[ToolCall] = []
    thoughts: list[Thought] = []
    tokens: Tokens | None = None
    model: str | None = None
    raw: bytes = msgspec.field(default=NO_RAW, name="$rewindTo")

    @property
    def original(self) -> dict[str, Any]:
        """The message as the file has it."""
        value = value_of(self.raw)
        return value if isinstance(value, dict) else {}

    @property
    def parts(self) -> list[Any]:
        """The content as a list; a single value becomes a list of one."""
        return self.content if isinstance(self.content, list) else [self.content]

    @property
    def text(self) -> str:
        """The text in the content."""
        if isinstance(self.content, str):
            return self.content
        return "".join(map(_text_of, self.parts))

    @property
    def is_tool_results(self) -> bool:
        """Whether it holds tool results; since 0.54 these are a separate message of type `user`."""
        if self.type != "user" or isinstance(self.content, str):
            return False
        return any(isinstance(part, dict) and "functionResponse" in part for part in self.parts)

    @property
    def is_injected(self) -> bool:
        """Whether the CLI wrote it in the user's name: session context, or a hook's output."""
        if self.type != "user":
            return False
        text = self.text.strip()
        if text.startswith("<hook_context>"):
            # The output of a SessionStart hook comes before the user's prompt, in the same message.
            return text.endswith("</hook_context>") or "</hook_context>" not in text
        return text.startswith("<session_context>")

    @property
    def is_prompt(self) -> bool:
        """Whether it is a prompt of the user."""
        return self.type == "user" and not self.is_tool_results and not self.is_injected

    @property
    def is_resumable(self) -> bool:
        """Whether the CLI counts it as content; it deletes a session that has no content."""
        text = self.text.strip() or any(map(_is_other, self.parts))
        if self.type == "user":
            return bool(text) and not (isinstance(text, str) and text.startswith(("/", "?", *_INJECTED)))
        return self.type == "gemini" and bool(text or self.tool_calls or self.thoughts)


def _text_of(part: Any) -> str:
    if isinstance(part, dict):
        # In a checkpoint, the parts include thoughts.
        part = None if part.get("thought") else part.get("text")
    return part if isinstance(part, str) else ""


def _is_other(part: Any) -> bool:
    return isinstance(part, dict) and any(name in part for name in _OTHER_PARTS)
