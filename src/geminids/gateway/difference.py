"""How a request differs from the recorded ones, for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from geminids.gateway.normal import Normal

__all__ = ["conversation_lines", "diff_of", "nearest"]

_MOST_LINES = 40
# Longer lines are broken, so that it is seen where they differ.
_WIDEST = 120


def nearest(now: Normal, recorded: Sequence[Normal]) -> int | None:
    """Which recorded request is most like this one: of the same method, with the longest common beginning."""
    found: tuple[tuple[bool, int, float], int] | None = None
    for at, old in enumerate(recorded):
        if old.method != now.method:
            continue
        common = _common(now.conversation, old.conversation)
        longer = max(len(now.conversation), len(old.conversation))
        rank = (len(now.conversation) == len(old.conversation), common, -abs(longer - common))
        if found is None or rank > found[0]:
            found = rank, at
    return None if found is None else found[1]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))


def conversation_lines(request: Normal) -> Iterator[str]:
    """A conversation as lines of text."""
    for entry in request.conversation:
        lines = [
            line[at : at + _WIDEST] for line in entry.split("\n") for at in range(0, len(line) or 1, _WIDEST)
        ]
        yield lines[0]
        yield from (f"  {line}" for line in lines[1:])


def diff_of(now: Normal, old: Normal) -> str:
    """A unified diff of two conversations, short enough to be read."""
    import difflib  # nothing that a run which goes well needs

    lines = list(
        difflib.unified_diff(
            list(conversation_lines(old)), list(conversation_lines(now)), "recorded", "now", lineterm="", n=2
        )
    )
    shown = [_shown(line) for line in lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        shown.append(f"… and {len(lines) - _MOST_LINES} more lines")
    return "\n".join(shown)


def _shown(line: str) -> str:
    # Control characters of a tool's output must not reach a terminal.
    return "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in line)
