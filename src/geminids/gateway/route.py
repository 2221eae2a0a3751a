"""The route of a run: how its API requests reach the API. The launch plan decides on the route. The
run then prepares the CLI and the gateway for it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from geminids.gateway.request import TOKEN_PREFIX, Api
from geminids.outcome import FailureKind

__all__ = ["Route", "SignIn"]

SignIn = Literal["none", "api_key", "vertex_key", "vertex_credentials", "account"]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """How the API requests of one run reach the API.

    - `kind` is `gateway` (through geminids' local gateway), `direct` (the CLI connects to the API
      itself) or `refused` (the run cannot start). `reason` explains `direct` and `refused`.
    - `base_url` is the URL of the API that the user has set. If it is not set, Google's own URL is
      used.
    - `sign_in` is how the run signs in. It is `none` if no real API is used (offline, replay).
    - `key` is the API key or token. It is a secret.
    - `is_expected` is true if a direct route needs no warning, because the user chose it or no
      sign-in was found.
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
        """Whether the CLI and its tools get no real credential. With an account login, this is
        False, because the CLI itself uses the login.
        """
        return self.kind == "gateway" and self.sign_in != "account"

    @property
    def is_nested(self) -> bool:
        """Whether the requests go to the gateway of an outer run. This is the case if a tool of
        that run started this run.
        """
        return any(TOKEN_PREFIX in text for text in (self.key, self.base_url) if text)

    @property
    def signs_in_by_session(self) -> bool:
        """Whether each session of a warm process (a CLI process that serves several prompts) can
        have its own token for the gateway.

        This is not possible for Vertex AI and Code Assist. For them, the CLI reads the key and the
        endpoint from the environment of the process (contentGenerator.ts and server.ts of
        Gemini CLI 0.61.0).
        """
        return self.kind == "gateway" and self.api == "gemini"
