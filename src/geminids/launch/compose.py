"""Build the prompt: instructions, then the template with the prompt in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from geminids.launch.given import given_problem, read_given
from geminids.launch.prompt import (
    MAX_PROMPT_BYTES,
    PromptProblem,
    check_prompt,
    check_words,
    literal_prompt,
    without_at,
)
from geminids.launch.refused import Refused
from geminids.launch.scratch import Scratch
from geminids.options import Options

__all__ = [
    "KNOWN_NAMES",
    "PROMPT",
    "compose",
    "fill_template",
    "instructions_text",
    "read_instructions",
    "with_media",
    "words_of",
]


def read_instructions(path: str) -> str:
    """What a prompt begins with that has these instructions; a `PromptProblem` where they cannot be read."""
    return instructions_text(read_given("instructions", path, MAX_PROMPT_BYTES), path)


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
        raise given_problem("instructions", where, what) from None
    if "\0" in text:
        raise given_problem("instructions", where, "holds a NUL character")
    if not text.strip():
        raise given_problem("instructions", where, "is empty")
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


def words_of(prompt: str, options: Options, run_id: str) -> str:
    """What the agent is told, checked before anything is looked for; raises `Refused`."""
    try:
        words = compose(prompt, options, run_id)
        check_prompt(words)
    except PromptProblem as problem:
        raise Refused(problem.kind, str(problem), problem.hint) from None
    return words


def with_media(words: str, options: Options, cwd: str, scratch: Scratch) -> tuple[bytes, Sequence[str]]:
    """The bytes for stdin, files and all, and the flags that open the files to the CLI; raises `Refused`."""
    if not (options.images or options.videos or options.files):
        return check_prompt(words), ()
    from geminids.launch.media import attach  # imported late: few runs have files

    try:
        media = attach(options, cwd, scratch)
        return check_prompt(words + media.words, attached=media.units), media.flags
    except PromptProblem as problem:
        raise Refused(problem.kind, str(problem), problem.hint) from None
    except OSError as error:
        hint = "Make room there, or name another folder with GEMINIDS_HOME."
        raise Refused("config", f"the files cannot be staged: {error}", hint) from None


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
