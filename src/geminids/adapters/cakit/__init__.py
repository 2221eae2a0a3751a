"""cakit's interface: install a release of Gemini CLI, run a prompt, and get one record of the run.

from geminids.adapters import cakit

cakit.install("0.61.0")
record = cakit.run_sync("What is in this picture?", images=["cat.png"])
print(record.response, record.exit_code, record.trajectory_path)
"""

from __future__ import annotations

from geminids.adapters.cakit.run import install, run, run_sync
from geminids.dialects.record import ModelTokens, Problem, Record, check, from_report

__all__ = [
    "ModelTokens",
    "Problem",
    "Record",
    "check",
    "from_report",
    "install",
    "run",
    "run_sync",
]
