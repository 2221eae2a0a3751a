"""What was used, summed up and shown."""

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

from geminids.sessions.usage import Request, Spent, StoredUsage, Trouble
from geminids.spending import ModelRate, price_of
from geminids.views.terminal.screen import Screen
from geminids.views.usage.html import html
from geminids.views.usage.table import print_report
from geminids.views.usage.usage import Report, grouped, report_of

_CODE = re.compile(r"\x1b\[[0-9;]*m")
PRO, FLASH, ODD = "gemini-2.5-pro", "gemini-2.5-flash", "model-<that>-nobody-knows"


def spent(given: int = 1000, cached: int = 400, output: int = 100, thinking: int = 50) -> Spent:
    return Spent(given, output, cached, thinking, 0, given + output + thinking)


def stored(
    *requests: tuple[str, str | None, Spent], session: str = "s1", project: str = "/repo/app"
) -> StoredUsage:
    made = tuple(Request(f"{session}-{at}", *request) for at, request in enumerate(requests))
    return StoredUsage(
        file=f"/repo/{session}.jsonl",
        session=session,
        project=project,
        subagent=False,
        started="2026-11-14T10:00:00.000Z",
        requests=made,
    )


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Days are those of a clock in UTC."""
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def report() -> Report:
    one = stored(
        ("2026-11-14T10:00:00.000Z", PRO, spent()),
        ("2026-11-14T11:00:00.000Z", FLASH, spent()),
        ("2026-11-15T10:00:00.000Z", PRO, spent(300_000, 0)),
    )
    two = stored(("2026-11-16T10:00:00.000Z", ODD, spent()), session="s2", project="/repo/<b>other</b>")
    return report_of([one, two], ("day", "model"))


def shown(report: Report, width: int | None, **how: Any) -> list[str]:
    file = io.StringIO()
    screen = Screen(file, terminal=width is not None, width=width, **how)
    print_report(screen, report)
    screen.flush()
    return file.getvalue().splitlines()


def test_each_request_has_its_tier() -> None:
    """Requests are priced one by one: the tier of one is not that of another, nor that of their sum."""
    requests = [spent(150_000, 10), spent(150_000, 10), spent(250_000, 0), spent(10, 40)]
    at = "2026-11-14T10:00:00.000Z"
    found = report_of([stored(*((at, PRO, one) for one in requests))], ("model",))
    prices = [price_of(PRO, one, date(2026, 11, 14)) for one in requests]
    assert found.total.usd == sum(price.usd for price in prices if price)
    assert found.total.requests == 4


def test_own_prices() -> None:
    """A table of one's own goes before the list."""
    table = [ModelRate(model="model-*", input=1, output=10)]
    one = stored(("2026-11-14T10:00:00.000Z", ODD, spent()))
    found = report_of([one], ("model",), table=table)
    assert found.total.usd == Decimal("0.0025")
    assert found.unpriced == ()


def test_sums(report: Report) -> None:
    """A row for each day and model; what nobody knows the price of is named, and its row has none."""
    assert [row.keys for row in report.rows] == [
        ("2026-11-14", FLASH),
        ("2026-11-14", PRO),
        ("2026-11-15", PRO),
        ("2026-11-16", ODD),
    ]
    assert (report.total.requests, report.total.unpriced, report.sessions) == (4, 1, 2)
    assert report.total.input == 303_000 and report.total.total == 303_000 + 4 * 150
    assert report.unpriced == (ODD,)
    assert [row.keys for row in grouped(report.used, ("session",))] == [("s1",), ("s2",)]


def test_days() -> None:
    """`since` and `until` are both included; what has no day is left out where some are asked for."""
    lost = msgspec.structs.replace(stored(("", PRO, spent()), ("?", None, spent())), started="")
    assert [row.keys for row in report_of([lost], ("day",)).rows] == [("unknown",)]
    assert not report_of([lost], ("day",), since=date(2020, 1, 1)).rows
    three = stored(*((f"2026-11-1{day}T23:59:59.999Z", PRO, spent()) for day in range(3, 8)))
    found = report_of([three], ("day",), since=date(2026, 11, 14), until=date(2026, 11, 15))
    assert [row.keys for row in found.rows] == [("2026-11-14",), ("2026-11-15",)]


def test_local_days(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request late in the evening is of that evening, wherever UTC is."""
    import time

    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    one = stored(("2026-11-14T18:14:59.000Z", PRO, spent()), ("2026-11-14T18:15:00.000Z", PRO, spent()))
    assert [row.keys for row in report_of([one], ("day",)).rows] == [("2026-11-14",), ("2026-11-15",)]


def test_table(report: Report) -> None:
    """A table with a line for the sum; a cost that is that of a part is marked, one that nobody knows is none."""
    lines = shown(report, None)
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
    assert any(f"The price of {ODD} is unknown" in line for line in lines)
    assert any("router" in line for line in lines)
    assert not any("█" in line for line in lines)


@pytest.mark.parametrize("width", [200, 100, 80, 60, 40, 25])
def test_widths(report: Report, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is longer than the terminal is wide, and the cost stays where there is room for anything."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    lines = shown(report, width)
    assert not any(code in line for line in lines for code in ("\x1b[3", "\x1b[9"))
    lines = [_CODE.sub("", line) for line in lines]
    assert max(cell_len(line) for line in lines) <= width
    assert width < 60 or lines[0].split()[-1] == "COST"
    assert width < 60 or any("█" in line for line in lines)


def test_troubles() -> None:
    """What could not be read is told."""
    one = StoredUsage(
        file="/repo/x",
        session="s",
        project=None,
        subagent=False,
        started="",
        requests=(),
        troubles=(Trouble("/repo/x\x1b[31m", "1 record that cannot be read"),) * 7,
    )
    lines = shown(report_of([one], ("day",)), 200)
    assert any("not counted: 1 record that cannot be read in /repo/x" in line for line in lines)
    assert any("and 2 files more" in line for line in lines)


def test_page(report: Report, tmp_path: Path) -> None:
    """The page is whole, has plots, asks for nothing from elsewhere, and nothing in it is not escaped."""
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


def test_page_of_years() -> None:
    """Many days become months; none at all are a page too."""
    days = [f"20{year}-{month:02}-03T10:00:00.000Z" for year in (24, 25) for month in range(1, 13)]
    page = "".join(html(report_of([stored(*((day, PRO, spent()) for day in days))], ("model",))))
    assert "Cost by month" in page and "2024-01" in page
    assert "nothing was used" in "".join(html(report_of([], ("day",))))


def test_beyond_session_files() -> None:
    """Other and discarded requests have a column and a sentence each; without any, a note says what is missing."""
    times = ("2026-11-14T10:00:00.000Z", "2026-11-14T11:00:00.000Z")
    talk = stored((times[0], PRO, spent()))
    other = msgspec.structs.replace(
        stored((times[0], FLASH, spent()), (times[1], ODD, spent())), kind="other"
    )
    thrown = msgspec.structs.replace(stored((times[1], FLASH, spent())), kind="discarded")
    found = report_of([talk, other, thrown], ("model",))
    total = found.total
    assert (total.requests, total.other_requests, total.other_tokens) == (4, 2, 2 * 1150)
    assert (total.discarded_requests, total.discarded_tokens, total.unknown_requests) == (1, 1150, 0)
    flash = sum(row.usd for row in found.rows if row.keys == (FLASH,))
    assert total.other_usd == total.discarded_usd == flash / 2 > 0
    assert found.sessions == 1
    lines = shown(found, None)
    assert "OTHER  DISCARDED" in lines[0]
    assert any("Other requests" in line and "2 requests, 2.30k tokens" in line for line in lines)
    assert any("Discarded requests" in line and "1 request, 1.15k tokens" in line for line in lines)
    assert any("missing for all other runs" in line for line in lines)
    page = "".join(html(found))
    assert "<th>other</th><th>discarded</th>" in page
    assert "2 of them other requests, 1 of them discarded" in page
    without = report_of([talk], ("model",))
    assert "OTHER" not in shown(without, None)[0] and "<th>other</th>" not in "".join(html(without))
    assert any(
        line.startswith("Not included: requests outside the conversation") for line in shown(without, None)
    )


def test_unknown_tokens() -> None:
    """Requests whose tokens are unknown are counted as requests, and a note says that the cost is higher."""
    talk = stored(("2026-11-14T10:00:00.000Z", PRO, spent()))
    cut = msgspec.structs.replace(stored(("2026-11-14T10:00:00.000Z", PRO, Spent())), are_tokens_known=False)
    found = report_of([talk, cut], ("model",))
    assert (found.total.requests, found.total.unknown_requests, found.total.total) == (2, 1, 1150)
    note = "1 request ended before the API reported the tokens"
    assert any(note in line for line in shown(found, None)) and note in "".join(html(found))


def test_a_day_once(report: Report) -> None:
    """In a terminal a day stands once above its models; in a pipe each line has it."""
    assert sum(line.startswith("2026-11-14") for line in shown(report, None)) == 2
    lines = [_CODE.sub("", line) for line in shown(report, 120)]
    table = lines[: next(at for at, line in enumerate(lines) if line.startswith("TOTAL"))]
    assert sum(line.startswith("2026-11-14") for line in table) == 1


def test_money() -> None:
    """All of a table has as many digits; little is not nothing, and nothing is."""
    cheap = stored(("2026-11-14T10:00:00.000Z", FLASH, spent(100, 0, 1, 0)))
    dear = stored(("2026-11-15T10:00:00.000Z", PRO, spent(900_000, 0)))
    costs = [line.split()[-1] for line in shown(report_of([cheap, dear], ("day",)), None)[1:4]]
    assert costs == ["<$0.01", "$2.25", "$2.25"]
    costs = [line.split()[-1] for line in shown(report_of([cheap], ("day",)), None)[1:3]]
    assert costs == ["<$0.0001", "<$0.0001"]
    free = stored(("2026-11-14T10:00:00.000Z", "gemma-4-31b-it", spent()))
    assert shown(report_of([free], ("day",)), None)[1].split()[-1] == "$0.00"
    assert "$0.0000" not in "".join(html(report_of([cheap, dear], ("day",))))


def test_whose_prices(report: Report) -> None:
    """Prices of one's own are named."""
    own = msgspec.structs.replace(report, prices="/repo/<b>prices.toml")
    assert any("by /repo/<b>prices.toml" in line for line in shown(own, None))
    assert "by your prices" in "".join(html(own)) and "<b>prices" not in "".join(html(own))
    assert "list price" in "".join(html(report))


def test_long_names() -> None:
    """Of a path that is too long, whole folders at its end are left; the name of a usual model stays whole."""
    one = stored(
        ("2026-11-14T10:00:00.000Z", "gemini-3.1-pro-preview", spent()),
        project="/repo/ada/work/a-service-with-quite-a-long-name/backend/api",
    )
    lines = [_CODE.sub("", line) for line in shown(report_of([one], ("project", "model")), 80)]
    assert lines[1].split()[:2] == ["…/backend/api", "gemini-3.1-pro-preview"]


def test_many_days() -> None:
    """Where there are more days than bars, the chart says which it shows."""
    days = [f"2026-{month:02}-{day:02}T10:00:00.000Z" for month in (9, 10) for day in range(1, 29)]
    lines = [
        _CODE.sub("", line)
        for line in shown(report_of([stored(*((at, PRO, spent()) for at in days))], ("day",)), 100)
    ]
    assert "Cost by day, the last 31" in lines
    assert sum("█" in line for line in lines) == 31
