"""The answer to a permission request, and the type of the function that gives it.

This module is separate from `decide`, because the command line imports it before the CLI starts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from geminids.events.model import By, Choice, PermissionAsked

__all__ = ["OnPermission", "PermissionAnswer"]


class PermissionAnswer(msgspec.Struct, frozen=True):
    """The answer to a permission request: the decision, who made it, and why."""

    decision: Choice
    by: By = "callback"
    reason: str | None = None


OnPermission = Callable[[PermissionAsked], "Awaitable[Choice | PermissionAnswer] | Choice | PermissionAnswer"]
"""A function that decides a permission request. It may be a coroutine function."""
