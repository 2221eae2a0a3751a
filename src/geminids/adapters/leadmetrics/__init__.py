"""The adapter for Leadmetrics and Paperclip: identity, configuration form, environment test, `execute`."""

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
    DEFAULT_MODEL,
    LABEL,
    TYPE,
    AdapterIdentity,
    AdapterModel,
    agent_configuration_doc,
    config_fields,
    identity,
    models,
)
from geminids.adapters.leadmetrics.parse import (
    build_transcript,
    calculate_cost_usd,
    extract_model_id,
    extract_output,
    extract_session_id,
    extract_usage,
    parse_ndjson_lines,
    render_template,
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
    "agent_configuration_doc",
    "build_config",
    "build_transcript",
    "calculate_cost_usd",
    "config_fields",
    "default_model",
    "execute",
    "extract_model_id",
    "extract_output",
    "extract_session_id",
    "extract_usage",
    "identity",
    "label",
    "models",
    "options_of",
    "parse_ndjson_lines",
    "render_template",
    "test_environment",
    "type",
    "validate_config",
]

# Leadmetrics' documentation uses these names for the constants.
type = TYPE
label = LABEL
default_model = DEFAULT_MODEL
