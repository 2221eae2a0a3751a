"""Convert stored conversations and live runs to ATIF, Harbor's format for agent trajectories."""

from __future__ import annotations

from geminids.dialects.atif.document import trajectory
from geminids.dialects.atif.encoder import Encoder

__all__ = ["Encoder", "trajectory"]
