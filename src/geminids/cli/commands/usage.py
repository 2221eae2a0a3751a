"""`geminids usage`: show the tokens and the cost of all stored sessions."""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from io import StringIO
from typing import Any

import click
from msgspec.structs import replace

from geminids.cli.shared.folders import check_home
from geminids.cli.shared.output_file import check_output_path, write_output
from geminids.config.files import find_project_file, user_file
from geminids.config.loader import load_options
from geminids.config.paths import Places
from geminids.errors import GeminidsError
from geminids.sessions.usage import stored_usage, with_request_log
from geminids.spending import read_prices
from geminids.views.usage.html import html as html_page
from geminids.views.usage.usage import FOOTNOTE, Key, Report, UsageRow, build_report

__all__ = ["usage"]

_KEYS = ("day", "model", "project", "session")
_AGO = re.compile(r"(\d{1,5})([dw])")
_NUMBERS = ("requests", "input", "cached", "output", "thinking", "tool", "total")
# The parts of these numbers that come from the request log of geminids, not from session files.
_PARTS = (
    *("other_requests", "other_tokens", "discarded_requests", "discarded_tokens"),
    *("scripted_requests", "scripted_tokens", "unknown_requests"),
)


def _parse_keys(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    keys = tuple(dict.fromkeys(key.strip() for key in value.split(",") if key.strip()))
    unknown = [key for key in keys if key not in _KEYS]
    if unknown or not keys:
        name = unknown[0] if unknown else repr(value)
        raise click.UsageError(f"--by: {name} is not one of {', '.join(_KEYS)}")
    return keys


def _parse_day(ctx: click.Context, param: click.Parameter, value: str | None) -> date | None:
    """Convert the value of a flag to a date; None if the flag is not set.

    The value is a date, or the length of a period that ends today, such as `7d` or `2w`. For a
    period, the result is its first day, so `1d` is today. Raises `click.UsageError` for any other
    value.
    """
    if value is None:
        return None
    try:
        if ago := _AGO.fullmatch(value):
            days = int(ago[1]) * (7 if ago[2] == "w" else 1)
            return date.today() - timedelta(max(days - 1, 0))
        return date.fromisoformat(value)
    except (ValueError, OverflowError):
        raise click.UsageError(
            f"--{param.name}: {value!r} is not a day; use a date such as 2026-11-16, or 7d for the last seven days"
        ) from None


def _check_path(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and (not value or "\0" in value):
        raise click.UsageError(
            f"--{param.name}: the path {'contains a NUL character' if value else 'is empty'}"
        )
    return value


def _parse_project(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the value of `--project` as an absolute path; None if it is not set."""
    value = _check_path(ctx, param, value)
    try:
        return None if value is None else os.path.abspath(value)
    except OSError:
        raise click.UsageError(
            f"--project: {value} is a relative path, but the current folder no longer exists"
        ) from None


@click.command()
@click.option(
    "--by",
    default="day,model",
    metavar="KEYS",
    callback=_parse_keys,
    help=f"Group by {', '.join(_KEYS)}, in any order.  [default: day,model]",
)
@click.option(
    "--since",
    metavar="DAY",
    callback=_parse_day,
    help="First day: 2026-11-16, or 7d for the last seven days.",
)
@click.option("--until", metavar="DAY", callback=_parse_day, help="Last day.")
@click.option("--project", metavar="DIR", callback=_parse_project, help="Count only this folder.")
@click.option(
    "--home",
    metavar="HOME",
    callback=check_home,
    help="The home of the CLI: user, isolated, or a folder.  [default: all known homes]",
)
@click.option(
    "--prices", metavar="FILE", callback=_check_path, help="Your own prices; they override the list prices."
)
@click.option(
    "--scripted",
    is_flag=True,
    help="Also count requests that a script or a cassette answered. They cost nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option(
    "--html",
    metavar="FILE",
    callback=_check_path,
    help="Write a page with charts to FILE, readable only by you.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def usage(
    by: tuple[Key, ...],
    since: date | None,
    until: date | None,
    project: str | None,
    home: str | None,
    prices: str | None,
    scripted: bool,
    as_json: bool,
    as_csv: bool,
    html: str | None,
    force: bool,
) -> None:
    """Show the tokens that Gemini CLI used on this machine, and their list price.

    The numbers come from the CLI's session files and from the request log of geminids. Days are in
    local time. Each request counts once, even if its session was resumed, forked or rescued.
    Requests of subagents count for the session that started them. Requests of scripted, offline and
    replayed runs are left out, unless --scripted is set.
    """
    if since and until and until < since:
        raise click.UsageError(f"--until {until} is before --since {since}")
    if as_json + as_csv + (html is not None) > 1:
        raise click.UsageError("--json, --csv and --html cannot be used together")
    report = _report(by, since, until, project, home, prices, scripted)
    if as_json:
        _print_json(report)
    elif as_csv:
        _print_csv(report)
    elif html is not None:
        _write_html(report, html, force)
    else:
        _print_report(report, _nothing_used(since, until, project, scripted=scripted))


def _report(
    by: tuple[Key, ...],
    since: date | None,
    until: date | None,
    project: str | None,
    home: str | None,
    prices: str | None,
    scripted: bool,
) -> Report:
    prices = prices if prices is not None else _configured_prices()
    table = read_prices(prices) if prices is not None else None
    # Skip files that were last changed before `since`. Subtract one day, because the clock may have
    # been changed.
    changed = datetime.combine(since, time()).astimezone() - timedelta(days=1) if since else None
    places = Places.of()
    stored = stored_usage(project, home=home, since=changed, places=places)
    # The request log does not contain the home of a session. So with --home, use only the requests
    # of sessions that were found there.
    stored = with_request_log(
        stored, places, project=project, only_stored=home is not None, since=changed, free=scripted
    )
    report = build_report(stored, by, since=since, until=until, table=table)
    return replace(report, prices=os.path.abspath(prices)) if prices is not None else report


def _configured_prices() -> str | None:
    """Return the price file (the option `prices`) that a run in the current folder would use; None
    if the option is not set.

    If no configuration exists, `load_options` is not called, because it takes time.
    """
    environ = os.environ
    try:
        cwd = os.getcwd()
    except OSError:  # the current folder was deleted, so it has no configuration
        cwd = os.sep
    if (
        "GEMINIDS_PRICES" not in environ
        and not os.path.exists(user_file(environ))
        and find_project_file(cwd, environ) is None
    ):
        return None
    return load_options(cwd).options.prices


def _nothing_used(since: date | None, until: date | None, project: str | None, *, scripted: bool) -> str:
    place = f" in {project}" if project else " on this machine"
    when = (f" since {since}" if since else "") + (f" until {until}" if until else "")
    note = "" if scripted else "\nTo count requests that a script or a cassette answered too: --scripted."
    return f"No requests of Gemini CLI found{place}{when}.{note}"


def _print_report(report: Report, nothing_used: str) -> None:
    """Print the table, or the sentence `nothing_used` if the report is empty."""
    # Imported late: they load rich, which --json and --csv do not need.
    from rich.text import Text

    from geminids.views.terminal.screen import Screen
    from geminids.views.usage.table import print_report

    screen = Screen(sys.stdout)
    if report.used or report.troubles:
        print_report(screen, report)
    else:
        screen.paragraph(Text(nothing_used))
    screen.flush()


def _row_fields(row: UsageRow, by: tuple[Key, ...]) -> dict[str, Any]:
    known = row.requests == 0 or row.unpriced < row.requests
    return {
        **dict(zip(by, row.keys, strict=False)),
        **{name: getattr(row, name) for name in _NUMBERS},
        "usd": float(row.usd) if known else None,
        "usd_complete": row.unpriced == 0,
        **{name: getattr(row, name) for name in _PARTS},
    }


def _print_json(report: Report) -> None:
    value = {
        "by": report.by,
        "since": report.since and report.since.isoformat(),
        "until": report.until and report.until.isoformat(),
        "rows": [_row_fields(row, report.by) for row in report.rows],
        "total": _row_fields(report.total, ()),
        "sessions": report.sessions,
        "basis": "estimate" if report.total.unknown_requests else "exact",
        "prices": report.prices,
        "unpriced_models": report.unpriced,
        "not_counted": FOOTNOTE,
        "troubles": [{"file": trouble.file, "what": trouble.what} for trouble in report.troubles],
    }
    # Use `json`, which escapes a path that is not valid UTF-8. msgspec raises an error for it.
    write_output([json.dumps(value, indent=1).encode() + b"\n"], None)


def _print_csv(report: Report) -> None:
    write_output(_csv_lines(report), None)


def _csv_lines(report: Report) -> Iterator[bytes]:
    names = [*report.by, *_NUMBERS, "usd", "usd_complete", *_PARTS]
    text = StringIO()
    table = csv.DictWriter(text, names, lineterminator="\n")
    table.writeheader()
    for row in report.rows:
        fields = _row_fields(row, report.by)
        usd = "" if fields["usd"] is None else format(row.usd.normalize(), "f")
        table.writerow({**fields, "usd": usd, "usd_complete": str(fields["usd_complete"]).lower()})
    yield text.getvalue().encode("utf-8", "surrogateescape")


def _write_html(report: Report, out: str, force: bool) -> None:
    try:
        target = check_output_path(out, force=force)
        write_output((piece.encode("utf-8", "replace") for piece in html_page(report)), target, force=force)
    except GeminidsError as error:
        raise GeminidsError(error.message, hint=(error.hint or "").replace("--out", "--html")) from None
    click.echo(f"wrote {out}", err=True)
