"""What the CLI does with its requests and does not show: repeats, fallbacks, loop recovery, compression, answers that
it discards. Pure.

The gateway computes one `Sketch` per request and feeds one `Activity` per run, in this order for each request:
`sent`, `began` (the status line is there), `ended`.

The CLI sends the whole conversation each time. An answer that it accepted is in the next request of the conversation;
if the answers in the next request are those of the request before, the CLI discarded what came in between.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from geminids.gateway.limits.roles import decode_leniently
from geminids.gateway.messages import Finding, RequestRole
from geminids.gateway.request import Request

__all__ = ["Activity", "Sent", "Sketch", "sketch_of"]

# How the message begins that GeminiClient._recoverFromLoop sends in place of the prompt or of tool results.
_RECOVERY = b"System: Potential loop detected. Details: "
# How the text begins that a repeat after an empty answer adds (0.61, applyRetryNudge).
_NUDGES = (
    b"[System: You previously generated thoughts but failed to provide a final",
    b"[System: You previously returned an empty response with no text or thoughts",
)
# Messages with the model's role that the CLI writes itself (geminiChat.ts).
_PLACEHOLDERS = (
    b'"text":"[Tool execution completed.]"',
    b'"text":"[The previous response was interrupted before it completed.]"',
    b'"text":"Binary content received. Proceeding with analysis."',
)
_CONVERSATIONS = ("main", "subagent")
# The CLI repeats these when it cannot use the answer; a tool may ask for the same search twice.
_REPEATED = ("router", "loop_check", "compression")


class _Message(msgspec.Struct, frozen=True):
    role: str | None = None
    parts: tuple[msgspec.Raw, ...] = ()


class _Content(msgspec.Struct, frozen=True, rename="camel"):
    contents: tuple[_Message, ...] | None = None
    system_instruction: msgspec.Raw = msgspec.Raw(b"null")


class _Body(_Content, frozen=True, rename="camel"):
    # Code Assist wraps the same fields in `request`, and names the model beside it.
    model: str | None = None
    request: _Content | None = None


_decoder = msgspec.json.Decoder(_Body)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Sketch(msgspec.Struct, frozen=True):
    """What has to be remembered of a request. Digests are valid in this process only."""

    role: RequestRole
    model: str | None
    conversation: int
    """Which conversation it belongs to: there is one main conversation, and one for each subagent."""
    contents: int
    """Digest of all messages, without what a repeat adds or changes."""
    answers: int
    """Digest of the model's answers in it."""
    earlier_answers: int | None
    """The same without the last one; None if there is none."""
    is_recovery: bool


class Sent(msgspec.Struct, frozen=True):
    """What a new request means. `repeats` is the number of the earlier request that it repeats. `is_new_turn`: it asks
    for the next answer of the main conversation, as the CLI's journal counts them."""

    is_new_turn: bool = False
    repeats: int | None = None
    findings: tuple[Finding, ...] = ()


class _Exchange(msgspec.Struct):
    """A request and what came of it. `status` is None while no answer has begun."""

    number: int
    sketch: Sketch
    status: int | None = None
    is_whole: bool = False
    has_ended: bool = False
    has_call: bool = False

    @property
    def was_answered(self) -> bool:
        return self.status is not None and self.status < 400

    @property
    def failed(self) -> bool:
        return not (self.was_answered and self.is_whole)


def sketch_of(request: Request, role: RequestRole) -> Sketch:
    """Read a request once (about 20 ms for 20 MB). A body that is no conversation is known by its bytes."""
    body = decode_leniently(_decoder, request.raw)
    inner = body and (body.request or body)
    model = request.model or (body.model if body else None)
    if inner is None or not inner.contents:
        digest = hash(request.raw)
        return Sketch(role, model, digest, digest, digest, None, False)
    messages = [(one.role or "user", one.parts) for one in inner.contents]
    speaker, last = messages[-1]
    beginning = bytes(memoryview(last[-1])[:120]) if last and speaker == "user" else b""
    if any(nudge in beginning for nudge in _NUDGES):
        messages[-1] = speaker, last[:-1]
    parts: list[tuple[str, int]] = []
    answers: list[int] = []
    for speaker, raws in messages:
        if speaker == "model" and _is_placeholder(raws):
            continue
        digests = [_digest(raw, speaker) for raw in raws]
        parts += [(speaker, digest) for digest in digests]
        if speaker == "model":
            answers.append(hash(tuple(digests)))
    first = tuple(_digest(raw, "user") for raw in messages[0][1])
    # A repeat may add to the end of the instruction (0.54).
    instruction = bytes(memoryview(inner.system_instruction)[:2000])
    own = (first, instruction) if role == "subagent" else ()
    return Sketch(
        role=role,
        model=model,
        conversation=hash((role, own)),
        # Part by part: the CLI joins neighbouring messages of one role, and not always.
        contents=hash(tuple(parts)),
        answers=hash(tuple(answers)),
        earlier_answers=hash(tuple(answers[:-1])) if answers else None,
        is_recovery=_RECOVERY in beginning,
    )


def _is_placeholder(parts: Sequence[msgspec.Raw]) -> bool:
    raw = bytes(memoryview(parts[0])[:200]) if len(parts) == 1 else b""
    return any(placeholder in raw for placeholder in _PLACEHOLDERS)


def _digest(raw: msgspec.Raw, speaker: str) -> int:
    """Leave out the signature: the CLI makes one up for the calls of the current turn, and drops it later."""
    fields = decode_leniently(_fields, bytes(raw)) if speaker == "model" else None
    if fields is None:
        return hash(bytes(raw))
    return hash(tuple((name, bytes(value)) for name, value in fields.items() if name != "thoughtSignature"))


class Activity:
    """Follows the requests of one run. A chat has a new one for each turn."""

    def __init__(self) -> None:
        self._open: dict[int, _Exchange] = {}
        # The last request of each; subagents with the same prompt may run side by side.
        self._conversations: dict[int, list[_Exchange]] = {}
        # Several of one role may run side by side, for example two searches.
        self._utilities: dict[tuple[int, int], _Exchange] = {}
        self._is_compressing = False

    def sent(self, number: int, sketch: Sketch) -> Sent:
        """A request arrived and goes to the API."""
        exchange = self._open[number] = _Exchange(number, sketch)
        if sketch.role == "nested":
            return Sent()
        return self._conversation(exchange) if sketch.role in _CONVERSATIONS else self._utility(exchange)

    def began(self, number: int, status: int) -> None:
        """The status line of the answer came. Call it before the CLI can see the answer and act on it."""
        if number in self._open:
            self._open[number].status = status

    def ended(self, number: int, *, is_whole: bool, has_call: bool) -> None:
        """The answer is over, complete or cut; also if none came. `has_call`: it asked for a tool."""
        exchange = self._open.pop(number, None)
        if exchange is not None:
            exchange.has_ended, exchange.is_whole, exchange.has_call = True, is_whole, has_call

    def _conversation(self, exchange: _Exchange) -> Sent:
        number, sketch = exchange.number, exchange.sketch
        is_main = sketch.role == "main"
        last = self._conversations.get(sketch.conversation, [])
        previous = _previous(last, sketch)
        if is_main:
            self._conversations.clear()  # the subagents are done
            last = []
        self._conversations[sketch.conversation] = [one for one in last if one is not previous] + [exchange]
        # The same question may come up again later: that is no repeat.
        self._utilities = {key: one for key, one in self._utilities.items() if one.failed}
        self._is_compressing = False
        if previous is None:
            return Sent(is_new_turn=is_main)
        is_repeat = previous.sketch.contents == sketch.contents
        is_kept = previous.sketch.answers != sketch.answers
        findings: list[Finding] = []
        if is_repeat:
            findings += _repeated(exchange, previous)
        elif sketch.is_recovery:
            text = f"the CLI suspects a loop and tells the model so (request {number})"
            findings.append(Finding("loop_recovery", number, text))
        if not is_kept:
            findings += _discarded(previous)
        return Sent(is_main and is_kept, previous.number if is_repeat else None, tuple(findings))

    def _utility(self, exchange: _Exchange) -> Sent:
        number, sketch = exchange.number, exchange.sketch
        key = sketch.conversation, sketch.contents
        previous = self._utilities.get(key)
        self._utilities[key] = exchange
        findings: list[Finding] = []
        if sketch.role == "compression" and not self._is_compressing:
            self._is_compressing = True
            text = f"the CLI has the conversation summarised to shorten it (request {number})"
            findings.append(Finding("compression", number, text))
        if previous is None or not previous.has_ended:
            return Sent(findings=tuple(findings))
        # A loop check asks a second model the same.
        is_unusable = sketch.role in _REPEATED and sketch.model == previous.sketch.model
        if not previous.failed and not is_unusable:
            return Sent(findings=tuple(findings))
        findings += [*_repeated(exchange, previous), *_discarded(previous)]
        return Sent(repeats=previous.number, findings=tuple(findings))


def _previous(last: Sequence[_Exchange], sketch: Sketch) -> _Exchange | None:
    """The request that this one follows, or None: it is the first, or the CLI replaced the history.

    The main conversation also goes on when the CLI broke off an answer, which we may not know yet. For subagents, a
    request that is still open belongs to another one, and an answer with a call is never discarded.
    """
    for answers in (sketch.earlier_answers, sketch.answers):
        for one in last:
            is_used = answers == sketch.answers and one.is_whole and one.has_call
            is_candidate = sketch.role == "main" or (one.has_ended and not is_used)
            if is_candidate and one.sketch.answers == answers:
                return one
    return None


def _repeated(exchange: _Exchange, previous: _Exchange) -> list[Finding]:
    number, model = exchange.number, exchange.sketch.model
    if previous.failed and model != previous.sketch.model:
        text = f"request {number} asks {model}: request {previous.number} to {previous.sketch.model} failed"
        return [Finding("fallback", number, text)]
    if previous.failed:
        return []  # reported as a retry
    text = f"request {number} repeats request {previous.number}: the CLI could not use the answer"
    return [Finding("repeat", number, text)]


def _discarded(previous: _Exchange) -> list[Finding]:
    text = f"the CLI discarded the answer to request {previous.number}"
    return [Finding("discarded", previous.number, text)] if previous.was_answered else []
