"""A fixture for tests: a scripted Gemini API on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from geminids.gateway.server import Gateway

__all__ = ["geminids_gateway"]


@pytest.fixture
def geminids_gateway() -> Iterator[Gateway]:
    """A started gateway with an empty script: add to it by `.reply(text=…)` and `.when("regex", text=…)`."""
    # Imported here: pytest loads this plugin at every start, for tests that never use it too.
    from geminids.gateway.server import Gateway

    with Gateway() as gateway:
        yield gateway
