"""The adapter that Leadmetrics and Paperclip run their agents with: who it is, its form, its test, its run."""

from __future__ import annotations

from geminids.config.form import Problem
from geminids.dialects.adapter.check import AdapterCheck, AdapterEnvironmentTestResult, test_environment
from geminids.dialects.adapter.config import GeminiLocalConfig, build_config, options_of, validate_config
from geminids.dialects.adapter.context import AdapterAgent, AdapterExecutionContext, AdapterRuntime, Spawned
from geminids.dialects.adapter.executing import execute
from geminids.dialects.adapter.identity import (
    AdapterIdentity,
    AdapterModel,
    config_fields,
    configuration_doc,
    identity,
)
from geminids.dialects.adapter.model import AdapterExecutionResult, AdapterUsage, SessionParams
from geminids.dialects.adapter.result import Speaker, result_of

__all__ = [
    "AdapterAgent",
    "AdapterCheck",
    "AdapterEnvironmentTestResult",
    "AdapterExecutionContext",
    "AdapterExecutionResult",
    "AdapterIdentity",
    "AdapterModel",
    "AdapterRuntime",
    "AdapterUsage",
    "GeminiLocalConfig",
    "Problem",
    "SessionParams",
    "Spawned",
    "Speaker",
    "build_config",
    "config_fields",
    "configuration_doc",
    "execute",
    "identity",
    "options_of",
    "result_of",
    "test_environment",
    "validate_config",
]
