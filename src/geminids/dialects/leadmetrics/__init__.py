"""Convert the result of a run to the format of Leadmetrics and Paperclip.

This package only converts. `geminids.adapters.leadmetrics` runs the agent.
"""

from __future__ import annotations

from geminids.dialects.leadmetrics.model import AdapterExecutionResult, AdapterUsage, SessionParams
from geminids.dialects.leadmetrics.result import Encoder, result_of

__all__ = ["AdapterExecutionResult", "AdapterUsage", "Encoder", "SessionParams", "result_of"]
