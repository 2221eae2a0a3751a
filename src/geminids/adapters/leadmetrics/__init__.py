"""The adapter of Leadmetrics and Paperclip: identity, configuration form, environment test, and `execute`."""

from __future__ import annotations

from geminids.adapters.leadmetrics.check import (
    AdapterCheck,
    AdapterEnvironmentTestResult,
    test_environment,
)
from geminids.adapters.leadmetrics.config import (
    GeminiLocalConfig,
    build_config,
    options_of,
    validate_config,
)
from geminids.adapters.leadmetrics.context import (
    AdapterAgent,
    AdapterExecutionContext,
    AdapterRuntime,
    Spawned,
)
from geminids.adapters.leadmetrics.execution import execute
from geminids.adapters.leadmetrics.identity import (
    AdapterIdentity,
    AdapterModel,
    config_fields,
    configuration_doc,
    identity,
)
from geminids.config.form import Problem
from geminids.dialects.leadmetrics import AdapterExecutionResult, AdapterUsage, SessionParams

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
    "build_config",
    "config_fields",
    "configuration_doc",
    "execute",
    "identity",
    "options_of",
    "test_environment",
    "validate_config",
]
