"""One message of a session file, and whose words it holds."""

from __future__ import annotations

from typing import Any

import msgspec

from geminids.gemini.protocol.journal.lenient import value_of

__all__ = ["NO_RAW", "Message", "Thought", "Tokens", "ToolCall"]

# Parts that are no text; a message with one of them says something all the same.
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
# `raw` is decoded from the name that would make a line no message at all: another value than this one tells it.
NO_RAW = b"{}"
_NULL = msgspec.Raw(b"null")


class Thought(msgspec.Struct, frozen=True, gc=False):
    """A summary of what the model thought before it spoke."""

    subject: str = ""
    description: str = ""
    timestamp: str = ""


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """The tokens of one API request. `input` has the cached ones in it, `output` has not the thinking."""

    input: int = 0
    output: int = 0
    cached: int = 0
    thoughts: int = 0
    tool: int = 0
    total: int = 0


class ToolCall(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A tool call. `result` is what the model was told: a list of parts, None while the tool runs."""

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
        """What the CLI would show: a text, or an object like the diff of an edit. Decoded when it is asked for."""
        return value_of(bytes(self.shown))


class Message(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One message of a conversation. `raw` is its JSON, on one line, with the fields that we do not know too."""

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
        """The message as it stands in the file."""
        value = value_of(self.raw)
        return value if isinstance(value, dict) else {}

    @property
    def parts(self) -> list[Any]:
        """The content as a list, whatever it stands as."""
        return self.content if isinstance(self.content, list) else [self.content]

    @property
    def text(self) -> str:
        """What is text in the content."""
        if isinstance(self.content, str):
            return self.content
        return "".join(map(_text_of, self.parts))

    @property
    def is_tool_results(self) -> bool:
        """Results of tools, told to the model: since 0.54 a message of their own, with type `user`."""
        if self.type != "user" or isinstance(self.content, str):
            return False
        return any(isinstance(part, dict) and "functionResponse" in part for part in self.parts)

    @property
    def is_injected(self) -> bool:
        """Written by the CLI in the user's name: the session's context, or what a hook had to say."""
        if self.type != "user":
            return False
        text = self.text.strip()
        if text.startswith("<hook_context>"):
            # A SessionStart hook's words stand before the user's prompt, in one message.
            return text.endswith("</hook_context>") or "</hook_context>" not in text
        return text.startswith("<session_context>")

    @property
    def is_prompt(self) -> bool:
        """What the user said."""
        return self.type == "user" and not self.is_tool_results and not self.is_injected

    @property
    def is_resumable(self) -> bool:
        """What the CLI calls content: a session without any such message is not resumed, and is deleted."""
        text = self.text.strip() or any(map(_is_other, self.parts))
        if self.type == "user":
            return bool(text) and not (isinstance(text, str) and text.startswith(("/", "?", *_INJECTED)))
        return self.type == "gemini" and bool(text or self.tool_calls or self.thoughts)


def _text_of(part: Any) -> str:
    if isinstance(part, dict):
        # In a checkpoint the thoughts stand among the parts too.
        part = None if part.get("thought") else part.get("text")
    return part if isinstance(part, str) else ""


def _is_other(part: Any) -> bool:
    return isinstance(part, dict) and any(name in part for name in _OTHER_PARTS)
