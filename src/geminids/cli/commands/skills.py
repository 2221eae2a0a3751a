"""`geminids skills`: list, lint, add and remove agent skills."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from geminids.cli.shared.folders import check_cwd
from geminids.cli.shared.skill_table import SkillList, as_rows, print_table
from geminids.config.paths import Places
from geminids.errors import CliMissing, GeminidsError
from geminids.gemini import Gemini, find, release_of
from geminids.gemini.settings_file import SettingsProblem
from geminids.gemini.skills.add import add_skill, remove_skill
from geminids.gemini.skills.find import built_in_folder, find_skills
from geminids.gemini.skills.lint import LintFinding
from geminids.gemini.skills.lint_path import lint_path, shadowed_findings
from geminids.gemini.skills.record import record_of, trusted_skills, untrusted_skills
from geminids.launch.home import source_home
from geminids.views.sanitize import one_line

__all__ = ["skills"]

_cwd = click.option(
    "--cwd",
    default=".",
    metavar="DIR",
    callback=check_cwd,
    help="The working folder of the run.  [default: .]",
)
_home = click.option(
    "--home",
    default="user",
    metavar="HOME",
    help="The home of the CLI: user, isolated, or a folder.  [default: user]",
)
_gemini = click.option(
    "--gemini", metavar="RELEASE", help="A version that geminids installed (0.61.0), or the path of a CLI."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def skills() -> None:
    """List, lint, add or remove agent skills.

    A skill is a folder with a SKILL.md. Skills in the working folder are ignored by default, except
    those that you added with `geminids skills add` and that have not changed since.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        click.get_current_context().color = False


@skills.command("list", short_help="List all skills and whether a run uses them.")
@_cwd
@_home
@_gemini
@_json
def list_skills(cwd: str, home: str, gemini: str | None, as_json: bool) -> None:
    """List every skill that the CLI can find, and whether a run with default options uses the
    skill."""
    skill_list = _find_skills(cwd, home, gemini)
    if as_json:
        release, rows = skill_list.release.version, as_rows(skill_list)
        _print_json({"release": release, "cwd": skill_list.cwd, "skills": rows})
    else:
        print_table(skill_list)


@skills.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@_cwd
@_home
@_json
def lint(paths: tuple[str, ...], cwd: str, home: str, as_json: bool) -> int:
    """Check skills for errors. PATH is a SKILL.md, a skill's folder or a folder of skills.

    Without PATH, checks your own skills and those of the working folder.
    Exit codes: 0 no errors, 1 errors, 2 bad usage.
    """
    try:
        findings = _lint_paths(paths) if paths else _lint_tiers(cwd, home)
    except GeminidsError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        _print_json({"ok": not _errors(findings), "findings": findings})
    else:
        _print_findings(findings)
    return 1 if _errors(findings) else 0


@skills.command(short_help="Copy a skill into a folder and trust it.")
@click.argument("source")
@_cwd
@click.option("--force", is_flag=True, help="Replace a skill with the same name.")
def add(source: str, cwd: str, force: bool) -> None:
    """Copy the folder of a skill to DIR/.agents/skills and trust it: runs in DIR then use it.

    A skill with errors (see lint) is not added. If a file of the copy changes later, runs ignore the
    skill. Review the change, then run `geminids skills add DIR/.agents/skills/NAME --force`.
    """
    added = add_skill(source, cwd, Places.of(), force=force)
    _print_findings(added.warnings, err=True)
    click.echo(f"added {added.name}: {added.folder}")


@skills.command()
@click.argument("name")
@_cwd
@click.option(
    "--force", is_flag=True, help="Also remove a skill that `skills add` did not add, or that has changed."
)
def remove(name: str, cwd: str, force: bool) -> None:
    """Remove a skill from DIR/.agents/skills."""
    folder = remove_skill(name, cwd, Places.of(), force=force)
    click.echo(f"removed {name}: {folder}")


def _find_skills(cwd: str, home: str, gemini: str | None) -> SkillList:
    places = Places.of()
    cli = _cli(gemini)
    try:
        source = source_home(home, os.environ, places)
    except SettingsProblem as problem:
        raise GeminidsError(
            str(problem), hint="Fix the settings file, or use another home with --home."
        ) from None
    built_in = built_in_folder(cli) if cli else None
    all_skills = find_skills(cwd, source.path, settings=source.settings, built_in=built_in)
    return SkillList(
        release=cli.release if cli else release_of(None),
        cwd=os.path.realpath(cwd),
        home=str(source.path),
        skills=all_skills,
        recorded=frozenset(skill.folder for skill in all_skills if record_of(skill.folder, places)),
        unchanged=trusted_skills(cwd, places),
        untrusted=untrusted_skills(cwd, places, home=source.path),
    )


def _cli(gemini: str | None) -> Gemini | None:
    """Return the Gemini CLI that a run would use. `gemini` is the value of `--gemini`.

    If no CLI is found and `gemini` is set, raise `CliMissing`. If no CLI is found and `gemini` is
    None, print a message to stderr and return None.
    """
    try:
        return find(gemini)
    except CliMissing:
        if gemini is not None:
            raise
        click.echo(
            "geminids: no Gemini CLI was found: this list shows the skills that the newest release would use",
            err=True,
        )
        return None


def _lint_paths(paths: Sequence[str]) -> list[LintFinding]:
    return [finding for path in paths for finding in lint_path(path)]


def _lint_tiers(cwd: str, home: str) -> list[LintFinding]:
    skill_list = _find_skills(cwd, home, None)
    folders = [
        os.path.join(top, name, "skills")
        for top in (skill_list.home, skill_list.cwd)
        for name in (".gemini", ".agents")
    ]
    existing = [folder for folder in dict.fromkeys(folders) if os.path.isdir(folder)]
    findings = [finding for folder in existing for finding in lint_path(folder)]
    reported = {finding.file for finding in findings if finding.code == "shadowed"}
    own_skills = tuple(skill for skill in skill_list.skills if skill.tier not in ("built-in", "extension"))
    return findings + [finding for finding in shadowed_findings(own_skills) if finding.file not in reported]


def _errors(findings: Sequence[LintFinding]) -> int:
    return sum(finding.level == "error" for finding in findings)


def _print_findings(findings: Sequence[LintFinding], *, err: bool = False) -> None:
    for finding in findings:
        level = click.style(finding.level, fg="red" if finding.level == "error" else "yellow")
        place = f"{one_line(os.path.relpath(finding.file))}:{finding.line}"
        code = click.style(finding.code, bold=True)
        click.echo(f"{place}: {level} {code}: {one_line(finding.message)}", err=err)
    if not err:
        errors = _errors(findings)
        counts = [(errors, "error"), (len(findings) - errors, "warning")]
        summary = ", ".join(f"{count} {noun}{'s' if count > 1 else ''}" for count, noun in counts if count)
        click.echo(click.style(summary, fg="red" if errors else "yellow") if summary else "no problems found")


def _print_json(value: Any) -> None:
    click.echo(msgspec.json.encode(value))
