"""Hints for the user. For each kind of failure, there is one sentence that says what to do."""

from __future__ import annotations

from geminids.outcome import FailureKind

__all__ = ["hint_for"]

_HINTS: dict[FailureKind, str] = {
    "auth": "Set GEMINI_API_KEY to a valid key (or, for Vertex AI, GOOGLE_API_KEY and GOOGLE_GENAI_USE_VERTEXAI=true), "
    "then run `geminids doctor`. To run without a key, use `offline=True`.",
    "tier_retired": "Use an API key (GEMINI_API_KEY), Vertex AI, or a Code Assist Standard or Enterprise account.",
    "quota_minute": "Wait for the time that the API asks for, send fewer requests, or raise the quota of the key.",
    "quota_day": "Wait until the quota is renewed, use another model, or raise the quota of the key.",
    "model_not_found": "Use a model that the key can access; the aliases `auto`, `pro` and `flash` always work.",
    "bad_request": "Read the message, then change the request: the API would refuse the same request again.",
    "server": "Try again: the API failed or sent an invalid answer.",
    "network": "Check the network, the proxy and GOOGLE_GEMINI_BASE_URL, then try again.",
    "session_not_found": "Start without `resume`: a session can only be resumed in the folder it was created in.",
    "session_busy": "Wait for the run that uses the session, or start a new session.",
    "untrusted_folder": "Remove GEMINI_CLI_TRUST_WORKSPACE=false or GEMINI_RESTRICTED_MODE from the environment.",
    "config": "Fix the settings file that the message names.",
    "sandbox": "Start the sandbox's container engine, or turn `tools.sandbox` off.",
    "tool_fatal": "Read the message: a tool failed with an error that a retry does not fix (usually a full disk).",
    "blocked": "Word the prompt differently, or try again.",
    "loop": "Word the task differently, or give the agent the tool or permission that it keeps asking for.",
    "cut_off": "Find out who ended the CLI (memory limit, supervisor, `kill`), then run again or resume.",
    "crashed": "Read the end of stderr; run `geminids doctor`, and try another release with `geminids install`.",
    "cli_missing": "Run `geminids install`.",
    "cli_unsupported": "Install a newer release with `geminids install`.",
    "bad_prompt": "Fix the prompt; `literal=True` treats a leading `/` and `@path` as plain text.",
    "bad_option": "Fix the option that the message names.",
    "schema_mismatch": "Simplify the schema, or allow more tries with `schema_tries`.",
    "protocol": "Report this as a bug of geminids, with the CLI's version and its recorded output.",
    "timed_out": "Give the run more time: `timeout`, `idle_timeout` or `start_timeout`.",
    "max_turns": "Raise `max_turns`.",
    "over_budget": "Raise the limit, or wait until there is budget again.",
    "interrupted": "Run it again.",
}


_BY_STATUS: dict[tuple[FailureKind, int], str] = {
    ("auth", 403): "Let the key use this API and project (or use another key), then run `geminids doctor`.",
}


def hint_for(kind: FailureKind, http_status: int | None = None) -> str:
    """Return the hint for a failure of this kind: a sentence that says what the user can do.

    For some HTTP statuses, there is a special hint. `http_status` is None if the status is unknown.
    """
    return _HINTS[kind] if http_status is None else _BY_STATUS.get((kind, http_status), _HINTS[kind])
