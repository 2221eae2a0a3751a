"""The input of `execute`, and functions that read the template variables, the stored session and
the billing type from this input."""

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
    "has_unusable_session",
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
_ID_NAMES = ("sessionId", "session_id", "sessionID")


class Spawned(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A CLI process that was started. The process is the leader of its own process group."""

    pid: int
    process_group_id: int | None
    started_at: str


class AdapterAgent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The agent to run. `company_id` is the id of the tenant, which Paperclip calls a company."""

    id: str
    company_id: str | None = None
    name: str | None = None
    adapter_type: str | None = None
    adapter_config: dict[str, Any] | None = None


class AdapterRuntime(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The values that the orchestrator stored after the agent's last run in this folder."""

    session_id: str | None = None
    session_params: dict[str, Any] | str | None = None
    """The stored `session_params` of the last result: the object, or its JSON as text."""
    session_display_id: str | None = None
    task_key: str | None = None


class AdapterExecutionContext(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The input of one run. `context["prompt"]` is the prompt.

    `on_log(stream, text)` receives the lines that the CLI prints to stdout, and also warnings, for
    which `stream` is `stderr`. Secrets are masked. `on_spawn` is called for each CLI process that
    is started. `on_events`, an addition of geminids, receives the events of the run in batches.
    `auth_token` is passed to the agent's tools in the environment variable `PAPERCLIP_API_KEY`.
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


def variables_of(context: AdapterExecutionContext) -> dict[str, str]:
    """Return the values for a prompt template, as a dict with the names as keys.

    The names are those of Leadmetrics (`agentId`, `tenant.name`, ...) and those of Paperclip
    (`agent.id`, `company.id`, ...), so that templates for both systems work. Each text in
    `context.context` has a name such as `context.issue.title`.
    """
    agent = context.agent
    standard = {
        "agentId": agent.id,
        "agent.id": agent.id,
        "agent.name": agent.name,
        "agent.companyId": agent.company_id,
        "tenantId": agent.company_id,
        "companyId": agent.company_id,
        "company.id": agent.company_id,
        "runId": context.run_id,
        "run.id": context.run_id,
    }
    texts = dict(_texts(context.context, _MAX_DEPTH))
    own = {f"context.{name}": text for name, text in texts.items()}
    named = {name: texts[name] for name in ("tenantId", "tenant.name", "agent.name") if name in texts}
    return own | named | {name: text for name, text in standard.items() if text is not None}


def stored_session(runtime: AdapterRuntime, cwd: str) -> tuple[str | None, str | None]:
    """Return two values: the id of the stored session, and a problem. At least one of them is None.

    If the stored session can be resumed in the folder `cwd`, the problem is None. If it cannot, the
    id is None and the problem says why. If no session is stored, both are None.
    """
    params = _stored_params(runtime)
    session = _text(params, *_ID_NAMES) or runtime.session_id
    folder = _text(params, "cwd", "workdir", "folder")
    if not session:
        problem = "the stored session has no id; starting a new session"
        return None, problem if _is_stored(runtime) else None
    if not is_session_id(session):
        return None, "the id of the stored session is invalid; starting a new session"
    if folder is not None and os.path.realpath(folder) != os.path.realpath(cwd):
        return (
            None,
            f"session {session} belongs to {folder} and cannot be resumed in {cwd}; starting a new session",
        )
    return session, None


def has_unusable_session(runtime: AdapterRuntime) -> bool:
    """Return whether a session is stored that can never be resumed, because its id is missing or
    invalid."""
    params = _stored_params(runtime)
    session = _text(params, *_ID_NAMES) or runtime.session_id
    return _is_stored(runtime) and not (session and is_session_id(session))


def _is_stored(runtime: AdapterRuntime) -> bool:
    params = _stored_params(runtime)
    return bool(runtime.session_id) or any(value is not None for value in params.values())


def with_workspace(params: SessionParams, runtime: AdapterRuntime) -> SessionParams:
    """Return a copy of `params` with the workspace values (`workspaceId`, `repoUrl`, `repoRef`) of
    the stored session."""
    old = _stored_params(runtime)
    return msgspec.structs.replace(
        params,
        workspace_id=_text(old, "workspaceId", "workspace_id"),
        repo_url=_text(old, "repoUrl", "repo_url"),
        repo_ref=_text(old, "repoRef", "repo_ref"),
    )


def billing_type(environ: Mapping[str, str]) -> BillingType:
    """Return how a run is billed: `metered_api` for Vertex AI, `api` for an API key, otherwise
    `subscription`."""
    if environ.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
        return "metered_api"
    keys = (environ.get("GEMINI_API_KEY"), environ.get("GOOGLE_API_KEY"))
    return "api" if any(key and key.strip() for key in keys) else "subscription"


def _stored_params(runtime: AdapterRuntime) -> dict[str, Any]:
    """Return the stored session parameters as a dict with their JSON names. The caller may have
    stored a `SessionParams` object or its JSON instead of a dict. If the stored value is not an
    object, return a dict without a session id."""
    stored: Any = runtime.session_params
    if isinstance(stored, str | bytes):
        try:
            stored = msgspec.json.decode(stored) if stored else None
        except msgspec.DecodeError:
            stored = {"sessionId": ""}
    params: Any = msgspec.to_builtins(stored)
    return params if isinstance(params, dict) else {} if params is None else {"sessionId": ""}


def _text(values: Mapping[str, Any], *names: str) -> str | None:
    candidates = (values.get(name) for name in names)
    return next((value for value in candidates if isinstance(value, str) and value.strip()), None)


def _texts(values: Mapping[str, Any], depth: int) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each text or number in `values`. For a value in a nested
    object, the parts of the name are joined with dots (`issue.title`).

    Names that a template cannot contain, and objects that are nested more than `depth` levels deep,
    are skipped.
    """
    for name, value in values.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            continue
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, str(value)
        elif isinstance(value, Mapping) and depth > 0:
            yield from ((f"{name}.{inner}", text) for inner, text in _texts(value, depth - 1))
