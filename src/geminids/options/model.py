"""The options of a run: pure data that can be stored, sent and validated. It holds no callbacks.

This is the only schema: `--help`, forms and the reference page take names, types, defaults and
descriptions from here.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from geminids.options.permissions import Permissions

__all__ = ["Approval", "Effort", "GatewayMode", "Leftovers", "McpServer", "Options", "WhenBusy"]

Approval = Literal["default", "auto_edit", "yolo", "plan"]
Effort = Literal["none", "minimal", "low", "medium", "high"]
Leftovers = Literal["end", "keep"]
WhenBusy = Literal["wait", "fail"]
GatewayMode = Literal["on", "off"]

MEGABYTE = 1024 * 1024

# The limits are inside the `| None`, because msgspec accepts them on numbers only.
Seconds = Annotated[float, Meta(gt=0, lt=10**9)]
Turns = Annotated[int, Meta(ge=1, le=100_000)]
Attempts = Annotated[int, Meta(ge=1, le=10)]
Budget = Annotated[int, Meta(ge=0, le=1_000_000)]
Dollars = Annotated[float, Meta(gt=0, le=10**9)]
Tokens = Annotated[int, Meta(ge=1, le=10**15)]
Retries = Annotated[int, Meta(ge=0, le=100)]
Requests = Annotated[int, Meta(ge=1, le=10**9)]


class McpServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An MCP server: either a `command` to start or a `url` to connect to."""

    command: Annotated[str | None, Meta(description="A program that speaks MCP on its stdin and stdout.")] = (
        None
    )
    args: Annotated[tuple[str, ...], Meta(description="Arguments of `command`.")] = ()
    env: Annotated[dict[str, str], Meta(description="Environment variables of the server.")] = {}
    cwd: Annotated[str | None, Meta(description="The folder that the server starts in.")] = None
    url: Annotated[str | None, Meta(description="The URL of an HTTP server.")] = None
    headers: Annotated[dict[str, str], Meta(description="HTTP headers for `url`.")] = {}
    timeout: Annotated[Seconds | None, Meta(description="Timeout of a tool call, in seconds.")] = None
    include_tools: Annotated[tuple[str, ...], Meta(description="Offer only these tools of the server.")] = ()
    exclude_tools: Annotated[tuple[str, ...], Meta(description="Do not offer these tools.")] = ()


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """All options of a run; the prompt is separate. For a limit, `None` means no limit.

    >>> Options(model="flash", timeout=60).model
    'flash'
    """

    cwd: Annotated[str, Meta(description="The folder that the agent works in.")] = "."
    make_cwd: Annotated[bool, Meta(description="Create `cwd` if it does not exist.")] = False
    model: Annotated[
        str | None,
        Meta(description="`auto`, `pro`, `flash`, `flash-lite` or a model id; without it, the CLI chooses."),
    ] = None
    effort: Annotated[
        Effort | Budget | None,
        Meta(
            description="How much the model thinks: a level or a number of tokens; without it, the CLI decides."
        ),
    ] = None
    approval: Annotated[
        Approval,
        Meta(
            description="`default` only reads, `auto_edit` edits files, `yolo` allows everything, `plan` only plans."
        ),
    ] = "default"
    permissions: Annotated[
        Permissions, Meta(description="What to allow and deny in addition to `approval`.")
    ] = Permissions()
    trust_workspace: Annotated[
        bool,
        Meta(description="Use the folder's own settings, .env, hooks, MCP servers, skills and agents."),
    ] = False
    resume: Annotated[
        str | None, Meta(description="The session to resume: an id from this `cwd`, or `latest`.")
    ] = None
    session_id: Annotated[
        str | None, Meta(description="The id of the new session; without it, a random one is used.")
    ] = None
    fresh: Annotated[
        bool, Meta(description="Start a new session if the session to resume does not exist.")
    ] = False
    when_busy: Annotated[WhenBusy, Meta(description="Wait or fail if another run is using the session.")] = (
        "wait"
    )
    template: Annotated[
        str | None,
        Meta(description="A text with {{names}} to fill in; the prompt replaces {{prompt}}."),
    ] = None
    variables: Annotated[dict[str, str], Meta(description="Values for the {{names}} of the template.")] = {}
    instructions: Annotated[str | None, Meta(description="A Markdown file to put before the prompt.")] = None
    images: Annotated[tuple[str, ...], Meta(description="Image files to send with the prompt.")] = ()
    videos: Annotated[tuple[str, ...], Meta(description="Video files to send with the prompt.")] = ()
    files: Annotated[
        tuple[str, ...], Meta(description="Other files (text, PDF, audio, ...) to send with the prompt.")
    ] = ()
    include_dirs: Annotated[
        tuple[str, ...], Meta(description="More folders that the agent may work in.")
    ] = ()
    skills: Annotated[
        tuple[str, ...],
        Meta(description="Folders with a SKILL.md, in addition to the user's own skills."),
    ] = ()
    mcp_servers: Annotated[
        dict[str, McpServer], Meta(description="MCP servers, in addition to the user's own.")
    ] = {}
    system_prompt: Annotated[
        str | None, Meta(description="A file that replaces the CLI's system prompt.")
    ] = None
    max_turns: Annotated[Turns | None, Meta(description="The most model turns that a run may take.")] = None
    max_attempts: Annotated[
        Attempts | None,
        Meta(
            description="How often the CLI tries a failing request; the CLI's own default can take minutes."
        ),
    ] = None
    retries: Annotated[Retries, Meta(description="How often to retry a failed run, if a retry can help.")] = 0
    fallback_models: Annotated[
        tuple[str, ...],
        Meta(description="Models to continue with if the model's quota is used up or it is unavailable."),
    ] = ()
    schema: Annotated[
        str | None,
        Meta(
            description="A JSON Schema (as text) that the answer must match; `-o text` prints only the value."
        ),
    ] = None
    schema_tries: Annotated[
        Retries, Meta(description="How often to ask again if the answer does not match the schema.")
    ] = 2
    max_budget: Annotated[
        Dollars | None, Meta(description="The most that a run or a chat may cost, in dollars.")
    ] = None
    max_tokens: Annotated[
        Tokens | None, Meta(description="The most tokens that a run or a chat may use.")
    ] = None
    max_requests: Annotated[
        Requests | None, Meta(description="The most model requests that a run or a chat may send.")
    ] = None
    day_budget: Annotated[
        Dollars | None, Meta(description="The most that all runs of this user may cost per day, in dollars.")
    ] = None
    day_tokens: Annotated[
        Tokens | None, Meta(description="The most tokens that all runs of this user may use per day.")
    ] = None
    day_requests: Annotated[
        Requests | None, Meta(description="The most requests that all runs of this user may send per day.")
    ] = None
    prices: Annotated[
        str | None,
        Meta(description="A TOML or JSON file with model prices, which override the list prices."),
    ] = None
    requests_per_minute: Annotated[
        Requests | None,
        Meta(description="The most requests that all runs of this process may send per minute."),
    ] = None
    only_models: Annotated[
        tuple[str, ...],
        Meta(description="The only models that may be used; patterns work (`gemini-3*-flash`)."),
    ] = ()
    timeout: Annotated[Seconds | None, Meta(description="End the run after this many seconds.")] = None
    idle_timeout: Annotated[
        Seconds | None,
        Meta(description="End the run after this many seconds without output while no tool runs."),
    ] = 600.0
    start_timeout: Annotated[
        Seconds | None, Meta(description="End the run if the CLI prints nothing within this many seconds.")
    ] = 120.0
    stall_after: Annotated[
        Seconds | None,
        Meta(
            description="After this many seconds without output, report what the run waits for; then less often."
        ),
    ] = 30.0
    permission_timeout: Annotated[
        Seconds | None,
        Meta(description="How many seconds to wait for the answer to a permission request; then deny it."),
    ] = 300.0
    grace: Annotated[
        float,
        Meta(
            description="How many seconds the processes have to stop before they are killed.",
            ge=0,
            lt=10**9,
        ),
    ] = 5.0
    leftovers: Annotated[
        Leftovers, Meta(description="End or keep background processes that a successful run leaves behind.")
    ] = "end"
    home: Annotated[str, Meta(description="`user`, `isolated`, or a folder to use as the user's home.")] = (
        "user"
    )
    gemini: Annotated[
        str | None,
        Meta(
            description="A managed release (`0.61.0`) or the path of a CLI; without it, the first one found."
        ),
    ] = None
    env: Annotated[
        dict[str, str], Meta(description="Environment variables for the CLI; they override this process's.")
    ] = {}
    env_file: Annotated[str | None, Meta(description="A file of NAME=value lines; `env` overrides it.")] = (
        None
    )
    env_only: Annotated[
        tuple[str, ...] | None,
        Meta(description="Pass on only these variables of this process, and those that every program needs."),
    ] = None
    telemetry: Annotated[
        str | None, Meta(description="A file that the CLI writes its own telemetry log to.")
    ] = None
    offline: Annotated[bool, Meta(description="Use the built-in scripted model: no key, no network.")] = False
    gateway: Annotated[
        GatewayMode,
        Meta(
            description="`on`: requests go through our gateway, which counts and limits them and hides the API key "
            "from the agent's tools. `off`: the CLI calls the API itself; limits, record and replay are refused."
        ),
    ] = "on"
    key_from: Annotated[
        str | None,
        Meta(
            description="Where the API key is: `file:PATH` or `keyring:SERVICE/USER`; only the gateway reads it."
        ),
    ] = None
    record: Annotated[
        str | None, Meta(description="Record the model's requests and responses to this cassette file.")
    ] = None
    replay: Annotated[
        str | None,
        Meta(description="Answer model requests from this cassette file: no key, no network."),
    ] = None
    literal: Annotated[bool, Meta(description="Send the prompt as plain text: no /command, no @path.")] = (
        False
    )
    line_limit: Annotated[
        int,
        Meta(description="The longest line of the CLI's output to read, in bytes.", ge=1024, le=2**40),
    ] = 256 * MEGABYTE
