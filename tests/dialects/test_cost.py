"""Money in other systems' formats: told where it is known, and never as 0 where it is not."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from geminids import Cost, Finished, ModelCost, ModelUsage, Usage
from geminids.dialects.dialect import DIALECTS, encode_run
from geminids.dialects.otel.attributes import finished_attributes

PAID = Cost(
    usd=Decimal("0.0027375"),
    basis="exact",
    list_price=Decimal("0.0027375"),
    auth_mode="key",
    models=(ModelCost(model="m", usd=Decimal("0.0027375"), list_price=Decimal("0.0027375")),),
)
LISTED = Cost(basis="exact", list_price=Decimal("0.5"), auth_mode="account", models=(ModelCost(model="m"),))
# Where each format has it.
PLACES = {
    "adapter": ("costUsd",),
    "agent-events": ("usage", "cost", "amount"),
    "atif": ("final_metrics", "total_cost_usd"),
    "claude": ("total_cost_usd",),
    "record": ("total_cost",),
    "untether": ("usage", "total_cost_usd"),
}


def finished(cost: Cost | None) -> Finished:
    counts = {"input": 2_100, "cached": 300, "output": 30, "thinking": 15, "tool": 0, "total": 2_145}
    return Finished(
        at=1,
        seq=1,
        attempt=1,
        turn=1,
        run_id="run-1",
        outcome="success",
        failure=None,
        reason=None,
        text="done",
        answer="done",
        session_id="s-1",
        clear_session=False,
        usage=Usage(**counts, requests=2, models=(ModelUsage(model="m", **counts),)),
        attempts=1,
        exit_code=0,
        duration_ms=5,
        ended=(),
        complete=True,
        cost=cost,
    )


def last(name: str, cost: Cost | None) -> dict[str, Any]:
    said = b"".join(encode_run(name, [finished(cost)]))
    line: dict[str, Any] = json.loads(said if name in ("atif", "record") else said.splitlines()[-1])
    return line.get("payload", line)  # type: ignore[no-any-return]


def money(name: str, cost: Cost | None) -> Any:
    value: Any = last(name, cost)
    for part in PLACES[name]:
        value = (value or {}).get(part)
    return value


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_what_is_paid(name: str) -> None:
    """A number of dollars in the format's own field; nothing where an account or Vertex pays, or nothing is known."""
    assert money(name, PAID) == 0.0027375
    assert money(name, LISTED) is None
    assert money(name, None) is None
    assert money(name, Cost(basis="unknown")) is None


def test_by_model() -> None:
    """Claude has the cost of each model too."""
    assert last("claude", PAID)["modelUsage"]["m"]["costUSD"] == 0.0027375
    assert last("claude", LISTED)["modelUsage"]["m"]["costUSD"] is None


def test_whose_word_it_is() -> None:
    """No bill was read: it is the agent's estimate by SubLang's terms, however exact the tokens are."""
    cost = last("agent-events", PAID)["usage"]["cost"]
    assert cost == {"amount": 0.0027375, "currency": "USD", "source": "agent-estimate"}


def test_spans() -> None:
    """OpenTelemetry has no name for money: it is under ours."""
    told = finished_attributes(finished(PAID), content=False)
    assert (told["geminids.cost.usd"], told["geminids.cost.basis"]) == (0.0027375, "exact")
    assert "geminids.cost.usd" not in finished_attributes(finished(LISTED), content=False)
