"""The upstream that answers from a cassette, and the diff that it shows for a request that is not in it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property

import msgspec

from geminids.gateway.cassette.answer import parts_of_answer
from geminids.gateway.cassette.lines import Cassette, Exchange, RecordedAnswer
from geminids.gateway.cassette.normalize import NormalizedRequest, Normalizer, is_account_call
from geminids.gateway.cassette.paths import PathReplacer
from geminids.gateway.cassette.volatile_values import Day, days_of
from geminids.gateway.request import METRICS, Request, read_route, unwrap
from geminids.gateway.script.encode import parts_of
from geminids.gateway.script.scripted import Scripted, default_reply
from geminids.gateway.upstream import Mismatch, Part
from geminids.redact import Redactor

__all__ = ["Replaying", "conversation_lines", "diff_of", "nearest"]

_HINT = "If the change is meant, record it again: geminids run --record FILE, or pytest --geminids-record."


class Replaying:
    """Gives each request the first answer that is left for it. Raises `Mismatch` where there is none.

    A request is the same where its conversation is: what was said, asked of tools and given by them, without what
    differs from run to run (`normal`). One that differs in anything else, as another release of the CLI does, is
    answered all the same, and that is said in `remarks`. `places` names folders of this run (path to `<workspace>` and
    so on) that the CLI does not tell of itself.
    """

    def __init__(
        self,
        cassette: Cassette,
        *,
        secrets: Iterable[str] = (),
        on_remark: Callable[[str], None] | None = None,
        places: Mapping[str, str] | None = None,
        pace: bool = False,
    ) -> None:
        self.remarks: list[str] = []
        self._cassette = cassette
        self._on_remark = on_remark
        self._pace = pace
        self._redactor = Redactor(secrets)
        self._file = os.path.basename(cassette.name)
        self._here = Normalizer(places, days_of(time.time()), self._redactor, self._file)
        self._known: tuple[dict[str, str], frozenset[Day]] | None = None
        self._recorded: list[NormalizedRequest] = []
        self._free = set(range(len(cassette.exchanges)))
        self._lock = threading.Lock()

    @property
    def unused(self) -> list[int]:
        """The numbers of the exchanges that nobody has asked for. What the CLI asks about its account is not counted:
        how often it does that differs from run to run."""
        exchanges = self._cassette.exchanges
        with self._lock:
            left = [exchanges[at] for at in sorted(self._free)]
        return [exchange.n for exchange in left if not is_account_call(exchange.path)]

    async def answer(self, request: Request) -> AsyncIterator[Part]:
        for part in self._parts(request):
            yield part

    def _parts(self, request: Request) -> Iterable[Part]:
        with self._lock:
            self._acquaint(request)
            asked = request.raw.decode("latin-1") if request.body is None else request.body
            now = self._here.request(request.method, request.model, asked, request.path)
            at = self._match(now)
            if at is not None:
                self._free.discard(at)
        if at is not None:
            return parts_of_answer(self._moved(self._cassette.exchanges[at].answer), pace=self._pace)
        return self._aside(request, now)

    def _acquaint(self, request: Request) -> None:
        """Let both sides know each other's folders and days: what is said in the same words must stay the same."""
        here, there = self._here, self._there
        if request.login is not None and request.login not in self._redactor.secrets:
            self._redactor = Redactor((*self._redactor.secrets, request.login))
            here.redact_with(self._redactor)
        here.learn(request.body)
        here.also(days_of(time.time()) | there.days, there.places)
        if self._known != (here.places, here.days):
            self._known = dict(here.places), here.days
            there.also(here.days, here.places)
            self._recorded = [self._normal(exchange) for exchange in self._cassette.exchanges]

    def _match(self, now: NormalizedRequest) -> int | None:
        free = sorted(self._free)
        alike = [at for at in free if now.is_like(self._recorded[at])]
        for at in alike:
            if not now.differs(self._recorded[at]):
                return at
        if not alike and now.is_account_call:
            return max((at for at, old in enumerate(self._recorded) if now.is_like(old)), default=None)
        if not alike:
            return None
        differs = " and ".join(now.differs(self._recorded[alike[0]]))
        made = f" (it was made on CLI {self._cassette.header.cli})" if self._cassette.header.cli else ""
        self._remark(
            f"a request has another {differs} than the cassette{made}, and the same conversation: replayed"
        )
        return alike[0]

    @cached_property
    def _there(self) -> Normalizer:
        """What was of the recorded run alone."""
        cassette = self._cassette
        made = _seconds(cassette.header.made)
        moments = [exchange.at for exchange in cassette.exchanges] + ([] if made is None else [made])
        days = days_of(*moments)
        known = Normalizer(days=days, redactor=self._redactor, cassette=self._file)
        for exchange in cassette.exchanges:
            known.learn(exchange.body)
        return known

    def _normal(self, exchange: Exchange) -> NormalizedRequest:
        route = read_route(exchange.path)
        body = exchange.body.decode("latin-1") if isinstance(exchange.body, bytes) else exchange.body
        model = route.model
        if route.api == "code_assist" and isinstance(body, dict):
            model = body.get("model") or unwrap(body).get("model")
        return self._there.request(route.method, model, body, exchange.path)

    def _moved(self, answer: RecordedAnswer) -> RecordedAnswer:
        """The answer for the folders of this run: a model often names files by their whole path."""
        mover = PathReplacer.between(self._there.places, self._here.places)
        if answer.events is not None:
            return msgspec.structs.replace(answer, events=mover.value(answer.events))
        if answer.json is not msgspec.UNSET:
            return msgspec.structs.replace(answer, json=mover.value(answer.json))
        return answer

    def _aside(self, request: Request, now: NormalizedRequest) -> Iterable[Part]:
        """The CLI's own errands need not be recorded: what they ask for can be made up."""
        reply = None
        if request.method == "generate":
            reply = default_reply(request)
        elif request.method != "stream":
            reply = Scripted().pick(request)
        if reply is None:
            raise self._mismatch(now)
        if request.path.endswith(METRICS):
            return parts_of(reply, request)
        what = {"count": "a count of tokens", "generate": "a side request of the CLI"}.get(
            request.method, f"a request to {request.path.partition('?')[0]}"
        )
        self._remark(f"{what} is not in the cassette: answered with a stand-in")
        return parts_of(reply, request)

    def _mismatch(self, now: NormalizedRequest) -> Mismatch:
        name, count = self._cassette.name, len(self._cassette.exchanges)
        same = [at for at in range(count) if now.is_like(self._recorded[at])]
        if same:
            used = self._cassette.exchanges[same[-1]].n
            what = f"it is the same as number {used}, which has been replayed already"
            return Mismatch(f"a request is not in the cassette {name}: {what}", _HINT)
        free = sorted(self._free)
        at = nearest(now, [self._recorded[at] for at in free])
        if at is None:
            left = "nothing is left in it" if count else "there is nothing in it"
            return Mismatch(f"a request is not in the cassette {name}: {left} (of {count} requests)", _HINT)
        number = self._cassette.exchanges[free[at]].n
        diff = self._redactor.text(diff_of(now, self._recorded[free[at]]))
        return Mismatch(
            f"a request is not in the cassette {name}. It differs from number {number} of {count}:\n{diff}",
            _HINT,
        )

    def _remark(self, remark: str) -> None:
        if remark not in self.remarks:
            self.remarks.append(remark)
            if self._on_remark is not None:
                self._on_remark(remark)


def _seconds(made: str | None) -> float | None:
    try:
        return datetime.fromisoformat(made).timestamp() if made else None
    except ValueError:
        return None


_MOST_LINES = 40
# Longer lines are broken, so that it is seen where they differ.
_WIDEST = 120


def nearest(now: NormalizedRequest, recorded: Sequence[NormalizedRequest]) -> int | None:
    """Which recorded request is most like this one: of the same method, with the longest common beginning."""
    found: tuple[tuple[bool, int, float], int] | None = None
    for at, old in enumerate(recorded):
        if old.method != now.method:
            continue
        common = _common(now.conversation, old.conversation)
        longer = max(len(now.conversation), len(old.conversation))
        rank = (len(now.conversation) == len(old.conversation), common, -abs(longer - common))
        if found is None or rank > found[0]:
            found = rank, at
    return None if found is None else found[1]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))


def conversation_lines(request: NormalizedRequest) -> Iterator[str]:
    """A conversation as lines of text."""
    for entry in request.conversation:
        lines = [
            line[at : at + _WIDEST] for line in entry.split("\n") for at in range(0, len(line) or 1, _WIDEST)
        ]
        yield lines[0]
        yield from (f"  {line}" for line in lines[1:])


def diff_of(now: NormalizedRequest, old: NormalizedRequest) -> str:
    """A unified diff of two conversations, short enough to be read."""
    import difflib  # nothing that a run which goes well needs

    lines = list(
        difflib.unified_diff(
            list(conversation_lines(old)), list(conversation_lines(now)), "recorded", "now", lineterm="", n=2
        )
    )
    shown = [_shown(line) for line in lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        shown.append(f"… and {len(lines) - _MOST_LINES} more lines")
    return "\n".join(shown)


def _shown(line: str) -> str:
    # Control characters of a tool's output must not reach a terminal.
    return "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in line)
