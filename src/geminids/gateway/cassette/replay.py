"""Answer requests from a cassette, a file with recorded requests and answers. If the cassette has
no answer, the error shows how the request differs from the most similar recorded request.
"""

from __future__ import annotations

import difflib
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
from geminids.gateway.script.scripted_upstream import Scripted, default_reply
from geminids.gateway.upstream import Mismatch, Part
from geminids.redact import Redactor

__all__ = ["Replaying", "conversation_lines", "diff_of", "nearest"]

_HINT = (
    "If the change is intended, record the cassette again: `geminids run --record FILE --force`, or "
    "`pytest --geminids-record`."
)


class Replaying:
    """Answers requests from a cassette, a file with recorded requests and answers.

    A request gets an unused answer whose recorded request matches. Each answer is used only once,
    except answers about the user's Code Assist account. If no unused answer matches, some utility
    requests of the CLI get a default reply, and `Mismatch` is raised for all other requests.

    Before two requests are compared, both are normalized: values that differ from run to run are
    replaced. The requests match if their conversations (texts, tool calls and tool results) are
    then equal. If other parts differ, for example because of another CLI release, the answer is
    still used, and a remark is added to `remarks`.

    `places` contains folders of this run that the CLI does not mention. Each folder is mapped to
    its placeholder, such as `<workspace>`. If `pace` is true, the answers take as long as during
    the recording.
    """

    is_free = True
    """True, because no model answers: the requests cost nothing."""

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
        self._current = Normalizer(places, days_of(time.time()), self._redactor, self._file)
        self._compared_with: tuple[dict[str, str], frozenset[Day]] | None = None
        self._recorded: list[NormalizedRequest] = []
        self._unused = set(range(len(cassette.exchanges)))
        self._lock = threading.Lock()

    @property
    def unused(self) -> list[int]:
        """The numbers of the recorded requests whose answers were not replayed. Requests about the
        Code Assist account are left out, because the number of such requests differs from run to
        run.
        """
        exchanges = self._cassette.exchanges
        with self._lock:
            left = [exchanges[at] for at in sorted(self._unused)]
        return [exchange.n for exchange in left if not is_account_call(exchange.path)]

    async def answer(self, request: Request) -> AsyncIterator[Part]:
        for part in self._parts(request):
            yield part

    def _parts(self, request: Request) -> Iterable[Part]:
        with self._lock:
            self._learn(request)
            body = request.raw.decode("latin-1") if request.body is None else request.body
            now = self._current.request(request.method, request.model, body, request.path)
            at = self._match(now)
            if at is not None:
                self._unused.discard(at)
        if at is not None:
            return parts_of_answer(
                self._with_current_paths(self._cassette.exchanges[at].answer), pace=self._pace
            )
        return self._answer_unrecorded(request, now)

    def _learn(self, request: Request) -> None:
        """Read the folders, the dates and the login of the current run from this request. Update
        both normalizers (for the current run and for the recorded run), so that each replaces the
        folders and dates of both runs. This is needed because a text may mention a folder or date
        of either run, and its normalized form must not depend on the run.
        """
        current, recorded = self._current, self._recorded_run
        if request.login is not None and request.login not in self._redactor.secrets:
            self._redactor = Redactor((*self._redactor.secrets, request.login))
            current.redact_with(self._redactor)
        current.learn(request.body)
        current.add_known(days_of(time.time()) | recorded.days, recorded.folders)
        if self._compared_with != (current.folders, current.days):
            self._compared_with = dict(current.folders), current.days
            recorded.add_known(current.days, current.folders)
            self._recorded = [self._normal(exchange) for exchange in self._cassette.exchanges]

    def _match(self, now: NormalizedRequest) -> int | None:
        free = sorted(self._unused)
        matching = [at for at in free if now.matches(self._recorded[at])]
        for at in matching:
            if not now.differs(self._recorded[at]):
                return at
        if not matching and now.is_account_call:
            return max((at for at, old in enumerate(self._recorded) if now.matches(old)), default=None)
        if not matching:
            return None
        differs = " and ".join(now.differs(self._recorded[matching[0]]))
        made = f" (recorded with CLI {self._cassette.header.cli})" if self._cassette.header.cli else ""
        self._remark(
            f"a request differs from the cassette{made} in its {differs}, but its conversation is the same: "
            "sent the recorded answer"
        )
        return matching[0]

    @cached_property
    def _recorded_run(self) -> Normalizer:
        """The normalizer for the recorded requests. It replaces the dates and the folders of the
        recorded run.
        """
        cassette = self._cassette
        made = _seconds(cassette.header.made)
        times = [exchange.at for exchange in cassette.exchanges] + ([] if made is None else [made])
        days = days_of(*times)
        normalizer = Normalizer(days=days, redactor=self._redactor, cassette=self._file)
        for exchange in cassette.exchanges:
            normalizer.learn(exchange.body)
        return normalizer

    def _normal(self, exchange: Exchange) -> NormalizedRequest:
        route = read_route(exchange.path)
        body = exchange.body.decode("latin-1") if isinstance(exchange.body, bytes) else exchange.body
        model = route.model
        if route.api == "code_assist" and isinstance(body, dict):
            model = body.get("model") or unwrap(body).get("model")
        return self._recorded_run.request(route.method, model, body, exchange.path)

    def _with_current_paths(self, answer: RecordedAnswer) -> RecordedAnswer:
        """Return a recorded answer with the folders of the recorded run replaced with those of the
        current run. This is needed because a model often writes absolute paths.
        """
        paths = PathReplacer.between(self._recorded_run.folders, self._current.folders)
        if answer.events is not None:
            return msgspec.structs.replace(answer, events=paths.value(answer.events))
        if answer.json is not msgspec.UNSET:
            return msgspec.structs.replace(answer, json=paths.value(answer.json))
        return answer

    def _answer_unrecorded(self, request: Request, now: NormalizedRequest) -> Iterable[Part]:
        """Answer a request that is not in the cassette. Requests that generate no content (such as
        a count of tokens) and utility requests that ask for JSON get a default reply. For any other
        request, `Mismatch` is raised.
        """
        reply = None
        if request.method == "generate":
            reply = default_reply(request)
        elif request.method != "stream":
            reply = Scripted().pick(request)
        if reply is None:
            raise self._mismatch(now)
        if request.path.endswith(METRICS):
            return parts_of(reply, request)
        description = {"count": "a count of tokens", "generate": "a utility request of the CLI"}.get(
            request.method, f"a request to {request.path.partition('?')[0]}"
        )
        self._remark(f"{description} is not in the cassette: sent a default reply")
        return parts_of(reply, request)

    def _mismatch(self, now: NormalizedRequest) -> Mismatch:
        name, count = self._cassette.name, len(self._cassette.exchanges)
        same = [at for at in range(count) if now.matches(self._recorded[at])]
        if same:
            used = self._cassette.exchanges[same[-1]].n
            detail = f"it is equal to request number {used}, whose answer has already been replayed"
            return Mismatch(f"the cassette {name} has no answer left for a request: {detail}", _HINT)
        free = sorted(self._unused)
        at = nearest(now, [self._recorded[at] for at in free])
        if at is None:
            reason = (
                f"all recorded answers have already been replayed (requests: {count})"
                if count
                else "the cassette is empty"
            )
            return Mismatch(f"a request is not in the cassette {name}: {reason}", _HINT)
        number = self._cassette.exchanges[free[at]].n
        diff = self._redactor.text(diff_of(now, self._recorded[free[at]]))
        return Mismatch(
            f"a request is not in the cassette {name}. "
            f"It differs from the most similar recorded request, number {number} of {count}:\n{diff}",
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


_MAX_LINES = 40
# Longer lines are split, so that the diff shows where they differ.
_MAX_WIDTH = 120


def nearest(now: NormalizedRequest, recorded: Sequence[NormalizedRequest]) -> int | None:
    """Return the index of the recorded request that is most similar to the request `now`. Only
    requests with the same API method are considered. Return None if there is none.

    Recorded requests whose conversation is as long as that of `now` are preferred. If there are
    several, or none of this length, the request whose conversation has the longest beginning in
    common with `now` is chosen.
    """
    best: tuple[tuple[bool, int, float], int] | None = None
    for at, old in enumerate(recorded):
        if old.method != now.method:
            continue
        common = _common(now.conversation, old.conversation)
        longer = max(len(now.conversation), len(old.conversation))
        rank = (len(now.conversation) == len(old.conversation), common, -abs(longer - common))
        if best is None or rank > best[0]:
            best = rank, at
    return None if best is None else best[1]


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    for at, (left, right) in enumerate(zip(first, second, strict=False)):
        if left != right:
            return at
    return min(len(first), len(second))


def conversation_lines(request: NormalizedRequest) -> Iterator[str]:
    """Yield the conversation of a normalized request as lines of text. Very long lines
    are split.
    """
    for entry in request.conversation:
        lines = [
            line[at : at + _MAX_WIDTH]
            for line in entry.split("\n")
            for at in range(0, len(line) or 1, _MAX_WIDTH)
        ]
        yield lines[0]
        yield from (f"  {line}" for line in lines[1:])


def diff_of(now: NormalizedRequest, old: NormalizedRequest) -> str:
    """Return a unified diff from the conversation of the recorded request `old` to that of the
    request `now`. If the diff has more than 40 lines, only the first 40 lines are returned, and the
    number of omitted lines.
    """

    lines = list(
        difflib.unified_diff(
            list(conversation_lines(old)), list(conversation_lines(now)), "recorded", "now", lineterm="", n=2
        )
    )
    shown = [_shown(line) for line in lines[:_MAX_LINES]]
    if len(lines) > _MAX_LINES:
        shown.append(f"… and {len(lines) - _MAX_LINES} more lines")
    return "\n".join(shown)


def _shown(line: str) -> str:
    # Replace control characters, because the output of a tool must not send them to a terminal.
    return "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in line)
