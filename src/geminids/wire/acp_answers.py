"""The answers to our requests over the Agent Client Protocol: a session that was made, a prompt that ended."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from geminids.wire.journal_odd import UNREADABLE, value_of

__all__ = ["Counts", "Opened", "Stopped", "opened_of", "stopped_of"]

_T = TypeVar("_T")


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a prompt, without cached ones and thinking."""

    input_tokens: int | None = None
    output_tokens: int | None = None


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """How a prompt ended, and its tokens where they are told."""

    reason: str
    counts: Counts | None = None


class Opened(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A session that was made."""

    session_id: str


class _Quota(msgspec.Struct, frozen=True, kw_only=True):
    token_count: Counts | None = None


class _StopResult(msgspec.Struct, frozen=True, kw_only=True):
    stop_reason: str = msgspec.field(name="stopReason")
    meta: Any = msgspec.field(name="_meta", default=None)


def stopped_of(result: bytes | msgspec.Raw) -> Stopped:
    """How a prompt ended; raises `msgspec.DecodeError` for what says nothing of it."""
    found = _read(result, _StopResult)
    quota = found.meta.get("quota") if isinstance(found.meta, dict) else None
    try:
        counts = msgspec.convert(quota, _Quota).token_count if quota else None
    except msgspec.ValidationError:
        counts = None
    return Stopped(reason=found.stop_reason, counts=counts)


def opened_of(result: bytes | msgspec.Raw) -> Opened:
    """The session that was made; raises `msgspec.DecodeError`."""
    return _read(result, Opened)


def _read(result: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(result, type=kind)
    except UNREADABLE:
        return msgspec.convert(value_of(bytes(result)), kind)
