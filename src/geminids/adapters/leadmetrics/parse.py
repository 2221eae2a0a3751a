"""Read the output of `gemini --output-format stream-json`, and calculate the price of its tokens.

`execute` does all of this itself. These functions are for output that was stored by another
program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from geminids.adapters.leadmetrics.context import AdapterExecutionContext, billing_type, variables_of
from geminids.dialects.leadmetrics.model import AdapterUsage
from geminids.dialects.leadmetrics.transcript import Entry, Transcript
from geminids.gemini.protocol.stream_json import (
    InitLine,
    MessageLine,
    ProcessStats,
    ResultLine,
    UnexpectedLine,
    WireLine,
    decode_block,
    stats_of,
)
from geminids.launch.prompt.compose import fill_template
from geminids.run.recordings.stream_json import events_of_stream
from geminids.spending import price_of
from geminids.spending.tokens import Counts

__all__ = [
    "build_transcript",
    "calculate_cost_usd",
    "extract_model_id",
    "extract_output",
    "extract_session_id",
    "extract_usage",
    "parse_ndjson_lines",
    "render_template",
]


def render_template(template: str, context: AdapterExecutionContext) -> str:
    """Fill the values of a run into a prompt template, as `execute` does.

    Raises `PromptProblem` with the name of each variable that has no value.
    """
    prompt = context.context.get("prompt")
    return fill_template(template, prompt if isinstance(prompt, str) else "", variables_of(context))


def parse_ndjson_lines(text: str | bytes) -> tuple[WireLine, ...]:
    """Decode the lines of the CLI's stdout. Lines that are not events of the CLI are left out.

    >>> parse_ndjson_lines('{"type":"init","session_id":"s1","model":"auto"}\\nnoise\\n')
    (InitLine(timestamp='', session_id='s1', model='auto'),)
    """
    block = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return tuple(line for line in decode_block(block) if not isinstance(line, UnexpectedLine))


def extract_session_id(lines: Sequence[WireLine]) -> str | None:
    """Return the id of the session from the line `init`; None if there is no such line."""
    return next((line.session_id for line in lines if isinstance(line, InitLine)), None)


def extract_output(lines: Sequence[WireLine]) -> str:
    """Return the text that the model wrote. Pieces of text are joined without a separator."""
    return "".join(
        line.content for line in lines if isinstance(line, MessageLine) and line.role == "assistant"
    )


def extract_usage(lines: Sequence[WireLine]) -> AdapterUsage | None:
    """Return the token counts of the line `result`; None if the line or its counts are missing.

    Thinking tokens are billed, but the line `result` does not contain them, so the output tokens
    here do not include them. The usage in a result of `execute` includes them.
    """
    stats = _stats(lines)
    if stats is None or stats.input_tokens is None or stats.output_tokens is None:
        return None
    return AdapterUsage(
        input_tokens=stats.input_tokens,
        output_tokens=stats.output_tokens,
        cached_input_tokens=stats.cached,
    )


def extract_model_id(lines: Sequence[WireLine]) -> str | None:
    """Return the model that answered. If the line `result` names no model or several models, return
    the requested model, which is in the line `init`. Return None if there is no line `init`."""
    stats = _stats(lines)
    if stats is not None and len(stats.models) == 1:
        return next(iter(stats.models))
    return next((line.model for line in lines if isinstance(line, InitLine)), None)


def calculate_cost_usd(
    model: str | None, usage: AdapterUsage | Mapping[str, object] | None, env: Mapping[str, str]
) -> float | None:
    """Return today's list price of these tokens in dollars, if they are billed to an API key in
    `env`.

    `usage` can also be a stored JSON object, such as `{"inputTokens": 1000, "outputTokens": 100}`.

    Return None if the usage or the price of the model is not known. Also return None for Google
    accounts and Vertex AI, because their tokens are billed in other ways. The tokens are priced
    like those of a single request. This price can be too high, because some models cost more if a
    request has more than 200,000 input tokens.

    >>> usage = AdapterUsage(input_tokens=1000, output_tokens=100)
    >>> calculate_cost_usd("gemini-2.5-pro", usage, {"GEMINI_API_KEY": "k"})
    0.00225
    >>> calculate_cost_usd("gemini-2.5-pro", usage, {}) is None
    True
    """
    if usage is None or billing_type(env) != "api":
        return None
    if not isinstance(usage, AdapterUsage):
        usage = msgspec.convert(usage, AdapterUsage)
    counts = Counts(
        input=usage.input_tokens, output=usage.output_tokens, cached=usage.cached_input_tokens or 0
    )
    price = price_of(model, counts)
    return float(price.usd) if price is not None else None


def build_transcript(lines: Sequence[WireLine]) -> tuple[Entry, ...]:
    """Return the transcript of a run. The transcript contains no thoughts, because the CLI does not
    print thoughts to stdout. The transcript in the result of `execute` contains them."""
    block = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    transcript = Transcript()
    for batch in events_of_stream([block]):
        transcript.feed(batch)
    return transcript.entries()


def _stats(lines: Sequence[WireLine]) -> ProcessStats | None:
    result = next((line for line in reversed(lines) if isinstance(line, ResultLine)), None)
    return stats_of(result.stats) if result is not None else None
