"""Build the prompt from instructions, template and prompt, and check that the CLI can read it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping

from geminids.launch.errors import PromptProblem
from geminids.launch.prompt.input_file import input_file_problem, read_input_file
from geminids.options import Options

__all__ = [
    "KNOWN_NAMES",
    "MAX_PROMPT_BYTES",
    "MAX_PROMPT_UNITS",
    "PROMPT",
    "check_prompt",
    "check_words",
    "compose",
    "fill_template",
    "instructions_text",
    "literal_prompt",
    "names_in",
    "read_instructions",
    "without_at",
]

# The CLI reads only the first 8 MB of stdin, and reports that only on stderr
# (cli/src/utils/readStdin.ts).
MAX_PROMPT_BYTES = 8 * 1024 * 1024

# The CLI sends at most 1,048,576 tokens, including its own context. It estimates a token as four
# UTF-16 units. If the prompt is longer, it reports success without an answer (core/client.ts,
# ContextWindowWillOverflow).
MAX_PROMPT_UNITS = 4_000_000

# In Gemini CLI, an @ before whitespace does not start a path (atCommandProcessor.ts).
_AT = re.compile(r"(?<!\\)@(?=\S)")
_ANY_AT = re.compile(r"(?<!\\)@")
_LONG = "Put long text into a file in the folder, and name the file in the prompt."


def check_words(prompt: str, *, may_be_empty: bool = False) -> None:
    """Raise `PromptProblem` if the prompt is not a string, is empty or contains a NUL character."""
    if not isinstance(prompt, str):
        raise PromptProblem(
            f"the prompt must be text, but its type is {type(prompt).__name__}", "Pass the prompt as a str."
        )
    if not prompt.strip() and not may_be_empty:
        raise PromptProblem("the prompt is empty", "Write what the agent should do.")
    if "\0" in prompt:
        raise PromptProblem(
            "the prompt contains a NUL character", "Remove the NUL characters from the prompt."
        )


def check_prompt(prompt: str, *, literal: bool = False, attached: int = 0) -> bytes:
    """Return the prompt as UTF-8. Raises `PromptProblem` if the CLI cannot read or send it.

    If `literal`, slash commands and `@path` are escaped. `attached` is the number of characters
    that attached files add.

    >>> check_prompt("hello")
    b'hello'
    """
    check_words(prompt)
    text = literal_prompt(prompt) if literal else prompt
    # A lone surrogate (from a file name that is not UTF-8) must not fail the run.
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_PROMPT_BYTES:
        raise PromptProblem(
            f"the prompt has {len(data):,} bytes; the CLI reads at most {MAX_PROMPT_BYTES:,}",
            _LONG,
        )
    if (
        len(data) + attached > MAX_PROMPT_UNITS
        and (units := len(text.encode("utf-16-le", "replace")) // 2 + attached) > MAX_PROMPT_UNITS
    ):
        subject = "the prompt with its files" if attached else "the prompt"
        raise PromptProblem(
            f"{subject} has {units:,} characters; the CLI sends at most {MAX_PROMPT_UNITS:,}",
            _LONG,
        )
    return data


def literal_prompt(prompt: str) -> str:
    """Escape a leading `/` and every `@path`, so that the CLI treats the prompt as plain text.

    Otherwise the CLI runs a command for a leading `/`, and includes the file for `@path`.

    >>> literal_prompt("/help me with a@b.example")
    ' /help me with a\\\\@b.example'
    """
    text = _AT.sub(r"\\@", prompt)
    return " " + text if text.lstrip().startswith("/") else text


def without_at(text: str) -> str:
    """Escape every `@`, so that the CLI includes no file.

    An `@` at the end of `text` is escaped too, because a caller may add more text after it. The CLI
    would read that text as a path.

    >>> without_at("@/etc/passwd")
    '\\\\@/etc/passwd'
    """
    return _ANY_AT.sub(r"\\@", text)


def read_instructions(path: str) -> str:
    """Read the file of the option `instructions`, and return its text for use before the prompt.

    Raises `PromptProblem` if the file cannot be read or sent.
    """
    return instructions_text(read_input_file("instructions", path, MAX_PROMPT_BYTES), path)


def instructions_text(data: bytes, where: str) -> str:
    """Decode the contents of an instructions file, and return the text.

    `@path` and a leading `/` are escaped, so that the CLI treats them as plain text. `where` is the
    file's name for messages. Raises `PromptProblem` if the file is empty, is not UTF-8 or contains
    a NUL character.

    >>> instructions_text(b"Ask @ops first.\\n", "AGENT.md")
    'Ask \\\\@ops first.'
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"is not UTF-8: line {line}, byte {error.start + 1} of the file"
        raise input_file_problem("instructions", where, problem) from None
    if "\0" in text:
        raise input_file_problem("instructions", where, "contains a NUL character")
    if not text.strip():
        raise input_file_problem("instructions", where, "is empty")
    return literal_prompt(text.rstrip())


def compose(prompt: str, options: Options, run_id: str) -> str:
    """Build the text of the prompt from instructions, template and prompt.

    Attached files are not included. `run_id` is the value of `{{runId}}`. Raises `PromptProblem` if
    the prompt, the template or the instructions file is not valid.

    >>> compose("Say hello.", Options(template="{{agentId}}: {{prompt}}", variables={"agentId": "a1"}), "run-1")
    'a1: Say hello.'
    """
    check_words(prompt, may_be_empty=options.template is not None)
    text = prompt
    if options.template is not None:
        text = fill_template(options.template, prompt, {"runId": run_id, **options.variables})
    if options.literal:
        text = literal_prompt(text)
    if options.instructions is not None:
        text = f"{read_instructions(options.instructions)}\n\n{text}"
    return text


# Names that orchestrators usually define. A template can use such a name only if `variables` has a
# value for it.
KNOWN_NAMES = ("agentId", "agent.name", "tenantId", "tenant.name", "runId")
PROMPT = "prompt"

_NAME = r"[A-Za-z_][\w-]*+(?:\.[\w-]++)*+"
# Do not match {{{x}}}: it belongs to another template language. The quantifiers are possessive, so
# that the search is fast for a long text that is not a name.
_PLACEHOLDER = re.compile(rf"(?:(\\)|(?<!\{{))\{{\{{[ \t]*+({_NAME})[ \t]*+\}}\}}(?!\}})")
_WHOLE_NAME = re.compile(_NAME)
_MOST_LISTED = 50


def fill_template(template: str, prompt: str, values: Mapping[str, str]) -> str:
    """Insert the values and the prompt into the template, and return the text.

    If the template does not contain `{{prompt}}`, the prompt is added at the end, after a blank
    line. Raises `PromptProblem` if a name is not valid, is unknown or has no value.

    Values come from outside, so they are plain text. `{{name}}` in a value is not replaced, `@path`
    in a value includes no file, and a value cannot start a `/command`. In the template and the
    prompt, `@path` and `/command` keep their meaning.

    >>> fill_template("You are {{agent.name}}. {{prompt}}", "Say hello.", {"agent.name": "Ada"})
    'You are Ada. Say hello.'
    """
    _check(template, values)
    pieces = list(_pieces(template, prompt, values))
    if prompt.strip() and not any(kind == PROMPT for kind, _ in pieces):
        pieces += [("own", "\n\n"), (PROMPT, prompt)]
    first = next(((kind, text) for kind, text in pieces if text.strip()), None)
    text = "".join(text for _, text in pieces)
    is_command = first is not None and first[0] == "value" and first[1].lstrip().startswith("/")
    return " " + text if is_command else text


def names_in(template: str) -> list[str]:
    """Return the names of the placeholders in a template, each name once. `prompt` is omitted.

    In the example, `{{x:1}}` is not a placeholder, because a name cannot contain a colon.

    >>> names_in("{{agentId}}: {{prompt}} {{x:1}}")
    ['agentId']
    """
    names = dict.fromkeys(match[2] for match in _PLACEHOLDER.finditer(template) if not match[1])
    return [name for name in names if name != PROMPT]


def _pieces(template: str, prompt: str, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    at = 0
    for placeholder in _PLACEHOLDER.finditer(template):
        escaped, name = placeholder.groups()
        yield "own", template[at : placeholder.start()]
        if escaped:
            yield "own", placeholder[0][1:]
        elif name == PROMPT:
            yield PROMPT, prompt
        else:
            yield "value", without_at(values[name])
        at = placeholder.end()
    yield "own", template[at:]


def _check(template: str, values: Mapping[str, str]) -> None:
    for name in values:
        if not _WHOLE_NAME.fullmatch(name):
            hint = "Use letters, digits, `_` and `-`, with dots between the parts of the name."
            raise PromptProblem(f"`variables`: {name!r} is not a valid name", hint, "bad_option")
        if name == PROMPT:
            hint = "Use another name for that variable."
            raise PromptProblem(
                "`variables`: the name {{prompt}} is reserved for the run's own prompt", hint, "bad_option"
            )
    used = names_in(template)
    missing = [name for name in used if name not in values]
    unknown = [name for name in missing if name not in KNOWN_NAMES]
    if unknown:
        known = _nearest(unknown, {*KNOWN_NAMES, *values, PROMPT})
        hint = rf"Known names: {_listed(known)}. Define others with `variables`, or write \{{{{name}}}} for plain text."
        raise PromptProblem(f"`template`: unknown names: {_listed(unknown)}", hint, "bad_option")
    if missing:
        hint = f"Set a value for each: `variables={{{missing[0]!r}: '…'}}`"
        raise PromptProblem(f"`template`: no value for {_listed(missing)}", hint, "bad_option")
    for name in used:
        if "\0" in values.get(name, ""):
            hint = "Remove the NUL characters from the value."
            message = f"`variables`: the value of {name!r} contains a NUL character"
            raise PromptProblem(message, hint, "bad_option")


def _nearest(unknown: Iterable[str], known: set[str]) -> list[str]:
    """Sort the known names by their similarity to the unknown names, the most similar first."""
    compared = [name.lower() for name in list(unknown)[:_MOST_LISTED]]

    def similarity(name: str) -> float:
        return max(difflib.SequenceMatcher(None, name.lower(), other).ratio() for other in compared)

    return sorted(sorted(known), key=similarity, reverse=True)


def _listed(names: list[str]) -> str:
    text = ", ".join(f"{{{{{name}}}}}" for name in names[:_MOST_LISTED])
    return f"{text} and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else text
