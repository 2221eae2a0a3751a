"""ATIF, the trajectory format of Harbor: stored conversations and live runs."""

from __future__ import annotations

from geminids.dialects.atif.document import trajectory
from geminids.dialects.atif.encoder import Encoder

__all__ = ["Encoder", "trajectory"]
