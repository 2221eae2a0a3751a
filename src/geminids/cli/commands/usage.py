"""`geminids usage`: show the tokens and the cost of all stored sessions."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import click

from geminids.cli.shared.folders import check_home

if TYPE_CHECKING:
    from geminids.views.usage.usage import Key, Report, Row

__all__ = ["usage"]

_KEYS = ("day", "model", "project", "session")
_AGO = re.compile(r"(\d{1,5})([dw])")
_NUMBERS = ("requests", "input", "cached", "output", "thinking", "tool", "total")
# Parts of the numbers above that are not in session files.
_PARTS = ("other_requests", "other_tokens", "discarded_requests", "discarded_tokens", "unknown_requests")


def _keys(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    keys = tuple(dict.fromkeys(key.strip() for key in value.split(",") if key.strip()))
    unknown = [key for key in keys if key not in _KEYS]
    if unknown or not keys:
        name = unknown[0] if unknown else repr(value)
        raise click.UsageError(f"--by: {name} is not one of {', '.join(_KEYS)}")
    return keys


def _day(ctx: click.Context, param: click.Parameter, value: str | None) -> date | None:
    """Parse a date, or a number of days or weeks: 1d is today only."""
    if value is None:
        return None
    try:
        if ago := _AGO.fullmatch(value):
            days = int(ago[1]) * (7 if ago[2] == "w" else 1)
            return date.today() - timedelta(max(days - 1, 0))
        return date.fromisoformat(value)
    except (ValueError, OverflowError):
        raise click.UsageError(
            f"--{param.name}: {value!r} is not a day; use 2026-11-16, or 7d for the last seven days"
        ) from None


def _path(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and (not value or "\0" in value):
        raise click.UsageError(f"--{param.name}: the path {'contains NUL' if value else 'is empty'}")
    return value


def _project(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The absolute path of the folder."""
    value = _path(ctx, param, value)
    try:
        return None if value is None else os.path.abspath(value)
    except OSError:
        raise click.UsageError(f"--project: {value}: the current folder no longer exists") from None


@click.command()
@click.option(
    "--by",
    default="day,model",
    metavar="KEYS",
    callback=_keys,
    help=f"Group by {', '.join(_KEYS)}, in any order.  [default: day,model]",
)
@click.option(
    "--since", metavar="DAY", callback=_day, help="First day: 2026-11-16, or 7d for the last seven."
)
@click.option("--until", metavar="DAY", callback=_day, help="Last day.")
@click.option("--project", metavar="DIR", callback=_project, help="Count only this folder.")
@click.option(
    "--home",
    metavar="HOME",
    callback=check_home,
    help="user, isolated, or a folder.  [default: all known homes]",
)
@click.option(
    "--prices", metavar="FILE", callback=_path, help="Your own prices; they override the list prices."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option(
    "--html", metavar="FILE", callback=_path, help="Write a page with charts to FILE, readable only by you."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def usage(
    by: tuple[Key, ...],
    since: date | None,
    until: date | None,
    project: str | None,
    home: str | None,
    prices: str | None,
    as_json: bool,
    as_csv: bool,
    html: str | None,
    force: bool,
) -> None:
    """Show the tokens that Gemini CLI used on this machine, and their list price.

    The numbers come from the CLI's session files and from the request log of geminids. Days are in
    local time. Each request counts once, even if its session was resumed, forked or rescued. Requests
    of subagents count for the session that started them.
    """
    if since and until and until < since:
        raise click.UsageError(f"--until {until} is before --since {since}")
    if as_json + as_csv + (html is not None) > 1:
        raise click.UsageError("--json, --csv and --html cannot be used together")
    report = _report(by, since, until, project, home, prices)
    if as_json:
        _print_json(report)
    elif as_csv:
        _print_csv(report)
    elif html is not None:
        _write_html(report, html, force)
    elif report.used or report.troubles:
        _print_table(report)
    else:
        _print_text(_nothing_used(since, until, project))


def _report(
    by: tuple[Key, ...],
    since: date | None,
    until: date | None,
    project: str | None,
    home: str | None,
    prices: str | None,
) -> Report:
    from msgspec.structs import replace

    from geminids.config.paths import Places
    from geminids.sessions.usage import stored_usage, with_request_log
    from geminids.spending import read_prices
    from geminids.views.usage.usage import report_of

    prices = prices if prices is not None else _configured_prices()
    table = read_prices(prices) if prices is not None else None
    # Skip files last written before that day; one day of tolerance in case the clock was changed.
    changed = datetime.combine(since, time()).astimezone() - timedelta(days=1) if since else None
    places = Places.of()
    stored = stored_usage(project, home=home, since=changed, places=places)
    # The log does not know the home of a session, only its id.
    stored = with_request_log(stored, places, project=project, only_stored=home is not None, since=changed)
    report = report_of(stored, by, since=since, until=until, table=table)
    return replace(report, prices=os.path.abspath(prices)) if prices is not None else report


def _configured_prices() -> str | None:
    """The `prices` option of a run in this folder. Loads the configuration only if there is any."""
    from geminids.config.files import find_project_file, user_file

    environ = os.environ
    try:
        here = os.getcwd()
    except OSError:  # the current folder is gone: it has no configuration
        here = os.sep
    if (
        "GEMINIDS_PRICES" not in environ
        and not os.path.exists(user_file(environ))
        and find_project_file(here, environ) is None
    ):
        return None
    from geminids.config.loader import load_options

    return load_options(here).options.prices


def _nothing_used(since: date | None, until: date | None, project: str | None) -> str:
    place = f" in {project}" if project else " on this machine"
    when = (f" since {since}" if since else "") + (f" until {until}" if until else "")
    return f"No requests of Gemini CLI found{place}{when}."


def _print_text(text: str) -> None:
    from rich.text import Text

    from geminids.views.terminal.screen import Screen

    screen = Screen(sys.stdout)
    screen.paragraph(Text(text))
    screen.flush()


def _print_table(report: Report) -> None:
    from geminids.views.terminal.screen import Screen
    from geminids.views.usage.table import print_report

    screen = Screen(sys.stdout)
    print_report(screen, report)
    screen.flush()


def _fields(row: Row, by: tuple[Key, ...]) -> dict[str, Any]:
    known = row.requests == 0 or row.unpriced < row.requests
    return {
        **dict(zip(by, row.keys, strict=False)),
        **{name: getattr(row, name) for name in _NUMBERS},
        "usd": float(row.usd) if known else None,
        "usd_complete": row.unpriced == 0,
        **{name: getattr(row, name) for name in _PARTS},
    }


def _print_json(report: Report) -> None:
    import json

    from geminids.cli.shared.output_file import write_output
    from geminids.views.usage.usage import FOOTNOTE

    value = {
        "by": report.by,
        "since": report.since and report.since.isoformat(),
        "until": report.until and report.until.isoformat(),
        "rows": [_fields(row, report.by) for row in report.rows],
        "total": _fields(report.total, ()),
        "sessions": report.sessions,
        "basis": "estimate" if report.total.unknown_requests else "exact",
        "prices": report.prices,
        "unpriced_models": report.unpriced,
        "not_counted": FOOTNOTE,
        "troubles": [{"file": trouble.file, "what": trouble.what} for trouble in report.troubles],
    }
    # Not msgspec: it rejects a path that is not valid UTF-8; `json` escapes it.
    write_output([json.dumps(value, indent=1).encode() + b"\n"], None)


def _print_csv(report: Report) -> None:
    from geminids.cli.shared.output_file import write_output

    write_output(_csv_lines(report), None)


def _csv_lines(report: Report) -> Iterator[bytes]:
    import csv
    from io import StringIO

    names = [*report.by, *_NUMBERS, "usd", "usd_complete", *_PARTS]
    text = StringIO()
    table = csv.DictWriter(text, names, lineterminator="\n")
    table.writeheader()
    for row in report.rows:
        fields = _fields(row, report.by)
        usd = "" if fields["usd"] is None else format(row.usd.normalize(), "f")
        table.writerow({**fields, "usd": usd, "usd_complete": str(fields["usd_complete"]).lower()})
    yield text.getvalue().encode("utf-8", "surrogateescape")


def _write_html(report: Report, out: str, force: bool) -> None:
    from geminids.cli.shared.output_file import check_output_path, write_output
    from geminids.errors import GeminidsError
    from geminids.views.usage.html import html

    try:
        target = check_output_path(out, force=force)
        write_output((piece.encode("utf-8", "replace") for piece in html(report)), target, force=force)
    except GeminidsError as error:
        raise GeminidsError(error.message, hint=(error.hint or "").replace("--out", "--html")) from None
    click.echo(f"wrote {out}", err=True)
