"""`geminids skills`: which agent skills a run has, what is wrong with them, and adding them to a folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from geminids.cli.shared.folders import check_cwd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from geminids.cli.shared.skill_table import Listing
    from geminids.gemini import Gemini
    from geminids.gemini.skills.lint import Finding

__all__ = ["skills"]


_cwd = click.option(
    "--cwd",
    default=".",
    metavar="DIR",
    callback=check_cwd,
    help="The folder that the agent works in.  [default: .]",
)
_home = click.option(
    "--home", default="user", metavar="HOME", help="user, isolated, or a folder.  [default: user]"
)
_gemini = click.option("--gemini", metavar="RELEASE", help="A managed release (0.61.0) or the path of a CLI.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def skills() -> None:
    """Agent skills: what a run has, what is wrong, add and remove.

    A skill is a folder with a SKILL.md. Those of the folder that the agent works in have no power by default: only
    what you have put there with `geminids skills add`, and as long as it does not change.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        click.get_current_context().color = False


@skills.command("list", short_help="Show what the CLI looks at, and what a run sees.")
@_cwd
@_home
@_gemini
@_json
def list_skills(cwd: str, home: str, gemini: str | None, as_json: bool) -> None:
    """Show every skill that the CLI looks at: which one its name stands for, and whether a run by default sees it."""
    from geminids.cli.shared.skill_table import as_rows, print_table

    listing = _listing(cwd, home, gemini)
    if as_json:
        _print_json({"release": listing.release.version, "cwd": listing.cwd, "skills": as_rows(listing)})
    else:
        print_table(listing)


@skills.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@_cwd
@_home
@_json
def lint(paths: tuple[str, ...], cwd: str, home: str, as_json: bool) -> int:
    """Tell what is wrong with skills. PATH is a SKILL.md, a skill's folder or a folder of skills.

    Without PATH: all that the CLI looks at, yours and the folder's. Exit codes: 0 no errors, 1 errors, 2 bad usage.
    """
    from geminids.errors import GeminidsError

    try:
        found = _lint_paths(paths) if paths else _lint_tiers(cwd, home)
    except GeminidsError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        _print_json({"ok": not _errors(found), "findings": found})
    else:
        _print_findings(found)
    return 1 if _errors(found) else 0


@skills.command(short_help="Copy a skill into a folder, and vouch for it.")
@click.argument("source")
@_cwd
@click.option("--force", is_flag=True, help="Replace a skill of that name.")
def add(source: str, cwd: str, force: bool) -> None:
    """Copy a skill's folder to DIR/.agents/skills, and vouch for it: runs there will have it.

    A skill with errors (see lint) is refused. Where a file of the copy changes later, the skill has no power any more:
    look at the change, and say `geminids skills add DIR/.agents/skills/NAME --force`.
    """
    from geminids.config.paths import Places
    from geminids.gemini.skills.add import add_skill

    added = add_skill(source, cwd, Places.of(), force=force)
    _print_findings(added.warnings, err=True)
    click.echo(f"added {added.name}: {added.folder}")


@skills.command()
@click.argument("name")
@_cwd
@click.option(
    "--force", is_flag=True, help="Also one that was not added by `geminids skills add`, or has changed."
)
def remove(name: str, cwd: str, force: bool) -> None:
    """Take a skill out of DIR/.agents/skills again."""
    from geminids.config.paths import Places
    from geminids.gemini.skills.add import remove_skill

    folder = remove_skill(name, cwd, Places.of(), force=force)
    click.echo(f"removed {name}: {folder}")


def _listing(cwd: str, home: str, gemini: str | None) -> Listing:
    from geminids.cli.shared.skill_table import Listing
    from geminids.config.paths import Places
    from geminids.errors import GeminidsError
    from geminids.gemini import release_of
    from geminids.gemini.settings_file import SettingsProblem
    from geminids.gemini.skills.find import built_in_folder, find_skills
    from geminids.gemini.skills.record import record_of, trusted_skills, untrusted_skills
    from geminids.launch.home import source_home

    places = Places.of()
    cli = _cli(gemini)
    try:
        source = source_home(home, os.environ, places)
    except SettingsProblem as problem:
        raise GeminidsError(
            str(problem), hint="Mend that file, or look at another home with --home."
        ) from None
    built_in = built_in_folder(cli) if cli else None
    found = find_skills(cwd, source.path, settings=source.settings, built_in=built_in)
    return Listing(
        release=cli.release if cli else release_of(None),
        cwd=os.path.realpath(cwd),
        home=str(source.path),
        skills=found,
        recorded=frozenset(skill.folder for skill in found if record_of(skill.folder, places)),
        vouched=trusted_skills(cwd, places),
        untrusted=untrusted_skills(cwd, places, home=source.path),
    )


def _cli(gemini: str | None) -> Gemini | None:
    """The CLI that a run would use; without one, the newest is assumed, so that the files can be looked at."""
    from geminids.errors import CliMissing
    from geminids.gemini import find

    try:
        return find(gemini)
    except CliMissing:
        if gemini is not None:
            raise
        click.echo("geminids: no Gemini CLI was found; this is what the newest would see", err=True)
        return None


def _lint_paths(paths: Sequence[str]) -> list[Finding]:
    from geminids.gemini.skills.places import lint_path

    return [finding for path in paths for finding in lint_path(path)]


def _lint_tiers(cwd: str, home: str) -> list[Finding]:
    from geminids.gemini.skills.places import lint_path, shadowed_findings

    listing = _listing(cwd, home, None)
    folders = [
        os.path.join(top, name, "skills")
        for top in (listing.home, listing.cwd)
        for name in (".gemini", ".agents")
    ]
    found = [one for folder in dict.fromkeys(folders) if os.path.isdir(folder) for one in lint_path(folder)]
    told = {one.file for one in found if one.code == "shadowed"}
    mine = tuple(skill for skill in listing.skills if skill.tier not in ("built-in", "extension"))
    return found + [one for one in shadowed_findings(mine) if one.file not in told]


def _errors(found: Sequence[Finding]) -> int:
    return sum(one.level == "error" for one in found)


def _print_findings(found: Sequence[Finding], *, err: bool = False) -> None:
    from geminids.views.sanitize import one_line

    for one in found:
        level = click.style(one.level, fg="red" if one.level == "error" else "yellow")
        place = f"{one_line(os.path.relpath(one.file))}:{one.line}"
        click.echo(f"{place}: {level} {click.style(one.code, bold=True)}: {one_line(one.message)}", err=err)
    if not err:
        errors = _errors(found)
        counts = [(errors, "error"), (len(found) - errors, "warning")]
        said = ", ".join(f"{count} {what}{'s' if count > 1 else ''}" for count, what in counts if count)
        click.echo(click.style(said, fg="red" if errors else "yellow") if said else "nothing is wrong")


def _print_json(value: Any) -> None:
    import msgspec

    click.echo(msgspec.json.encode(value))
