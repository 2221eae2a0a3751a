"""Every way to sign in, with a scripted API behind it whose own count is the judge.

    with SIGN_INS["adc"].serve(script, folder) as google:
        options = signed_in(world, google, approval="yolo")
        ...
    assert requests(events) == served(google)

The model is always gemini-2.5-pro, so that a reader can compute each price: dollars per million tokens are 1.25 for
input, 0.125 for cached input and 10 for output and thinking; prompts of the API's own tools are input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import geminids
from complete import of
from fake_google import Asked, FakeGoogle, Script
from fake_sign_ins import LOGIN, FakeCodeAssist, FakeVertex, FakeVertexProject
from geminids import TokensUsed

__all__ = [
    "KEY",
    "MODEL",
    "SIGN_INS",
    "SignIn",
    "Used",
    "assert_equal",
    "paid",
    "price",
    "requests",
    "served",
    "signed_in",
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
# Model, input, cached, output, thinking, tool, and the price of one request.
Used = tuple[str | None, int, int, int, int, int, Decimal]


class FakeGemini(FakeGoogle):
    """The Gemini API with a key."""

    @property
    def env(self) -> dict[str, str]:
        return {"GEMINI_API_KEY": self.with_key or "", "GOOGLE_GEMINI_BASE_URL": self.url}


@dataclass(frozen=True)
class SignIn:
    """`serve(script, folder)` makes the server. `bills`: whether the list price is what is paid."""

    name: str
    auth_mode: str
    serve: Callable[[Script, Path], Any]
    bills: bool = False

    def holds_the_key(self, google: Any, asked: Asked) -> bool:
        """Whether a request came with the credential that only the gateway has."""
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


def signed_in(world: Any, google: Any, **fields: Any) -> geminids.Options:
    """Options of a run that signs in at this server; `env` is added to."""
    env = {"HOME": str(world.home), "TMPDIR": str(world.tmp), **google.env, **fields.pop("env", {})}
    given = {"cwd": str(world.cwd), "gemini": world.version, "model": MODEL, "grace": 2.0}
    return geminids.Options(**{**given, "env": env, **fields})


def paid(google: FakeGoogle) -> list[Asked]:
    """The requests for which the API charges, in their order."""
    return [asked for asked in google.asked if asked.request.is_paid]


def price(usage: dict[str, int]) -> Decimal:
    """What the API charges for this `usageMetadata` of gemini-2.5-pro."""
    sent, cached, output, thinking, tool = (usage.get(name, 0) for name in _COUNTS)
    dollars = (sent - cached + tool) * _INPUT + cached * _CACHED + (output + thinking) * _OUTPUT
    return dollars / 1_000_000


def served(asked: Iterable[Asked]) -> list[Used]:
    """What the API counted, request by request."""
    return [(one.model, *(one.usage.get(name, 0) for name in _COUNTS), price(one.usage)) for one in asked]  # type: ignore[misc]


def requests(events: Sequence[Any]) -> list[Used]:
    """What the run reported, request by request."""
    return [
        (used.model, used.input, used.cached, used.output, used.thinking, used.tool, used.price)  # type: ignore[misc]
        for used in of(events, TokensUsed)
    ]


def assert_equal(sign_in: SignIn, events: Sequence[Any], asked: Sequence[Asked]) -> None:
    """One run's or turn's events equal what the API served: each request, the sums, and the cost."""
    finished = events[-1]
    expected = served(asked)
    assert requests(events) == expected
    for used in of(events, TokensUsed):
        assert (used.requested_model, used.role, used.status, used.repeat) == (MODEL, "main", 200, False)
    usage, cost = finished.usage, finished.cost
    sums = [sum(column) for column in zip(*(row[1:] for row in expected), strict=True)]
    assert [usage.input, usage.cached, usage.output, usage.thinking, usage.tool] == sums[:5]
    assert (usage.requests, usage.unknown) == (len(expected), 0)
    assert [(model.model, model.total) for model in usage.models] == [(MODEL, usage.total)]
    assert (cost.basis, cost.auth_mode, cost.unpriced) == ("exact", sign_in.auth_mode, ())
    assert cost.list_price == sums[5]
    assert cost.usd == (sums[5] if sign_in.bills else None)
