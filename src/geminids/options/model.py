"""What a user wants of a run: pure data that can be stored, sent and checked, with no callbacks in it.

The one schema: names, types, defaults and descriptions stand here, and validation, `--help`, forms and the reference
page are made from them.
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

# Limits stand inside the `| None`: msgspec takes them on numbers alone.
Seconds = Annotated[float, Meta(gt=0, lt=10**9)]
Turns = Annotated[int, Meta(ge=1, le=100_000)]
Attempts = Annotated[int, Meta(ge=1, le=10)]
Budget = Annotated[int, Meta(ge=0, le=1_000_000)]
Dollars = Annotated[float, Meta(gt=0, le=10**9)]
Tokens = Annotated[int, Meta(ge=1, le=10**15)]
Retries = Annotated[int, Meta(ge=0, le=100)]
Requests = Annotated[int, Meta(ge=1, le=10**9)]


class McpServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One MCP server: a `command` that is started, or a `url` that is spoken to."""

    command: Annotated[str | None, Meta(description="A program that speaks MCP on its stdin and stdout.")] = (
        None
    )
    args: Annotated[tuple[str, ...], Meta(description="Its arguments.")] = ()
    env: Annotated[dict[str, str], Meta(description="Its own variables.")] = {}
    cwd: Annotated[str | None, Meta(description="The folder that it is started in.")] = None
    url: Annotated[str | None, Meta(description="Where a server listens (HTTP).")] = None
    headers: Annotated[dict[str, str], Meta(description="HTTP headers for `url`.")] = {}
    timeout: Annotated[Seconds | None, Meta(description="Seconds for one call.")] = None
    include_tools: Annotated[tuple[str, ...], Meta(description="Only these of its tools.")] = ()
    exclude_tools: Annotated[tuple[str, ...], Meta(description="None of these of its tools.")] = ()


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Everything about a run but its prompt. Seconds are floats, `None` means no limit.

    >>> Options(model="flash", timeout=60).model
    'flash'
    """

    cwd: Annotated[str, Meta(description="The folder that the agent works in.")] = "."
    make_cwd: Annotated[bool, Meta(description="Make `cwd` where it is absent.")] = False
    model: Annotated[
        str | None, Meta(description="`auto`, `pro`, `flash`, `flash-lite` or an id; else the CLI chooses.")
    ] = None
    effort: Annotated[
        Effort | Budget | None,
        Meta(description="How much the model thinks: a level, or a budget in tokens; else the CLI's own."),
    ] = None
    approval: Annotated[
        Approval,
        Meta(
            description="`default` reads only, `auto_edit` may edit files, `yolo` anything, `plan` only plans."
        ),
    ] = "default"
    permissions: Annotated[Permissions, Meta(description="What is allowed and denied beside `approval`.")] = (
        Permissions()
    )
    trust_workspace: Annotated[
        bool,
        Meta(
            description="Let the folder's own settings, .env, hooks, servers, skills and agents have power."
        ),
    ] = False
    resume: Annotated[str | None, Meta(description="A session id of this `cwd`, or `latest`.")] = None
    session_id: Annotated[
        str | None, Meta(description="The id for a new session; else the CLI makes one.")
    ] = None
    fresh: Annotated[bool, Meta(description="Begin a new session where the one to resume is gone.")] = False
    when_busy: Annotated[WhenBusy, Meta(description="What to do where another run works in the session.")] = (
        "wait"
    )
    template: Annotated[
        str | None,
        Meta(description="A text with {{names}} around the prompt; {{prompt}} is where the prompt goes."),
    ] = None
    variables: Annotated[
        dict[str, str], Meta(description="What stands for the {{names}} of the template.")
    ] = {}
    instructions: Annotated[
        str | None, Meta(description="A Markdown file that is put before the prompt.")
    ] = None
    images: Annotated[tuple[str, ...], Meta(description="Pictures that the model shall see.")] = ()
    videos: Annotated[tuple[str, ...], Meta(description="Videos that the model shall see.")] = ()
    files: Annotated[
        tuple[str, ...], Meta(description="Files (text, PDF, audio, ...) that the model shall see.")
    ] = ()
    include_dirs: Annotated[
        tuple[str, ...], Meta(description="Further folders that the agent may work in.")
    ] = ()
    skills: Annotated[
        tuple[str, ...], Meta(description="Folders with a SKILL.md that this run has beside the user's own.")
    ] = ()
    mcp_servers: Annotated[
        dict[str, McpServer], Meta(description="MCP servers of this run, beside the user's own.")
    ] = {}
    system_prompt: Annotated[
        str | None, Meta(description="A file that replaces the CLI's own system prompt.")
    ] = None
    max_turns: Annotated[Turns | None, Meta(description="How many model turns a run may take.")] = None
    max_attempts: Annotated[
        Attempts | None,
        Meta(description="How often the CLI tries a failing request; its own default takes minutes."),
    ] = None
    retries: Annotated[
        Retries, Meta(description="How often a run that failed is tried again, where that can help.")
    ] = 0
    fallback_models: Annotated[
        tuple[str, ...],
        Meta(description="Models to go on with where the model's quota is used up or it is gone."),
    ] = ()
    schema: Annotated[
        str | None,
        Meta(
            description="A JSON Schema (as text) that the answer must fit; `-o text` prints the value alone."
        ),
    ] = None
    schema_tries: Annotated[
        Retries, Meta(description="How often an answer that does not fit the schema is asked for again.")
    ] = 2
    max_budget: Annotated[
        Dollars | None, Meta(description="What the requests of a run or a chat may cost, in dollars.")
    ] = None
    max_tokens: Annotated[
        Tokens | None, Meta(description="How many tokens the requests of a run or a chat may take.")
    ] = None
    max_requests: Annotated[
        Requests | None, Meta(description="How many requests to a model a run or a chat may send.")
    ] = None
    day_budget: Annotated[
        Dollars | None, Meta(description="What all runs of this user may cost in a day, in dollars.")
    ] = None
    day_tokens: Annotated[
        Tokens | None, Meta(description="How many tokens all runs of this user may take in a day.")
    ] = None
    day_requests: Annotated[
        Requests | None, Meta(description="How many requests all runs of this user may send in a day.")
    ] = None
    prices: Annotated[
        str | None,
        Meta(description="A TOML or JSON file with prices of models, which go before the list prices."),
    ] = None
    requests_per_minute: Annotated[
        Requests | None,
        Meta(description="How many requests all runs of this process may send in a minute."),
    ] = None
    only_models: Annotated[
        tuple[str, ...],
        Meta(description="Models that requests may go to (`gemini-3*-flash` is a pattern); else any."),
    ] = ()
    timeout: Annotated[Seconds | None, Meta(description="Ends the run after this many seconds.")] = None
    idle_timeout: Annotated[
        Seconds | None,
        Meta(description="Ends the run after this many seconds of silence in which no tool runs."),
    ] = 600.0
    start_timeout: Annotated[
        Seconds | None, Meta(description="Ends a run whose CLI has said nothing for this many seconds.")
    ] = 120.0
    stall_after: Annotated[
        Seconds | None,
        Meta(
            description="Says what the run waits for after this many seconds of silence, and then more rarely."
        ),
    ] = 30.0
    permission_timeout: Annotated[
        Seconds | None,
        Meta(description="Seconds that somebody has to answer when the agent asks; after them it is a no."),
    ] = 300.0
    grace: Annotated[
        float, Meta(description="Seconds between the request to end and the kill.", ge=0, lt=10**9)
    ] = 5.0
    leftovers: Annotated[
        Leftovers, Meta(description="What becomes of background processes that a successful run leaves.")
    ] = "end"
    home: Annotated[
        str, Meta(description="`user`, `isolated`, or a folder that stands for the user's home.")
    ] = "user"
    gemini: Annotated[
        str | None,
        Meta(description="A managed release (`0.61.0`) or the path of a CLI; else the first found."),
    ] = None
    env: Annotated[
        dict[str, str], Meta(description="Variables for the CLI, over those of this process.")
    ] = {}
    env_file: Annotated[str | None, Meta(description="A file of NAME=value lines, under `env`.")] = None
    env_only: Annotated[
        tuple[str, ...] | None,
        Meta(description="Pass on no variable of this process but these and what a program needs to start."),
    ] = None
    telemetry: Annotated[
        str | None, Meta(description="Let the CLI write its own telemetry log to this file.")
    ] = None
    offline: Annotated[bool, Meta(description="Talk to the built-in scripted model: no key, no network.")] = (
        False
    )
    gateway: Annotated[
        GatewayMode,
        Meta(
            description="`on`: requests go through our gateway, which counts and limits them and keeps the key from "
            "the agent's tools. `off`: the CLI talks to the API itself; limits, record and replay are refused."
        ),
    ] = "on"
    key_from: Annotated[
        str | None,
        Meta(
            description="Where the API key is: `file:PATH` or `keyring:SERVICE/USER`; only the gateway reads it."
        ),
    ] = None
    record: Annotated[
        str | None, Meta(description="Write the requests and answers of the run to this cassette file.")
    ] = None
    replay: Annotated[
        str | None,
        Meta(description="Answer the requests of the run from this cassette file: no key, no network."),
    ] = None
    literal: Annotated[bool, Meta(description="Take the prompt as text alone: no /command, no @path.")] = (
        False
    )
    line_limit: Annotated[
        int,
        Meta(description="The longest line of the CLI's output, in bytes, that is read.", ge=1024, le=2**40),
    ] = 256 * MEGABYTE
