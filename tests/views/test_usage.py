"""The usage report: sums of stored requests, as a table and as an HTML page."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len

from geminids.sessions.usage import RequestTokens, StoredRequest, StoredUsage, Trouble
from geminids.spending import ModelRate, price_of
from geminids.views.terminal.screen import Screen
from geminids.views.usage.html import html
from geminids.views.usage.table import print_report
from geminids.views.usage.usage import Report, build_report, group_usage

_CODE = re.compile(r"\x1b\[[0-9;]*m")
PRO, FLASH, UNPRICED = "gemini-2.5-pro", "gemini-2.5-flash", "model-<that>-nobody-knows"


def tokens_of(prompt: int = 1000, cached: int = 400, output: int = 100, thinking: int = 50) -> RequestTokens:
    return RequestTokens(prompt, output, cached, thinking, 0, prompt + output + thinking)


def stored_usage(
    *requests: tuple[str, str | None, RequestTokens], session: str = "s1", project: str = "/repo/app"
) -> StoredUsage:
    stored_requests = tuple(StoredRequest(f"{session}-{at}", *request) for at, request in enumerate(requests))
    return StoredUsage(
        file=f"/repo/{session}.jsonl",
        session=session,
        project=project,
        subagent=False,
        started="2026-11-14T10:00:00.000Z",
        requests=stored_requests,
    )


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the time zone to UTC."""
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def report() -> Report:
    first = stored_usage(
        ("2026-11-14T10:00:00.000Z", PRO, tokens_of()),
        ("2026-11-14T11:00:00.000Z", FLASH, tokens_of()),
        ("2026-11-15T10:00:00.000Z", PRO, tokens_of(300_000, 0)),
    )
    second = stored_usage(
        ("2026-11-16T10:00:00.000Z", UNPRICED, tokens_of()), session="s2", project="/repo/<b>other</b>"
    )
    return build_report([first, second], ("day", "model"))


def shown_lines(report: Report, width: int | None, **kwargs: Any) -> list[str]:
    file = io.StringIO()
    screen = Screen(file, terminal=width is not None, width=width, **kwargs)
    print_report(screen, report)
    screen.flush()
    return file.getvalue().splitlines()


def test_each_request_has_its_tier() -> None:
    """Each request is priced by its own tier, not by the tier of their sum."""
    requests = [tokens_of(150_000, 10), tokens_of(150_000, 10), tokens_of(250_000, 0), tokens_of(10, 40)]
    at = "2026-11-14T10:00:00.000Z"
    report = build_report([stored_usage(*((at, PRO, tokens) for tokens in requests))], ("model",))
    prices = [price_of(PRO, tokens, date(2026, 11, 14)) for tokens in requests]
    assert report.total.usd == sum(price.usd for price in prices if price)
    assert report.total.requests == 4


def test_own_prices() -> None:
    """A price table of the user is used before the list prices."""
    table = [ModelRate(model="model-*", input=1, output=10)]
    usage = stored_usage(("2026-11-14T10:00:00.000Z", UNPRICED, tokens_of()))
    report = build_report([usage], ("model",), table=table)
    assert report.total.usd == Decimal("0.0025")
    assert report.unpriced == ()


def test_sums(report: Report) -> None:
    """The report has a row for each day and model.

    A model without a known price is listed as unpriced.
    """
    assert [row.keys for row in report.rows] == [
        ("2026-11-14", FLASH),
        ("2026-11-14", PRO),
        ("2026-11-15", PRO),
        ("2026-11-16", UNPRICED),
    ]
    assert (report.total.requests, report.total.unpriced, report.sessions) == (4, 1, 2)
    assert report.total.input == 303_000 and report.total.total == 303_000 + 4 * 150
    assert report.unpriced == (UNPRICED,)
    assert [row.keys for row in group_usage(report.used, ("session",))] == [("s1",), ("s2",)]


def test_days() -> None:
    """`since` and `until` are both included.

    Requests without a day are left out if a period is given.
    """
    undated = msgspec.structs.replace(
        stored_usage(("", PRO, tokens_of()), ("?", None, tokens_of())), started=""
    )
    assert [row.keys for row in build_report([undated], ("day",)).rows] == [("unknown",)]
    assert not build_report([undated], ("day",), since=date(2020, 1, 1)).rows
    five_days = stored_usage(*((f"2026-11-1{day}T23:59:59.999Z", PRO, tokens_of()) for day in range(3, 8)))
    report = build_report([five_days], ("day",), since=date(2026, 11, 14), until=date(2026, 11, 15))
    assert [row.keys for row in report.rows] == [("2026-11-14",), ("2026-11-15",)]


def test_local_days(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request counts for the local day, not for the UTC day."""
    import time

    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    usage = stored_usage(
        ("2026-11-14T18:14:59.000Z", PRO, tokens_of()), ("2026-11-14T18:15:00.000Z", PRO, tokens_of())
    )
    assert [row.keys for row in build_report([usage], ("day",)).rows] == [("2026-11-14",), ("2026-11-15",)]


def test_table(report: Report) -> None:
    """The table ends with a total.

    An incomplete cost is marked with `≥`, and an unknown cost is `-`.
    """
    lines = shown_lines(report, None)
    assert lines[0].split() == [
        "DAY",
        "MODEL",
        "REQUESTS",
        "INPUT",
        "CACHED",
        "OUTPUT",
        "THINKING",
        "TOTAL",
        "COST",
    ]
    assert lines[4].split()[-1] == "-"
    assert lines[5].split()[0] == "TOTAL" and lines[5].split()[-1].startswith("≥$0.")
    assert any(f"The price of {UNPRICED} is unknown" in line for line in lines)
    assert any("router" in line for line in lines)
    assert not any("█" in line for line in lines)


@pytest.mark.parametrize("width", [200, 100, 80, 60, 40, 25])
def test_widths(report: Report, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is wider than the terminal. From 60 columns on, the cost and the chart are shown."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    lines = shown_lines(report, width)
    assert not any(code in line for line in lines for code in ("\x1b[3", "\x1b[9"))
    lines = [_CODE.sub("", line) for line in lines]
    assert max(cell_len(line) for line in lines) <= width
    assert width < 60 or lines[0].split()[-1] == "COST"
    assert width < 60 or any("█" in line for line in lines)


def test_troubles() -> None:
    """Files that cannot be read are reported, five of them by name."""
    usage = StoredUsage(
        file="/repo/x",
        session="s",
        project=None,
        subagent=False,
        started="",
        requests=(),
        troubles=(Trouble("/repo/x\x1b[31m", "1 record that cannot be read"),) * 7,
    )
    lines = shown_lines(build_report([usage], ("day",)), 200)
    assert any("not counted: /repo/x: 1 record that cannot be read" in line for line in lines)
    assert any("and 2 files more" in line for line in lines)


def test_page(report: Report, tmp_path: Path) -> None:
    """The page has four charts within their bounds, loads nothing from elsewhere, and escapes all
    names.
    """
    page = "".join(html(report))
    assert "<b>other" not in page and "&lt;b&gt;other" in page and "<that>" not in page
    assert "http:" not in page and "https:" not in page and "<script" not in page and "url(" not in page
    assert page.count("<svg") == 4
    for part in page.split("<svg")[1:]:
        drawn = ET.fromstring("<svg" + part.split("</svg>")[0] + "</svg>")
        _, _, width, height = map(int, drawn.attrib["viewBox"].split())
        drawn_bars = drawn.findall(".//rect")
        assert drawn_bars
        for bar in drawn_bars:
            x, y, wide, tall = (float(bar.attrib[name]) for name in ("x", "y", "width", "height"))
            assert x >= 0 and y >= 0 and x + wide <= width and y + tall <= height
    assert "≥$0." in page and "router" in page


def test_page_with_many_days() -> None:
    """Many days become a chart by month. A report without requests is a page too."""
    days = [f"20{year}-{month:02}-03T10:00:00.000Z" for year in (24, 25) for month in range(1, 13)]
    page = "".join(html(build_report([stored_usage(*((day, PRO, tokens_of()) for day in days))], ("model",))))
    assert "Cost by month" in page and "2024-01" in page
    assert "nothing was used" in "".join(html(build_report([], ("day",))))


def test_requests_outside_session_files() -> None:
    """Other and discarded requests have a column and a sentence each.

    Without any, a note says what is missing.
    """
    times = ("2026-11-14T10:00:00.000Z", "2026-11-14T11:00:00.000Z")
    conversation = stored_usage((times[0], PRO, tokens_of()))
    other = msgspec.structs.replace(
        stored_usage((times[0], FLASH, tokens_of()), (times[1], UNPRICED, tokens_of())), kind="other"
    )
    discarded = msgspec.structs.replace(stored_usage((times[1], FLASH, tokens_of())), kind="discarded")
    report = build_report([conversation, other, discarded], ("model",))
    total = report.total
    assert (total.requests, total.other_requests, total.other_tokens) == (4, 2, 2 * 1150)
    assert (total.discarded_requests, total.discarded_tokens, total.unknown_requests) == (1, 1150, 0)
    flash = sum(row.usd for row in report.rows if row.keys == (FLASH,))
    assert total.other_usd == total.discarded_usd == flash / 2 > 0
    assert report.sessions == 1
    lines = shown_lines(report, None)
    assert "OTHER  DISCARDED" in lines[0]
    assert any("Other requests" in line and "2 requests, 2.30k tokens" in line for line in lines)
    assert any("Discarded requests" in line and "1 request, 1.15k tokens" in line for line in lines)
    assert any("for all other runs, they are missing" in line for line in lines)
    page = "".join(html(report))
    assert "<th>other</th><th>discarded</th>" in page
    assert "2 of them other requests, 1 of them discarded" in page
    conversation_only = build_report([conversation], ("model",))
    assert "OTHER" not in shown_lines(conversation_only, None)[0] and "<th>other</th>" not in "".join(
        html(conversation_only)
    )
    assert any(
        line.startswith("Not included: requests outside the conversation")
        for line in shown_lines(conversation_only, None)
    )


def test_unknown_tokens() -> None:
    """Requests with unknown tokens are counted as requests, and a note mentions them."""
    known = stored_usage(("2026-11-14T10:00:00.000Z", PRO, tokens_of()))
    unknown = msgspec.structs.replace(
        stored_usage(("2026-11-14T10:00:00.000Z", PRO, RequestTokens())), are_tokens_known=False
    )
    report = build_report([known, unknown], ("model",))
    assert (report.total.requests, report.total.unknown_requests, report.total.total) == (2, 1, 1150)
    note = "1 request ended before the API reported the tokens"
    assert any(note in line for line in shown_lines(report, None)) and note in "".join(html(report))


def test_a_day_is_shown_once_in_a_terminal(report: Report) -> None:
    """In a terminal the day is shown once for all its models; in a pipe it is on each line."""
    assert sum(line.startswith("2026-11-14") for line in shown_lines(report, None)) == 2
    lines = [_CODE.sub("", line) for line in shown_lines(report, 120)]
    table = lines[: next(at for at, line in enumerate(lines) if line.startswith("TOTAL"))]
    assert sum(line.startswith("2026-11-14") for line in table) == 1


def test_digits_of_the_cost() -> None:
    """All costs of a table have the same number of digits.

    A small cost is `<$0.01`, and only a free request is `$0.00`.
    """
    cheap = stored_usage(("2026-11-14T10:00:00.000Z", FLASH, tokens_of(100, 0, 1, 0)))
    expensive = stored_usage(("2026-11-15T10:00:00.000Z", PRO, tokens_of(900_000, 0)))
    costs = [line.split()[-1] for line in shown_lines(build_report([cheap, expensive], ("day",)), None)[1:4]]
    assert costs == ["<$0.01", "$2.25", "$2.25"]
    costs = [line.split()[-1] for line in shown_lines(build_report([cheap], ("day",)), None)[1:3]]
    assert costs == ["<$0.0001", "<$0.0001"]
    free = stored_usage(("2026-11-14T10:00:00.000Z", "gemma-4-31b-it", tokens_of()))
    assert shown_lines(build_report([free], ("day",)), None)[1].split()[-1] == "$0.00"
    assert "$0.0000" not in "".join(html(build_report([cheap, expensive], ("day",))))


def test_the_price_table_is_named(report: Report) -> None:
    """The report names the user's own price table."""
    own = msgspec.structs.replace(report, prices="/repo/<b>prices.toml")
    assert any("the prices in /repo/<b>prices.toml" in line for line in shown_lines(own, None))
    assert "by your prices" in "".join(html(own)) and "<b>prices" not in "".join(html(own))
    assert "list price" in "".join(html(report))


def test_long_names() -> None:
    """Of a long path only the last folders are shown; the name of a usual model is not cut."""
    usage = stored_usage(
        ("2026-11-14T10:00:00.000Z", "gemini-3.1-pro-preview", tokens_of()),
        project="/repo/ada/work/a-service-with-quite-a-long-name/backend/api",
    )
    lines = [_CODE.sub("", line) for line in shown_lines(build_report([usage], ("project", "model")), 80)]
    assert lines[1].split()[:2] == ["…/backend/api", "gemini-3.1-pro-preview"]


def test_many_days() -> None:
    """If there are more days than bars, the title of the chart says how many days it shows."""
    days = [f"2026-{month:02}-{day:02}T10:00:00.000Z" for month in (9, 10) for day in range(1, 29)]
    lines = [
        _CODE.sub("", line)
        for line in shown_lines(
            build_report([stored_usage(*((at, PRO, tokens_of()) for at in days))], ("day",)), 100
        )
    ]
    assert "Cost by day, the last 31" in lines
    assert sum("█" in line for line in lines) == 31
