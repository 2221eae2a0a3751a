"""Build the prompt: instructions, then the template with the prompt in it; and check that the CLI can read it."""

from __future__ import annotations

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
    "read_instructions",
    "without_at",
]

# The CLI cuts stdin at 8 MB, with a warning on stderr alone (cli/src/utils/readStdin.ts).
MAX_PROMPT_BYTES = 8 * 1024 * 1024

# What the CLI takes for more than 1,048,576 tokens, at four UTF-16 units each and with its own context added, it
# does not send: it says success, with no answer (core/client.ts, ContextWindowWillOverflow).
MAX_PROMPT_UNITS = 4_000_000

# What follows a lone @ is no path (atCommandProcessor.ts).
_AT = re.compile(r"(?<!\\)@(?=\S)")
_ANY_AT = re.compile(r"(?<!\\)@")
_LONG = "Put long material into a file of the folder and name the file in the prompt."


def check_words(prompt: str, *, may_be_empty: bool = False) -> None:
    """Raise a `PromptProblem` for what is no prompt at all."""
    if not isinstance(prompt, str):
        raise PromptProblem(f"the prompt is a {type(prompt).__name__}, not text", "Give the prompt as a str.")
    if not prompt.strip() and not may_be_empty:
        raise PromptProblem("the prompt is empty", "Say what the agent shall do.")
    if "\0" in prompt:
        raise PromptProblem("the prompt holds a NUL character", "Take NUL characters out of the prompt.")


def check_prompt(prompt: str, *, literal: bool = False, attached: int = 0) -> bytes:
    """The bytes to write, or a `PromptProblem`. `attached` are the characters that files add to it.

    >>> check_prompt("hello")
    b'hello'
    """
    check_words(prompt)
    text = literal_prompt(prompt) if literal else prompt
    # A lone surrogate (a file name that is no UTF-8) must not fail the run.
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_PROMPT_BYTES:
        raise PromptProblem(
            f"the prompt has {len(data):,} bytes; the CLI reads no more than {MAX_PROMPT_BYTES:,}",
            _LONG,
        )
    if (
        len(data) + attached > MAX_PROMPT_UNITS
        and (units := len(text.encode("utf-16-le", "replace")) // 2 + attached) > MAX_PROMPT_UNITS
    ):
        what = "the prompt with its files" if attached else "the prompt"
        raise PromptProblem(
            f"{what} has {units:,} characters, and no more than {MAX_PROMPT_UNITS:,} fit into a model",
            _LONG,
        )
    return data


def literal_prompt(prompt: str) -> str:
    """Escape what the CLI would act on: a leading `/` (a command) and `@path` (a file put in).

    >>> literal_prompt("/help me with a@b.example")
    ' /help me with a\\\\@b.example'
    """
    text = _AT.sub(r"\\@", prompt)
    return " " + text if text.lstrip().startswith("/") else text


def without_at(text: str) -> str:
    """Escape every `@`, a last one too: what comes after `text` must not become a path.

    >>> without_at("@/etc/passwd")
    '\\\\@/etc/passwd'
    """
    return _ANY_AT.sub(r"\\@", text)


def read_instructions(path: str) -> str:
    """What a prompt begins with that has these instructions; a `PromptProblem` where they cannot be read."""
    return instructions_text(read_input_file("instructions", path, MAX_PROMPT_BYTES), path)


def instructions_text(data: bytes, where: str) -> str:
    """The text in a file of instructions. Its `@path` and a leading `/` are words, and nothing else.

    >>> instructions_text(b"Ask @ops first.\\n", "AGENT.md")
    'Ask \\\\@ops first.'
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"is not UTF-8: line {line}, byte {error.start + 1} of the file"
        raise input_file_problem("instructions", where, what) from None
    if "\0" in text:
        raise input_file_problem("instructions", where, "holds a NUL character")
    if not text.strip():
        raise input_file_problem("instructions", where, "is empty")
    return literal_prompt(text.rstrip())


def compose(prompt: str, options: Options, run_id: str) -> str:
    """What the agent is told, before anything is attached; a `PromptProblem` where that cannot be.

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


# What every orchestrator has; whoever names one of them must have given it.
KNOWN_NAMES = ("agentId", "agent.name", "tenantId", "tenant.name", "runId")
PROMPT = "prompt"

_NAME = r"[A-Za-z_][\w-]*+(?:\.[\w-]++)*+"
# {{{x}}} is another's syntax. Possessive throughout: what is no name is left at once, however long it is.
_PLACE = re.compile(rf"(?:(\\)|(?<!\{{))\{{\{{[ \t]*+({_NAME})[ \t]*+\}}\}}(?!\}})")
_WHOLE_NAME = re.compile(_NAME)
_MOST_TOLD = 50


def fill_template(template: str, prompt: str, values: Mapping[str, str]) -> str:
    """The template with its values and the prompt; without `{{prompt}}` the prompt comes after a blank line.

    Values come from outside, so they are text and nothing else: no braces of theirs are looked at, their `@path`
    puts no file in, and they cannot begin a `/command`. The template's own words and the prompt keep their meaning.

    >>> fill_template("You are {{agent.name}}. {{prompt}}", "Say hello.", {"agent.name": "Ada"})
    'You are Ada. Say hello.'
    """
    _check(template, values)
    pieces = list(_pieces(template, prompt, values))
    if prompt.strip() and not any(kind == PROMPT for kind, _ in pieces):
        pieces += [("own", "\n\n"), (PROMPT, prompt)]
    first = next(((kind, text) for kind, text in pieces if text.strip()), None)
    text = "".join(text for _, text in pieces)
    acts = first is not None and first[0] == "value" and first[1].lstrip().startswith("/")
    return " " + text if acts else text


def _pieces(template: str, prompt: str, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    at = 0
    for place in _PLACE.finditer(template):
        escaped, name = place.groups()
        yield "own", template[at : place.start()]
        if escaped:
            yield "own", place[0][1:]
        elif name == PROMPT:
            yield PROMPT, prompt
        else:
            yield "value", without_at(values[name])
        at = place.end()
    yield "own", template[at:]


def _check(template: str, values: Mapping[str, str]) -> None:
    for name in values:
        if not _WHOLE_NAME.fullmatch(name):
            hint = "A name has letters, digits, _ and -, and dots between its parts."
            raise PromptProblem(f"variables: {name!r} cannot be a name", hint, "bad_option")
        if name == PROMPT:
            hint = "Give that variable another name."
            raise PromptProblem("variables: {{prompt}} stands for the run's own prompt", hint, "bad_option")
    asked = dict.fromkeys(place[2] for place in _PLACE.finditer(template) if not place[1])
    missing = [name for name in asked if name not in values and name != PROMPT]
    unknown = [name for name in missing if name not in KNOWN_NAMES]
    if unknown:
        there = _nearest(unknown, {*KNOWN_NAMES, *values, PROMPT})
        hint = rf"Known are {_listed(there)}. Give others as variables; \{{{{name}}}} stays as it is."
        raise PromptProblem(f"template: unknown: {_listed(unknown)}", hint, "bad_option")
    if missing:
        hint = f"Give it as a variable: variables={{{missing[0]!r}: …}}, or --var {missing[0]}=…"
        raise PromptProblem(f"template: no value was given for {_listed(missing)}", hint, "bad_option")
    for name in asked:
        if "\0" in values.get(name, ""):
            hint = "Take NUL characters out of it."
            raise PromptProblem(f"variables: {name} holds a NUL character", hint, "bad_option")


def _nearest(unknown: Iterable[str], known: set[str]) -> list[str]:
    """The known names, those first that look most like one of the unknown."""
    import difflib  # imported late: only for a mistake

    wrong = list(unknown)[:_MOST_TOLD]

    def likeness(name: str) -> float:
        return max(difflib.SequenceMatcher(None, name.lower(), one.lower()).ratio() for one in wrong)

    return sorted(sorted(known), key=likeness, reverse=True)


def _listed(names: list[str]) -> str:
    told = ", ".join(f"{{{{{name}}}}}" for name in names[:_MOST_TOLD])
    return f"{told} and {len(names) - _MOST_TOLD} more" if len(names) > _MOST_TOLD else told
