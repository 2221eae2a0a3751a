"""How the requests of one run reach the API: decided by the launch plan, used by the gateway."""

from __future__ import annotations

from typing import Literal

import msgspec

from geminids.gateway.request import TOKEN_PREFIX, Api
from geminids.outcome import FailureKind

__all__ = ["Route", "SignIn"]

SignIn = Literal["none", "api_key", "vertex_key", "vertex_credentials", "account"]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway`: through our gateway. `direct`: the CLI connects to the API itself, for `reason`.
    `refused`: the run cannot start, for `reason`.

    `base_url` is the upstream that the user has set; None means Google's own. `key` is a secret.
    `sign_in` is `none` if no real API is used (offline, replay). `is_expected`: a direct route
    needs no warning.
    """

    kind: Literal["gateway", "direct", "refused"]
    sign_in: SignIn = "none"
    api: Api = "gemini"
    base_url: str | None = None
    key: str | None = None
    project: str = ""
    location: str = ""
    reason: str = ""
    is_expected: bool = False
    hint: str = ""
    failure: FailureKind = "bad_option"

    def __repr__(self) -> str:
        return f"Route(kind={self.kind!r}, sign_in={self.sign_in!r}, reason={self.reason!r})"

    @property
    def hides_credentials(self) -> bool:
        """Whether the CLI and its tools get no real credential. An account login stays with the
        CLI."""
        return self.kind == "gateway" and self.sign_in != "account"

    @property
    def is_nested(self) -> bool:
        """Whether the requests go to the gateway of another run, whose tool started this one."""
        return any(TOKEN_PREFIX in text for text in (self.key, self.base_url) if text)

    @property
    def signs_in_by_session(self) -> bool:
        """Whether each session of a warm process can have a token of its own. The CLI reads the key
        of Vertex and the endpoint of Code Assist from the environment of the process (0.61.0,
        contentGenerator.ts, server.ts)."""
        return self.kind == "gateway" and self.api == "gemini"
