"""Write the report of `geminids usage` as an HTML page with charts.

The page contains no scripts and needs no other files.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from geminids.views.amounts import count
from geminids.views.sanitize import one_line
from geminids.views.transcript.html_page import escaped, page_head
from geminids.views.usage.notes import cost, money_digits, notes, short_number
from geminids.views.usage.plots import bars, columns
from geminids.views.usage.usage import Key, Report

__all__ = ["html"]

_MAX_ROWS = 2000
_STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1d2127;--dim:#667080;--line:#dfe3e8;--box:#f5f6f8;
--c0:#3b6fd4;--c1:#e08a2e;--c2:#2f9e6e;--c3:#b5529b;--c4:#c9453f;--c5:#6a5acd;--c6:#8a8f98}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e2e6eb;--dim:#939dab;--line:#2d333b;--box:#1c2127;
--c0:#6f9bf0;--c1:#eba65c;--c2:#57c17a;--c3:#d583bf;--c4:#f0766f;--c5:#9d92ee;--c6:#848b96}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.4rem 1rem 4rem;max-width:64rem;background:var(--bg);color:var(--fg);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:1.4rem;margin:.2rem 0}h2{font-size:1.02rem;margin:2rem 0 .6rem}
.dim,footer{color:var(--dim);font-size:.85rem}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.7rem;margin:1.2rem 0}
.card{background:var(--box);border:1px solid var(--line);border-radius:.6rem;padding:.6rem .9rem}
.card b{display:block;font-size:1.4rem;font-variant-numeric:tabular-nums}
.card span{color:var(--dim);font-size:.8rem}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--dim);font:11px system-ui,sans-serif}svg .name{fill:var(--fg)}
svg .grid{stroke:var(--line);stroke-width:1}
.s0{fill:var(--c0);background:var(--c0)}.s1{fill:var(--c1);background:var(--c1)}
.s2{fill:var(--c2);background:var(--c2)}.s3{fill:var(--c3);background:var(--c3)}
.s4{fill:var(--c4);background:var(--c4)}.s5{fill:var(--c5);background:var(--c5)}
.s6{fill:var(--c6);background:var(--c6)}
svg rect:hover{opacity:.75}
.legend{display:flex;flex-wrap:wrap;gap:.3rem 1rem;margin:.4rem 0;font-size:.85rem}
.legend i{display:inline-block;width:.75rem;height:.75rem;border-radius:.2rem;margin-right:.35rem}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(20rem,1fr));gap:0 2rem}
.wide{overflow-x:auto}.chart svg{min-width:40rem}
table{border-collapse:collapse;width:100%;font-size:.82rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .45rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th.k,td.k{text-align:left}td.project{white-space:normal;overflow-wrap:anywhere;min-width:14rem}
th{color:var(--dim);font-weight:600}tfoot td{font-weight:700;border-bottom:0}
footer{margin-top:2rem;border-top:1px solid var(--line);padding-top:.8rem}
"""
_NUMBERS = {
    "requests": "requests",
    "other_requests": "other",
    "discarded_requests": "discarded",
    "input": "input",
    "cached": "cached",
    "output": "output",
    "thinking": "thinking",
    "tool": "tool",
    "total": "total",
}
# The columns that are left out if all their numbers are 0.
_RARE = ("other_requests", "discarded_requests", "tool")


def html(report: Report) -> Iterator[str]:
    """Yield the parts of the HTML page for a usage report."""
    yield page_head("Gemini CLI usage", _period(report), _STYLE)
    yield _cards(report)
    yield from columns(report)
    yield '<div class="two">\n'
    for key in ("model", "project"):
        yield from bars(report, key)
    yield "</div>\n"
    yield from _table(report)
    yield "</main>\n<footer>\n"
    for note in _notes(report):
        yield f"<p>{escaped(note)}</p>\n"
    yield "</footer></body></html>\n"


def _period(report: Report) -> str:
    days = [used.day for used in report.used]
    if not days:
        return "nothing was used"
    first = report.since.isoformat() if report.since else min(days)
    last = report.until.isoformat() if report.until else max(days)
    return first if first == last else f"{first} to {last}"


def _cards(report: Report) -> str:
    total = report.total
    cached = f"{total.cached / total.input:.0%} of input from the cache" if total.input else "no input"
    requests = f"requests in {count(report.sessions, 'session')}"
    if total.other_requests:
        requests += f", {total.other_requests:,} of them other requests"
    if total.discarded_requests:
        requests += f", {total.discarded_requests:,} of them discarded"
    facts = (
        (cost(total, money_digits(total)), "list price" if report.prices is None else "by your prices"),
        (short_number(total.total), "tokens"),
        (short_number(total.input), cached),
        (
            short_number(total.output + total.thinking),
            f"output, {short_number(total.thinking)} of it thinking",
        ),
        (f"{total.requests:,}", requests),
    )
    cells = "".join(
        f'<div class="card"><b>{escape(figure)}</b><span>{escape(caption)}</span></div>'
        for figure, caption in facts
    )
    return f'<div class="cards">{cells}</div>\n'


def _table(report: Report) -> Iterator[str]:
    by: tuple[Key, ...] = report.by
    names = [name for name in _NUMBERS if name not in _RARE or getattr(report.total, name)]
    heads = "".join(f'<th class="k">{key}</th>' for key in by)
    heads += "".join(f"<th>{_NUMBERS[name]}</th>" for name in names)
    yield f'<h2>By {" and ".join(by)}</h2>\n<div class="wide"><table><thead><tr>{heads}<th>cost</th></tr></thead>\n'
    yield "<tbody>\n"
    digits = money_digits(report.total)
    for row in report.rows[-_MAX_ROWS:]:
        cells = zip(by, row.keys, strict=True)
        yield "<tr>" + "".join(f'<td class="k {key}">{escaped(one_line(value))}</td>' for key, value in cells)
        yield "".join(f"<td>{getattr(row, name):,}</td>" for name in names)
        yield f"<td>{escape(cost(row, digits))}</td></tr>\n"
    yield f'</tbody><tfoot><tr><td class="k" colspan="{max(len(by), 1)}">total</td>'
    yield "".join(f"<td>{getattr(report.total, name):,}</td>" for name in names)
    yield f"<td>{escape(cost(report.total, digits))}</td></tr></tfoot></table></div>\n"
    if len(report.rows) > _MAX_ROWS:
        yield f'<p class="dim">The last {_MAX_ROWS:,} of {len(report.rows):,} lines; --csv has all.</p>\n'


def _notes(report: Report) -> Iterator[str]:
    yield from notes(report)
    if report.troubles:
        yield f"{count(len(report.troubles), 'file')} could not be read completely; --json names them."
