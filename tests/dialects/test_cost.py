"""The cost in the formats of other systems: present if it is known, never 0 if it is unknown."""

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
LIST_PRICE_ONLY = Cost(
    basis="exact", list_price=Decimal("0.5"), auth_mode="account", models=(ModelCost(model="m"),)
)
# The keys that lead to the cost in each format.
COST_KEYS = {
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


def last_object(name: str, cost: Cost | None) -> dict[str, Any]:
    output = b"".join(encode_run(name, [finished(cost)]))
    line: dict[str, Any] = json.loads(output if name in ("atif", "record") else output.splitlines()[-1])
    return line.get("payload", line)  # type: ignore[no-any-return]


def cost_in(name: str, cost: Cost | None) -> Any:
    value: Any = last_object(name, cost)
    for key in COST_KEYS[name]:
        value = (value or {}).get(key)
    return value


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_the_cost_in_dollars(name: str) -> None:
    """Each format has a known cost as a number of dollars. The value is missing if an account pays
    or if the cost is unknown."""
    assert cost_in(name, PAID) == 0.0027375
    assert cost_in(name, LIST_PRICE_ONLY) is None
    assert cost_in(name, None) is None
    assert cost_in(name, Cost(basis="unknown")) is None


def test_the_cost_of_each_model() -> None:
    """Claude's format also has the cost of each model."""
    assert last_object("claude", PAID)["modelUsage"]["m"]["costUSD"] == 0.0027375
    assert last_object("claude", LIST_PRICE_ONLY)["modelUsage"]["m"]["costUSD"] is None


def test_the_source_of_the_cost() -> None:
    """In SubLang's format the source of a cost is `agent-estimate`, because geminids has read no
    bill."""
    cost = last_object("agent-events", PAID)["usage"]["cost"]
    assert cost == {"amount": 0.0027375, "currency": "USD", "source": "agent-estimate"}


def test_the_cost_in_spans() -> None:
    """Spans have the cost under our own attribute names, because OpenTelemetry defines none."""
    attributes = finished_attributes(finished(PAID), content=False)
    assert (attributes["geminids.cost.usd"], attributes["geminids.cost.basis"]) == (0.0027375, "exact")
    assert "geminids.cost.usd" not in finished_attributes(finished(LIST_PRICE_ONLY), content=False)
