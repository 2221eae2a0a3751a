"""Check whether a run would work on this machine, and report what is missing."""

from __future__ import annotations

from geminids.doctor.checks import Check, Level
from geminids.doctor.doctor import check_environment, probe_options, would_work

__all__ = ["Check", "Level", "check_environment", "probe_options", "would_work"]
