"""Requests that the CLI has written down become `TokensUsed`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from geminids.events.ledger import Ledger
from geminids.events.model import Role, TokensUsed
from geminids.wire.telemetry import ApiResponse

__all__ = ["tokens_used"]


def tokens_used(responses: Iterable[ApiResponse], ledger: Ledger) -> list[TokensUsed]:
    """One event a request, in their order, numbered behind what has been said so far."""
    return [
        TokensUsed(
            at=_ms(response.at),
            seq=ledger.next(),
            attempt=ledger.attempt,
            turn=ledger.turn,
            model=response.model,
            role=_role(response.role),
            input=response.input_token_count,
            cached=response.cached_content_token_count,
            output=response.output_token_count,
            thinking=response.thoughts_token_count,
            tool=response.tool_token_count,
        )
        for response in responses
    ]


def _role(role: str | None) -> Role:
    if role is not None and role.startswith("utility"):
        return "utility"
    return "subagent" if role == "subagent" else "main"


def _ms(stamp: str) -> int:
    try:
        return int(datetime.fromisoformat(stamp).timestamp() * 1000)
    except ValueError:
        return 0
