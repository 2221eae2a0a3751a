"""The words of a run in their order: instructions, the template with the prompt in it, the attached files."""

from __future__ import annotations

from collections.abc import Sequence

from geminids.launch.given import given_problem, read_given
from geminids.launch.prompt import MAX_PROMPT_BYTES, PromptProblem, check_prompt, check_words, literal_prompt
from geminids.launch.refused import Refused
from geminids.launch.scratch import Scratch
from geminids.options import Options

__all__ = ["compose", "instructions_text", "read_instructions", "with_media", "words_of"]


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
        from geminids.launch.template import fill_template  # imported late: few runs have one

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
