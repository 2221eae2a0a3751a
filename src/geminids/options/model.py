"""The options of a run. They are plain data without callbacks, so that they can be stored and sent
to other processes.

The names, types, defaults and descriptions of all options are defined only here. `--help`, forms
and the reference page read them from this module.
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

# msgspec accepts limits (`Meta`) for a number, but not for `number | None`. So each number with a
# limit has its own type here. A field that can be None is declared with it: `Seconds | None`.
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

    command: Annotated[
        str | None, Meta(description="The program to start; it must speak MCP on its stdin and stdout.")
    ] = None
    args: Annotated[tuple[str, ...], Meta(description="The arguments of `command`.")] = ()
    env: Annotated[dict[str, str], Meta(description="Environment variables for the server.")] = {}
    cwd: Annotated[str | None, Meta(description="The folder that the server starts in.")] = None
    url: Annotated[str | None, Meta(description="The URL of an MCP server that runs already.")] = None
    headers: Annotated[dict[str, str], Meta(description="HTTP headers to send to `url`.")] = {}
    timeout: Annotated[
        Seconds | None, Meta(description="The longest time that a tool call may take, in seconds.")
    ] = None
    include_tools: Annotated[
        tuple[str, ...], Meta(description="Offer only these tools of the server to the model.")
    ] = ()
    exclude_tools: Annotated[
        tuple[str, ...], Meta(description="Do not offer these tools of the server to the model.")
    ] = ()


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """All options of a run, except the prompt. If a limit is None, there is no such limit.

    >>> Options(model="flash", timeout=60).model
    'flash'
    """

    cwd: Annotated[str, Meta(description="The folder that the agent works in.")] = "."
    make_cwd: Annotated[bool, Meta(description="Create the working folder if it does not exist.")] = False
    model: Annotated[
        str | None,
        Meta(
            description="`auto`, `pro`, `flash`, `flash-lite` or a model id; if it is not set, the CLI chooses."
        ),
    ] = None
    effort: Annotated[
        Effort | Budget | None,
        Meta(
            description="How much the model thinks: a level or a number of tokens; if it is not set, the CLI decides."
        ),
    ] = None
    approval: Annotated[
        Approval,
        Meta(
            description="What the agent may do without approval: `default` reads, `auto_edit` also edits files, "
            "`yolo` does everything, `plan` only reads and plans."
        ),
    ] = "default"
    permissions: Annotated[
        Permissions, Meta(description="What to allow or deny, in addition to `approval`.")
    ] = Permissions()
    trust_workspace: Annotated[
        bool,
        Meta(
            description="Use the settings, `.env`, hooks, MCP servers, skills and agents that are stored in the folder."
        ),
    ] = False
    resume: Annotated[
        str | None, Meta(description="The session to resume: the id of a session of the folder, or `latest`.")
    ] = None
    session_id: Annotated[
        str | None, Meta(description="The id of the new session; if it is not set, the id is random.")
    ] = None
    fresh: Annotated[
        bool, Meta(description="Start a new session if the session to resume does not exist.")
    ] = False
    when_busy: Annotated[
        WhenBusy,
        Meta(description="What to do if another run is using the session: `wait` for it, or `fail`."),
    ] = "wait"
    template: Annotated[
        str | None,
        Meta(
            description="A text with placeholders: {{prompt}} stands for the prompt, other {{names}} for `variables`."
        ),
    ] = None
    variables: Annotated[dict[str, str], Meta(description="The values of the {{names}} in `template`.")] = {}
    instructions: Annotated[
        str | None, Meta(description="A Markdown file whose text is put before the prompt.")
    ] = None
    images: Annotated[tuple[str, ...], Meta(description="Image files to send with the prompt.")] = ()
    videos: Annotated[tuple[str, ...], Meta(description="Video files to send with the prompt.")] = ()
    files: Annotated[
        tuple[str, ...], Meta(description="Files to send with the prompt: text, PDF, audio and others.")
    ] = ()
    include_dirs: Annotated[
        tuple[str, ...], Meta(description="Folders that the agent may work in, in addition to `cwd`.")
    ] = ()
    skills: Annotated[
        tuple[str, ...],
        Meta(description="Skill folders (with a SKILL.md) to use in addition to the user's own skills."),
    ] = ()
    mcp_servers: Annotated[
        dict[str, McpServer], Meta(description="MCP servers to use in addition to the user's own.")
    ] = {}
    system_prompt: Annotated[
        str | None, Meta(description="A file that replaces the CLI's system prompt.")
    ] = None
    max_turns: Annotated[
        Turns | None,
        Meta(description="The most turns (model requests with their tool calls) that a run may take."),
    ] = None
    max_attempts: Annotated[
        Attempts | None,
        Meta(
            description="How often the CLI sends a model request that fails; by default, this can take minutes."
        ),
    ] = None
    retries: Annotated[
        Retries,
        Meta(
            description="How many times to retry a failed run; only failures that may be temporary are retried."
        ),
    ] = 0
    fallback_models: Annotated[
        tuple[str, ...],
        Meta(
            description="Models to try next, in this order, if the model is unavailable or its quota is used up."
        ),
    ] = ()
    schema: Annotated[
        str | None,
        Meta(
            description="The text of a JSON Schema that the answer must match; `-o text` prints only the JSON value."
        ),
    ] = None
    schema_tries: Annotated[
        Retries, Meta(description="How many times to ask again if the answer does not match the schema.")
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
        Meta(description="A TOML or JSON file with model prices; they override the list prices."),
    ] = None
    requests_per_minute: Annotated[
        Requests | None,
        Meta(description="The most requests that all runs of this process may send per minute."),
    ] = None
    only_models: Annotated[
        tuple[str, ...],
        Meta(description="The only models that may be used: names, or patterns such as `gemini-3*-flash`."),
    ] = ()
    timeout: Annotated[Seconds | None, Meta(description="End the run after this many seconds.")] = None
    idle_timeout: Annotated[
        Seconds | None,
        Meta(description="End the run if the CLI prints nothing for this many seconds while no tool runs."),
    ] = 600.0
    start_timeout: Annotated[
        Seconds | None,
        Meta(description="End the run if the CLI prints nothing within this many seconds after its start."),
    ] = 120.0
    stall_after: Annotated[
        Seconds | None,
        Meta(
            description="After this many seconds without output, report what the run waits for; further reports follow "
            "at growing intervals."
        ),
    ] = 30.0
    permission_timeout: Annotated[
        Seconds | None,
        Meta(
            description="How many seconds to wait for the answer to a permission request; after that, it is denied."
        ),
    ] = 300.0
    grace: Annotated[
        float,
        Meta(
            description="How many seconds the processes of a run get to stop before they are killed.",
            ge=0,
            lt=10**9,
        ),
    ] = 5.0
    leftovers: Annotated[
        Leftovers,
        Meta(
            description="What to do with background processes that are left after a successful run: `end` or `keep`."
        ),
    ] = "end"
    home: Annotated[
        str,
        Meta(
            description="The home folder for the CLI: `user` (the user's own), `isolated` (a private one), or a path."
        ),
    ] = "user"
    gemini: Annotated[
        str | None,
        Meta(
            description="The Gemini CLI to use: a version that geminids installed (`0.61.0`) or a path; if it is not "
            "set, the first CLI that is found."
        ),
    ] = None
    env: Annotated[
        dict[str, str],
        Meta(description="Environment variables for the CLI; they override the variables of this process."),
    ] = {}
    env_file: Annotated[str | None, Meta(description="A file of NAME=value lines; `env` overrides it.")] = (
        None
    )
    env_only: Annotated[
        tuple[str, ...] | None,
        Meta(
            description="Pass to the CLI only these variables of this process, and those that every program needs."
        ),
    ] = None
    telemetry: Annotated[
        str | None, Meta(description="The file to which the CLI writes its own telemetry log.")
    ] = None
    offline: Annotated[
        bool, Meta(description="Use the built-in scripted model: it needs no key and no network.")
    ] = False
    script: Annotated[
        str | None,
        Meta(
            description="Answer model requests from this script, a JSON file with prepared replies (see "
            "`geminids gateway --help`); this needs no key and no network."
        ),
    ] = None
    gateway: Annotated[
        GatewayMode,
        Meta(
            description="`on`: the CLI sends its requests through our gateway, which counts and limits them and hides "
            "the API key from the agent's tools. `off`: the CLI calls the API directly; limits, `record` and "
            "`replay` cannot be used."
        ),
    ] = "on"
    key_from: Annotated[
        str | None,
        Meta(
            description="Where the API key is: `file:PATH` or `keyring:SERVICE/USER`; only the gateway reads it."
        ),
    ] = None
    record: Annotated[
        str | None,
        Meta(
            description="Record the model's requests and responses to this cassette file; it is written only if the "
            "run succeeds."
        ),
    ] = None
    overwrite: Annotated[
        bool, Meta(description="Let `record` replace a cassette file that exists already.")
    ] = False
    replay: Annotated[
        str | None,
        Meta(description="Answer model requests from this cassette file; this needs no key and no network."),
    ] = None
    literal: Annotated[
        bool,
        Meta(
            description="Send the prompt as plain text: `/command` and `@path` in it have no special meaning."
        ),
    ] = False
    line_limit: Annotated[
        int,
        Meta(description="The maximum length of a line in the CLI's output, in bytes.", ge=1024, le=2**40),
    ] = 256 * MEGABYTE

    @property
    def is_scripted(self) -> bool:
        """Whether a script answers in place of a model: the built-in one or `script`."""
        return self.offline or self.script is not None

    @property
    def is_simulated(self) -> bool:
        """Whether no request reaches a real API: a script or a cassette answers all of them."""
        return self.is_scripted or self.replay is not None
