"""A budget without the gateway: counted by the events of a run."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from geminids import TokensUsed, ToolStarted
from geminids.gateway.day import DayPurse
from geminids.gateway.purse import Limits, Purse
from geminids.launch.auth import Auth, AuthMode
from geminids.launch.refused import Refused
from geminids.options import Options, make_options
from geminids.prices import price_for_gateway
from geminids.run.allowance import Allowance
from geminids.run.gate import RunGate
from geminids.toolchain.releases import release_of


def used(turn: int, role: Any = "main", model: str = "gemini-2.5-pro") -> TokensUsed:
    return TokensUsed(
        at=0,
        seq=0,
        attempt=1,
        turn=turn,
        model=model,
        role=role,
        input=1_000,
        cached=0,
        output=100,
        thinking=0,
        tool=0,
    )


def tool(turn: int) -> ToolStarted:
    return ToolStarted(
        at=0, seq=0, attempt=1, turn=turn, id=f"t{turn}", name="glob", kind="search", title="", input=None
    )


def purse(**limits: Any) -> Purse:
    return Purse("this run", Limits(**limits), price_for_gateway)


def test_the_last_request_of_a_budget_that_calls_a_tool() -> None:
    """Another request is sure to come, and there is no room for it; in whichever order the two become known."""
    for events in ([tool(2), used(2)], [used(2), tool(2)]):
        allowance = Allowance([purse(requests=2)])
        assert allowance.hear([tool(1), used(1)]) is None
        halts = [allowance.hear([event]) for event in events]
        assert halts[0] is None and halts[1] is not None
        assert "2 of 2 requests spent" in halts[1].message
        assert allowance.halted == halts[1]
        assert allowance.hear([tool(3), used(3)]) is None, "it is said once"


def test_the_last_answer_of_a_budget() -> None:
    """A run that ends with the last request that it may send has kept to its budget."""
    allowance = Allowance([purse(requests=2)])
    assert allowance.hear([tool(1), used(1), used(2)]) is None
    assert allowance.halted is None


def test_an_answer_that_was_not_the_last() -> None:
    """A CLI that goes on without a tool is ended by the first request that was one too many."""
    allowance = Allowance([purse(requests=1)])
    assert allowance.hear([used(1)]) is None
    halt = allowance.hear([used(2)])
    assert halt is not None and "2 of 1 requests spent" in halt.message


def test_a_subagents_request_is_never_the_last() -> None:
    """Whoever sent it has an answer to give."""
    assert Allowance([purse(requests=1)]).hear([used(1, "subagent")]) is not None


@pytest.mark.parametrize(
    ("limits", "requests"),
    [
        ({"tokens": 3_000}, 3),
        ({"dollars": 0.005}, 3),
        ({"tokens": 1_099}, 1),
        ({"requests": 5}, 5),
        # All of it, to the last: nothing is left for another.
        ({"tokens": 2_200}, 2),
        ({"dollars": 0.0045}, 2),
    ],
)
def test_tokens_and_dollars(limits: dict[str, Any], requests: int) -> None:
    """Over as soon as nothing is left: 1,100 tokens and $0.00225 a request."""
    mine = purse(**limits)
    allowance = Allowance([mine])
    turn = 1
    while (halt := allowance.hear([tool(turn), used(turn)])) is None:
        turn += 1
    assert " spent\n" in f"{halt.message}\n", "and no guess at what the next would take"
    assert turn == requests
    assert mine.spent.requests == requests
    assert mine.spent.dollars == requests * Decimal("0.00225")


def test_a_model_without_a_price_and_a_budget_in_dollars() -> None:
    """It cannot be held: the run ends, and says why."""
    halt = Allowance([purse(dollars=1)]).hear([tool(1), used(1, model="gemini-99-ultra")])
    assert halt is not None and (halt.kind, "gemini-99-ultra" in halt.message) == ("model", True)


def test_a_budget_that_others_have_used_up() -> None:
    """Nothing is asked at all."""
    shared = purse(requests=1)
    Allowance([shared]).hear([used(1)])
    halt = Allowance([shared]).begin()
    assert halt is not None and "1 of 1 requests" in halt.message
    assert Allowance([purse(requests=1)]).begin() is None


def test_the_day_counts_as_well(tmp_path: Path) -> None:
    """In the file that all processes share, one line a request."""
    day = DayPurse(tmp_path / "spent", Limits(requests=2))
    allowance = Allowance([day, purse(requests=100)])
    assert allowance.hear([tool(1), used(1)]) is None
    assert allowance.hear([tool(2), used(2)]) is not None
    again = DayPurse(tmp_path / "spent", Limits(requests=2))
    assert (again.spent.requests, again.spent.tokens) == (2, 2_200)
    assert len(day.file.read_text().splitlines()) == 2
    day.file.unlink()
    day.file.mkdir()
    for halt in (Allowance([day]).hear([used(1, "subagent")]), Allowance([day]).begin()):
        assert halt is not None and "cannot be kept" in halt.message


def test_who_cannot_wait_for_the_tokens_of_a_request() -> None:
    """From the call of a tool until they are told, and not once the run has to end."""
    allowance = Allowance([purse(requests=2)])
    assert not allowance.is_behind()
    allowance.hear([tool(1)])
    assert allowance.is_behind()
    assert allowance.hear([used(1, "subagent")]) is None
    assert allowance.is_behind(), "those were somebody else's"
    assert allowance.hear([used(1)]) is not None
    assert not allowance.is_behind()
    for events in ([tool(1), used(1)], [used(1), tool(1)]):
        allowance = Allowance([purse(requests=2)])
        allowance.hear(events)
        assert not allowance.is_behind()


NEW, OLD = release_of("0.61.0"), release_of("0.24.0")


def opened(mode: AuthMode, release: Any = NEW, **fields: Any) -> RunGate:
    gate = RunGate(make_options(Options(), **fields))
    gate.open({}, Auth(mode, "somewhere"), release)
    return gate


@pytest.mark.parametrize("limit", [{"max_requests": 1}, {"max_tokens": 1}, {"max_budget": 1.0}])
@pytest.mark.parametrize(("mode", "gateway"), [("account", "auto"), ("vertex", "auto"), ("key", "off")])
def test_where_there_is_no_gateway_the_budget_is_kept_so(
    mode: AuthMode, gateway: str, limit: dict[str, Any]
) -> None:
    """With a notice that says what that means."""
    gate = opened(mode, gateway=gateway, **limit)
    assert gate.is_open and gate.lease is None and gate.allowance() is not None
    ((level, code, text),) = gate.take_notices()
    assert (level, code) == ("info", "gateway")
    assert "one more may be spent" in text


def test_no_budget_no_allowance() -> None:
    """A run without limits counts nothing, on any sign-in."""
    gate = opened("account")
    assert not gate.is_open
    assert (gate.allowance(), gate.take_notices()) == (None, [])


def test_what_the_gateway_alone_can_do_is_still_refused() -> None:
    """And a budget on a release that writes no journal: nobody could count."""
    for fields in ({"gateway": "on"}, {"only_models": ("gemini-2.5-pro",)}, {"requests_per_minute": 5}):
        with pytest.raises(Refused, match="needs the gateway"):
            opened("account", max_requests=3, **fields)
    with pytest.raises(Refused, match="writes no journal"):
        opened("account", OLD, max_requests=3)


def test_a_price_table_that_is_none_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """With the file and what is wrong in it."""
    file = tmp_path / "prices.toml"
    file.write_text('[[models]]\nmodel = "x"\n')
    with pytest.raises(Refused, match=r"prices: .*prices\.toml.*input"):
        opened("key", prices=str(file))
