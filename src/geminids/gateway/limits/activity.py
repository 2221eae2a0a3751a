"""Detect what the CLI does without reporting it, such as repeats and discarded answers. Pure.

It detects repeats, fallbacks, loop recovery, compression and discarded answers. The gateway
computes one `Fingerprint` per request and feeds one `Activity` per run, in this order for each
request: `sent`, `began` (the status line has arrived), `ended`.

The CLI sends the whole conversation each time. The next request of the conversation contains each
answer that the CLI accepted; if it contains the same answers as the request before, the CLI
discarded the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from geminids.gateway.limits.roles import decode_leniently
from geminids.gateway.messages import Finding, RequestRole
from geminids.gateway.request import Request

__all__ = ["Activity", "Fingerprint", "Sent", "fingerprint_of"]

# Beginning of the message that GeminiClient._recoverFromLoop sends instead of the prompt or of tool
# results.
_RECOVERY = b"System: Potential loop detected. Details: "
# Beginnings of the text that the CLI adds to a repeat after an empty answer (0.61,
# applyRetryNudge).
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
# The CLI repeats these if it cannot use the answer. Other roles may repeat without that: a tool may
# search twice.
_REPEATED = ("router", "loop_check", "compression")


class _Message(msgspec.Struct, frozen=True):
    role: str | None = None
    parts: tuple[msgspec.Raw, ...] = ()


class _Content(msgspec.Struct, frozen=True, rename="camel"):
    contents: tuple[_Message, ...] | None = None
    system_instruction: msgspec.Raw = msgspec.Raw(b"null")


class _Body(_Content, frozen=True, rename="camel"):
    # Code Assist wraps the same fields in `request`, next to the model.
    model: str | None = None
    request: _Content | None = None


_decoder = msgspec.json.Decoder(_Body)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Fingerprint(msgspec.Struct, frozen=True):
    """What is stored about a request, to compare it with later ones. Digests are valid in this
    process only."""

    role: RequestRole
    model: str | None
    conversation: int
    """Digest of its conversation: there is one main conversation, and one for each subagent."""
    contents: int
    """Digest of all messages, without the text that a repeat adds or changes."""
    answers: int
    """Digest of the model's answers in the conversation."""
    earlier_answers: int | None
    """Digest of all answers but the last; None if there is no answer."""
    is_recovery: bool


class Sent(msgspec.Struct, frozen=True):
    """The result for a new request. `repeats` is the number of the earlier request that it repeats.
    `is_new_turn`: it requests the next answer of the main conversation, as the CLI's journal counts
    them."""

    is_new_turn: bool = False
    repeats: int | None = None
    findings: tuple[Finding, ...] = ()


class _Exchange(msgspec.Struct):
    """A request and its answer. `status` is None until the answer begins."""

    number: int
    fingerprint: Fingerprint
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


def fingerprint_of(request: Request, role: RequestRole) -> Fingerprint:
    """Read a request (about 20 ms for 20 MB). For a body that is not a conversation, the bytes are
    hashed."""
    body = decode_leniently(_decoder, request.raw)
    inner = body and (body.request or body)
    model = request.model or (body.model if body else None)
    if inner is None or not inner.contents:
        digest = hash(request.raw)
        return Fingerprint(role, model, digest, digest, digest, None, False)
    messages = [(message.role or "user", message.parts) for message in inner.contents]
    message_role, last = messages[-1]
    beginning = bytes(memoryview(last[-1])[:120]) if last and message_role == "user" else b""
    if any(nudge in beginning for nudge in _NUDGES):
        messages[-1] = message_role, last[:-1]
    parts: list[tuple[str, int]] = []
    answers: list[int] = []
    for message_role, raws in messages:
        if message_role == "model" and _is_placeholder(raws):
            continue
        digests = [_digest(raw, message_role) for raw in raws]
        parts += [(message_role, digest) for digest in digests]
        if message_role == "model":
            answers.append(hash(tuple(digests)))
    first = tuple(_digest(raw, "user") for raw in messages[0][1])
    # A repeat may append to the instruction (0.54).
    instruction = bytes(memoryview(inner.system_instruction)[:2000])
    own = (first, instruction) if role == "subagent" else ()
    return Fingerprint(
        role=role,
        model=model,
        conversation=hash((role, own)),
        # Hash part by part: the CLI sometimes joins neighbouring messages of one role.
        contents=hash(tuple(parts)),
        answers=hash(tuple(answers)),
        earlier_answers=hash(tuple(answers[:-1])) if answers else None,
        is_recovery=_RECOVERY in beginning,
    )


def _is_placeholder(parts: Sequence[msgspec.Raw]) -> bool:
    raw = bytes(memoryview(parts[0])[:200]) if len(parts) == 1 else b""
    return any(placeholder in raw for placeholder in _PLACEHOLDERS)


def _digest(raw: msgspec.Raw, role: str) -> int:
    """Hash a part without its signature: the CLI invents one for the calls of the current turn and
    drops it later."""
    fields = decode_leniently(_fields, bytes(raw)) if role == "model" else None
    if fields is None:
        return hash(bytes(raw))
    return hash(tuple((name, bytes(value)) for name, value in fields.items() if name != "thoughtSignature"))


class Activity:
    """Tracks the requests of one run, or of one turn of a chat."""

    def __init__(self) -> None:
        self._open: dict[int, _Exchange] = {}
        # The last request of each conversation. Subagents with the same prompt may run in parallel.
        self._conversations: dict[int, list[_Exchange]] = {}
        # Several of one role may run in parallel, for example two searches.
        self._utilities: dict[tuple[int, int], _Exchange] = {}
        self._is_compressing = False

    def sent(self, number: int, fingerprint: Fingerprint) -> Sent:
        """A request is about to be sent to the API."""
        exchange = self._open[number] = _Exchange(number, fingerprint)
        if fingerprint.role == "nested":
            return Sent()
        return self._conversation(exchange) if fingerprint.role in _CONVERSATIONS else self._utility(exchange)

    def began(self, number: int, status: int) -> None:
        """The status line of the answer has arrived. Call this before the CLI can act on the
        answer."""
        if number in self._open:
            self._open[number].status = status

    def ended(self, number: int, *, is_whole: bool, has_call: bool) -> None:
        """The answer has ended, complete or cut, or there was none. `has_call`: it contained a tool
        call."""
        exchange = self._open.pop(number, None)
        if exchange is not None:
            exchange.has_ended, exchange.is_whole, exchange.has_call = True, is_whole, has_call

    def _conversation(self, exchange: _Exchange) -> Sent:
        number, fingerprint = exchange.number, exchange.fingerprint
        is_main = fingerprint.role == "main"
        last = self._conversations.get(fingerprint.conversation, [])
        previous = _previous(last, fingerprint)
        if is_main:
            self._conversations.clear()  # the subagents are done
            last = []
        others = [other for other in last if other is not previous]
        self._conversations[fingerprint.conversation] = [*others, exchange]
        # The CLI may send the same utility request again later: that is not a repeat.
        self._utilities = {key: utility for key, utility in self._utilities.items() if utility.failed}
        self._is_compressing = False
        if previous is None:
            return Sent(is_new_turn=is_main)
        is_repeat = previous.fingerprint.contents == fingerprint.contents
        is_kept = previous.fingerprint.answers != fingerprint.answers
        findings: list[Finding] = []
        if is_repeat:
            findings += _repeated(exchange, previous)
        elif fingerprint.is_recovery:
            text = f"the CLI suspects a loop and tells the model so (request {number})"
            findings.append(Finding("loop_recovery", number, text))
        if not is_kept:
            findings += _discarded(previous)
        return Sent(is_main and is_kept, previous.number if is_repeat else None, tuple(findings))

    def _utility(self, exchange: _Exchange) -> Sent:
        number, fingerprint = exchange.number, exchange.fingerprint
        key = fingerprint.conversation, fingerprint.contents
        previous = self._utilities.get(key)
        self._utilities[key] = exchange
        findings: list[Finding] = []
        if fingerprint.role == "compression" and not self._is_compressing:
            self._is_compressing = True
            text = f"the CLI compresses the conversation (request {number})"
            findings.append(Finding("compression", number, text))
        if previous is None or not previous.has_ended:
            return Sent(findings=tuple(findings))
        # A loop check sends the same request to a second model.
        is_unusable = fingerprint.role in _REPEATED and fingerprint.model == previous.fingerprint.model
        if not previous.failed and not is_unusable:
            return Sent(findings=tuple(findings))
        findings += [*_repeated(exchange, previous), *_discarded(previous)]
        return Sent(repeats=previous.number, findings=tuple(findings))


def _previous(last: Sequence[_Exchange], fingerprint: Fingerprint) -> _Exchange | None:
    """The request that this one follows. None if it is the first, or if the CLI replaced the
    history.

    The main conversation also continues after the CLI broke off an answer, which we may not know
    yet. For subagents, a request that is still open belongs to another subagent, and an answer with
    a call is never discarded.
    """
    for answers in (fingerprint.earlier_answers, fingerprint.answers):
        for exchange in last:
            is_used = answers == fingerprint.answers and exchange.is_whole and exchange.has_call
            is_candidate = fingerprint.role == "main" or (exchange.has_ended and not is_used)
            if is_candidate and exchange.fingerprint.answers == answers:
                return exchange
    return None


def _repeated(exchange: _Exchange, previous: _Exchange) -> list[Finding]:
    number, model = exchange.number, exchange.fingerprint.model
    if previous.failed and model != previous.fingerprint.model:
        failed = f"request {previous.number} to {previous.fingerprint.model}"
        text = f"request {number} falls back to {model}: {failed} failed"
        return [Finding("fallback", number, text)]
    if previous.failed:
        return []  # reported as a retry
    text = f"request {number} repeats request {previous.number}: the CLI could not use the answer"
    return [Finding("repeat", number, text)]


def _discarded(previous: _Exchange) -> list[Finding]:
    text = f"the CLI discarded the answer to request {previous.number}"
    return [Finding("discarded", previous.number, text)] if previous.was_answered else []
