"""The input of `execute`, and what a run uses of it: template variables, session, billing type."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from geminids.adapters.leadmetrics.config import GeminiLocalConfig
from geminids.dialects.leadmetrics.model import BillingType, SessionParams
from geminids.events.model import Event
from geminids.ids import is_session_id

__all__ = [
    "AdapterAgent",
    "AdapterExecutionContext",
    "AdapterRuntime",
    "CallbackReturn",
    "Spawned",
    "billing_type",
    "stored_session",
    "variables_of",
    "with_workspace",
]

Stream = Literal["stdout", "stderr"]
# A callback may be a plain function or a coroutine function.
CallbackReturn = Awaitable[object] | object
OnLog = Callable[[Stream, str], CallbackReturn]

_NAME = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)*")
_MAX_DEPTH = 5


class Spawned(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A process of the CLI, the leader of its own process group."""

    pid: int
    process_group_id: int | None
    started_at: str


class AdapterAgent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The agent to run. `company_id` is Paperclip's name for a tenant."""

    id: str
    company_id: str | None = None
    name: str | None = None
    adapter_type: str | None = None
    adapter_config: dict[str, Any] | None = None


class AdapterRuntime(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The values that the orchestrator stored after the last run."""

    session_id: str | None = None
    session_params: dict[str, Any] | None = None
    session_display_id: str | None = None
    task_key: str | None = None


class AdapterExecutionContext(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One run. `context["prompt"]` is the prompt, with or without a template.

    `on_log` receives the output of the CLI with secrets masked: lines of stdout, and notices. `on_spawn`
    receives each process. `on_events` is our addition: it receives the events of the run, in batches.
    """

    run_id: str
    agent: AdapterAgent
    config: GeminiLocalConfig | dict[str, Any]
    runtime: AdapterRuntime = AdapterRuntime()
    context: dict[str, Any] = {}
    on_log: OnLog | None = None
    on_spawn: Callable[[Spawned], CallbackReturn] | None = None
    on_events: Callable[[Sequence[Event]], CallbackReturn] | None = None
    auth_token: str | None = None

    def __repr__(self) -> str:
        # The configuration and the token contain secrets.
        return f"AdapterExecutionContext(run_id={self.run_id!r}, agent={self.agent.id!r})"


def variables_of(given: AdapterExecutionContext) -> dict[str, str]:
    """Return the template variables: the names of both systems, and every text of the context."""
    agent = given.agent
    standard = {
        "agentId": agent.id,
        "agent.id": agent.id,
        "agent.name": agent.name,
        "agent.companyId": agent.company_id,
        "tenantId": agent.company_id,
        "companyId": agent.company_id,
        "company.id": agent.company_id,
        "runId": given.run_id,
        "run.id": given.run_id,
    }
    texts = dict(_texts(given.context, _MAX_DEPTH))
    own = {f"context.{name}": text for name, text in texts.items()}
    named = {name: texts[name] for name in ("tenantId", "tenant.name", "agent.name") if name in texts}
    return own | named | {name: text for name, text in standard.items() if text is not None}


def stored_session(runtime: AdapterRuntime, cwd: str) -> tuple[str | None, str | None]:
    """Return the session to resume, or why it is not resumed: a session is tied to its folder."""
    params = runtime.session_params or {}
    session = _text(params, "sessionId", "session_id", "sessionID") or runtime.session_id
    folder = _text(params, "cwd", "workdir", "folder")
    if not session:
        return None, None
    if not is_session_id(session):
        return None, "the id of the stored session is invalid; starting a new session"
    if folder is not None and os.path.realpath(folder) != os.path.realpath(cwd):
        return (
            None,
            f"session {session} belongs to {folder} and cannot be resumed in {cwd}; starting a new session",
        )
    return session, None


def with_workspace(params: SessionParams, runtime: AdapterRuntime) -> SessionParams:
    """Copy the values that the orchestrator stored with the session."""
    old = runtime.session_params or {}
    return msgspec.structs.replace(
        params,
        workspace_id=_text(old, "workspaceId", "workspace_id"),
        repo_url=_text(old, "repoUrl", "repo_url"),
        repo_ref=_text(old, "repoRef", "repo_ref"),
    )


def billing_type(environ: Mapping[str, str]) -> BillingType:
    """Return how the run is billed, as far as the environment shows."""
    if environ.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
        return "metered_api"
    keys = (environ.get("GEMINI_API_KEY"), environ.get("GOOGLE_API_KEY"))
    return "api" if any(key and key.strip() for key in keys) else "subscription"


def _text(values: Mapping[str, Any], *names: str) -> str | None:
    candidates = (values.get(name) for name in names)
    return next((value for value in candidates if isinstance(value, str) and value.strip()), None)


def _texts(values: Mapping[str, Any], depth: int) -> Iterator[tuple[str, str]]:
    """Yield texts and numbers of a tree with dotted names; skip names that no template can contain."""
    for name, value in values.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            continue
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, str(value)
        elif isinstance(value, Mapping) and depth > 0:
            yield from ((f"{name}.{inner}", text) for inner, text in _texts(value, depth - 1))
