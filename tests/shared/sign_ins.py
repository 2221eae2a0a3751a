"""All sign-ins, each with a scripted API server. Tests compare a run's reports with the server's
counts.

    with SIGN_INS["adc"].serve(script, folder) as google:
        options = signed_in(world, google, approval="yolo")
        ...
    assert requests(events) == served(paid(google))

The model is always gemini-2.5-pro. Its prices in dollars per million tokens are 1.25 for input,
0.125 for cached input and 10 for output and thinking. Tool prompt tokens are charged as input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import geminids
from collect_events import select_events
from fake_google import FakeGoogle, ReceivedRequest, Script
from fake_sign_ins import LOGIN, FakeCodeAssist, FakeVertex, FakeVertexProject
from geminids import TokensUsed

__all__ = [
    "KEY",
    "MODEL",
    "SIGN_INS",
    "SignIn",
    "Used",
    "assert_usage_equals_api",
    "options_for_server",
    "paid_requests",
    "price",
    "usage_of_api",
    "usage_of_events",
]

KEY = "AIzaSy-not-a-real-key-0123456789"
MODEL = "gemini-2.5-pro"
_INPUT, _CACHED, _OUTPUT = Decimal("1.25"), Decimal("0.125"), Decimal(10)
_COUNTS = (
    "promptTokenCount",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "toolUsePromptTokenCount",
)
# The model, the input, cached, output, thinking and tool tokens, and the price of one request.
Used = tuple[str | None, int, int, int, int, int, Decimal]


class FakeGemini(FakeGoogle):
    """The Gemini API server for the sign-in with an API key."""

    @property
    def env(self) -> dict[str, str]:
        return {"GEMINI_API_KEY": self.with_key or "", "GOOGLE_GEMINI_BASE_URL": self.url}


@dataclass(frozen=True)
class SignIn:
    """One way to sign in. `serve(script, folder)` returns its API server.

    `bills`: whether geminids reports the list price as the cost in dollars."""

    name: str
    auth_mode: str
    serve: Callable[[Script, Path], Any]
    bills: bool = False

    def holds_the_key(self, google: Any, asked: ReceivedRequest) -> bool:
        """Return whether a request has the real credential, which the gateway (or for an account
        login, the CLI) adds."""
        if self.name == "account":
            return asked.headers.get("authorization") == f"Bearer {LOGIN}"
        if self.name == "adc":
            return asked.key in google.tokens.issued and "x-goog-api-key" not in asked.headers
        return asked.key == KEY


SIGN_INS = {
    sign_in.name: sign_in
    for sign_in in (
        SignIn("key", "key", lambda script, folder: FakeGemini(script, with_key=KEY), bills=True),
        SignIn("vertex_key", "vertex", lambda script, folder: FakeVertex(script, with_key=KEY)),
        SignIn("adc", "vertex", FakeVertexProject),
        SignIn("account", "account", lambda script, folder: FakeCodeAssist(script)),
    )
}


def options_for_server(world: Any, google: Any, **fields: Any) -> geminids.Options:
    """Return options for a run that signs in at this server. `env` adds environment variables."""
    env = {"HOME": str(world.home), "TMPDIR": str(world.tmp), **google.env, **fields.pop("env", {})}
    defaults = {"cwd": str(world.cwd), "gemini": world.version, "model": MODEL, "grace": 2.0}
    return geminids.Options(**{**defaults, "env": env, **fields})


def paid_requests(google: FakeGoogle) -> list[ReceivedRequest]:
    """Return the requests for which the API charges, in order."""
    return [asked for asked in google.asked if asked.request.is_paid]


def price(usage: dict[str, int]) -> Decimal:
    """Return the price in dollars of a gemini-2.5-pro request with this `usageMetadata`."""
    sent, cached, output, thinking, tool = (usage.get(name, 0) for name in _COUNTS)
    dollars = (sent - cached + tool) * _INPUT + cached * _CACHED + (output + thinking) * _OUTPUT
    return dollars / 1_000_000


def usage_of_api(asked: Iterable[ReceivedRequest]) -> list[Used]:
    """Return the model, tokens and price of each request, as the API counted them."""
    return [(one.model, *(one.usage.get(name, 0) for name in _COUNTS), price(one.usage)) for one in asked]  # type: ignore[misc]


def usage_of_events(events: Sequence[Any]) -> list[Used]:
    """Return the model, tokens and price of each request, as the run's events reported them."""
    return [
        (used.model, used.input, used.cached, used.output, used.thinking, used.tool, used.price)  # type: ignore[misc]
        for used in select_events(events, TokensUsed)
    ]


def assert_usage_equals_api(sign_in: SignIn, events: Sequence[Any], asked: Sequence[ReceivedRequest]) -> None:
    """Assert that the events of a run or turn report the same requests, token sums and cost as the
    API served."""
    finished = events[-1]
    expected = usage_of_api(asked)
    assert usage_of_events(events) == expected
    for used in select_events(events, TokensUsed):
        assert (used.requested_model, used.role, used.status, used.repeat) == (MODEL, "main", 200, False)
    usage, cost = finished.usage, finished.cost
    sums = [sum(column) for column in zip(*(row[1:] for row in expected), strict=True)]
    assert [usage.input, usage.cached, usage.output, usage.thinking, usage.tool] == sums[:5]
    assert (usage.requests, usage.unknown) == (len(expected), 0)
    assert [(model.model, model.total) for model in usage.models] == [(MODEL, usage.total)]
    assert (cost.basis, cost.auth_mode, cost.unpriced) == ("exact", sign_in.auth_mode, ())
    assert cost.list_price == sums[5]
    assert cost.usd == (sums[5] if sign_in.bills else None)
