"""Convert stored conversations and live runs to ATIF, the trajectory format of Harbor."""

from __future__ import annotations

from geminids.dialects.atif.document import trajectory
from geminids.dialects.atif.encoder import Encoder

__all__ = ["Encoder", "trajectory"]
