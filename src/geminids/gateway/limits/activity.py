"""Detect what the CLI does without reporting it: it repeats a request, uses a fallback model, warns
the model of a loop, compresses the conversation, or discards an answer. This module does no I/O.

Each run has one `Activity` object. For each request, the gateway computes a `Fingerprint` and calls
`sent`. It calls `began` when the status line of the answer arrives, and `ended` at the end of the
answer.

A discarded answer is detected in this way: the CLI sends the whole conversation with each request,
so the next request contains every answer that the CLI accepted. If it contains no more answers than
the request before it, the CLI discarded the last answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from geminids.gateway.limits.roles import decode_leniently
from geminids.gateway.messages import Finding, RequestRole
from geminids.gateway.request import Request

__all__ = ["Activity", "Fingerprint", "Sent", "fingerprint_of"]

# Beginning of the message that the CLI (GeminiClient._recoverFromLoop) sends instead of the prompt
# or the tool results when it suspects a loop.
_RECOVERY = b"System: Potential loop detected. Details: "
# Beginnings of the text that the CLI adds when it repeats a request after an empty answer (0.61,
# applyRetryNudge).
_NUDGES = (
    b"[System: You previously generated thoughts but failed to provide a final",
    b"[System: You previously returned an empty response with no text or thoughts",
)
# Texts that the CLI itself adds to a conversation in the name of the model (geminiChat.ts).
_PLACEHOLDERS = (
    b'"text":"[Tool execution completed.]"',
    b'"text":"[The previous response was interrupted before it completed.]"',
    b'"text":"Binary content received. Proceeding with analysis."',
)
_CONVERSATIONS = ("main", "subagent")
# The CLI repeats requests of these roles if it cannot use the answer. For other roles, the second
# of two equal requests is not a repeat: for example, a tool may search for the same words twice.
_REPEATED = ("router", "loop_check", "compression")


class _Message(msgspec.Struct, frozen=True):
    role: str | None = None
    parts: tuple[msgspec.Raw, ...] = ()


class _ConversationFields(msgspec.Struct, frozen=True, rename="camel"):
    contents: tuple[_Message, ...] | None = None
    system_instruction: msgspec.Raw = msgspec.Raw(b"null")


class _ConversationBody(_ConversationFields, frozen=True, rename="camel"):
    # Code Assist puts the same fields into the object `request`, next to the model.
    model: str | None = None
    request: _ConversationFields | None = None


_decoder = msgspec.json.Decoder(_ConversationBody)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Fingerprint(msgspec.Struct, frozen=True):
    """The facts about a request that are needed to compare it with later requests of the same run.
    The integers are hashes. They are valid only in this process.
    """

    role: RequestRole
    model: str | None
    conversation: int
    """The id of the conversation. The main conversation has one id. Subagents have other ids;
    subagents with the same prompt share one."""
    contents: int
    """Hash of all messages, without the texts that the CLI adds or changes when the CLI repeats a
    request."""
    answers: int
    """Hash of all the model's answers in the conversation."""
    earlier_answers: int | None
    """Hash of all the model's answers except the last; None if there is no answer."""
    is_recovery: bool


class Sent(msgspec.Struct, frozen=True):
    """What `Activity.sent` found out about a new request.

    `is_new_turn` is true if the request starts a new turn (a model request with its tool calls) of
    the main conversation. If the request repeats an earlier one, `repeats` is the number of the
    earlier request; otherwise None. `findings` are the facts to report to the run.
    """

    is_new_turn: bool = False
    repeats: int | None = None
    findings: tuple[Finding, ...] = ()


class _TrackedRequest(msgspec.Struct):
    """A request and the state of its answer. `status` is the HTTP status; None until the answer
    begins. `is_whole` is true if the answer is complete, and `has_call` if it contains a tool call.
    """

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
    """Compute the fingerprint of a request, so that later requests of the run can be compared with
    it. If the body contains no conversation, the whole body is hashed. For a body of 20 MB, this
    takes about 20 ms.
    """
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
    # Use only the beginning: the CLI may append to the instruction when it repeats a request (CLI
    # 0.54).
    instruction = bytes(memoryview(inner.system_instruction)[:2000])
    own = (first, instruction) if role == "subagent" else ()
    return Fingerprint(
        role=role,
        model=model,
        conversation=hash((role, own)),
        # Hash each part separately: the CLI sometimes joins neighbouring messages of the same role.
        contents=hash(tuple(parts)),
        answers=hash(tuple(answers)),
        earlier_answers=hash(tuple(answers[:-1])) if answers else None,
        is_recovery=_RECOVERY in beginning,
    )


def _is_placeholder(parts: Sequence[msgspec.Raw]) -> bool:
    raw = bytes(memoryview(parts[0])[:200]) if len(parts) == 1 else b""
    return any(placeholder in raw for placeholder in _PLACEHOLDERS)


def _digest(raw: msgspec.Raw, role: str) -> int:
    """Return a hash of one part of a message. In messages of the model, the field
    `thoughtSignature` is left out: the CLI invents this field for the tool calls of the current
    turn, and removes it later.
    """
    fields = decode_leniently(_fields, bytes(raw)) if role == "model" else None
    if fields is None:
        return hash(bytes(raw))
    return hash(tuple((name, bytes(value)) for name, value in fields.items() if name != "thoughtSignature"))


class Activity:
    """Compares the requests of one run (or of one prompt of a chat). It detects actions of the CLI
    that the CLI does not report, such as repeated requests and discarded answers.
    """

    def __init__(self) -> None:
        self._open: dict[int, _TrackedRequest] = {}
        # The last requests of each conversation, by its id. There can be several, because subagents
        # with the same prompt have the same id and may run in parallel.
        self._conversations: dict[int, list[_TrackedRequest]] = {}
        # The last request of each group of equal utility requests (requests outside the
        # conversations), by role and content. Several requests of one role may run in parallel, for
        # example two searches.
        self._utilities: dict[tuple[int, int], _TrackedRequest] = {}
        self._is_compressing = False

    def sent(self, number: int, fingerprint: Fingerprint) -> Sent:
        """Record the request with this number, which is about to be sent to the API. Return whether
        it starts a turn or repeats an earlier request, and the facts to report to the run.
        """
        exchange = self._open[number] = _TrackedRequest(number, fingerprint)
        if fingerprint.role == "nested":
            return Sent()
        return self._conversation(exchange) if fingerprint.role in _CONVERSATIONS else self._utility(exchange)

    def began(self, number: int, status: int) -> None:
        """Record that the status line of the answer to request `number` has arrived. Call this
        before the status line is sent to the CLI.
        """
        if number in self._open:
            self._open[number].status = status

    def ended(self, number: int, *, is_whole: bool, has_call: bool) -> None:
        """Record that request `number` has ended. `is_whole` is true if the answer is complete; it
        is false if the answer is incomplete or missing. `has_call` is true if the answer contains a
        tool call.
        """
        exchange = self._open.pop(number, None)
        if exchange is not None:
            exchange.has_ended, exchange.is_whole, exchange.has_call = True, is_whole, has_call

    def _conversation(self, exchange: _TrackedRequest) -> Sent:
        number, fingerprint = exchange.number, exchange.fingerprint
        is_main = fingerprint.role == "main"
        last = self._conversations.get(fingerprint.conversation, [])
        previous = _previous(last, fingerprint)
        if is_main:
            self._conversations.clear()  # all subagents have ended
            last = []
        others = [other for other in last if other is not previous]
        self._conversations[fingerprint.conversation] = [*others, exchange]
        # This request belongs to a conversation. If a later utility request is equal to one before
        # this request, it is a repeat only if the earlier one failed. So keep only failed ones.
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
            text = (
                f"the CLI suspects that the model is in a loop, and warns the model of it (request {number})"
            )
            findings.append(Finding("loop_recovery", number, text))
        if not is_kept:
            findings += _discarded(previous)
        return Sent(is_main and is_kept, previous.number if is_repeat else None, tuple(findings))

    def _utility(self, exchange: _TrackedRequest) -> Sent:
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
        # A loop check sends the same request to a second model; this is not a repeat.
        is_unusable = fingerprint.role in _REPEATED and fingerprint.model == previous.fingerprint.model
        if not previous.failed and not is_unusable:
            return Sent(findings=tuple(findings))
        findings += [*_repeated(exchange, previous), *_discarded(previous)]
        return Sent(repeats=previous.number, findings=tuple(findings))


def _previous(last: Sequence[_TrackedRequest], fingerprint: Fingerprint) -> _TrackedRequest | None:
    """Return the request that comes before a new request in the same conversation. Return None if
    the new request is the first one, or if the CLI replaced the history. `fingerprint` describes
    the new request. `last` are the latest requests of the conversation.

    In the main conversation, the previous request may not have ended: the CLI may have aborted the
    answer to it, and the gateway may not have noticed this yet.

    Subagents with the same prompt share one conversation id, so a request in `last` may belong to
    another subagent. Such a request is skipped in two cases:

    - The request has not ended.
    - Its answer is complete and contains a tool call, but the new request does not contain this
      answer. A subagent never discards such an answer.
    """
    for answers in (fingerprint.earlier_answers, fingerprint.answers):
        for exchange in last:
            is_used = answers == fingerprint.answers and exchange.is_whole and exchange.has_call
            is_candidate = fingerprint.role == "main" or (exchange.has_ended and not is_used)
            if is_candidate and exchange.fingerprint.answers == answers:
                return exchange
    return None


def _repeated(exchange: _TrackedRequest, previous: _TrackedRequest) -> list[Finding]:
    number, model = exchange.number, exchange.fingerprint.model
    if previous.failed and model != previous.fingerprint.model:
        failed = f"request {previous.number} to {previous.fingerprint.model}"
        text = f"request {number} uses the fallback model {model}, because {failed} failed"
        return [Finding("fallback", number, text)]
    if previous.failed:
        return []  # this is a retry, which the gateway reports elsewhere
    text = (
        f"request {number} repeats request {previous.number}, "
        f"because the CLI could not use the answer to request {previous.number}"
    )
    return [Finding("repeat", number, text)]


def _discarded(previous: _TrackedRequest) -> list[Finding]:
    text = f"the CLI discarded the answer to request {previous.number}"
    return [Finding("discarded", previous.number, text)] if previous.was_answered else []
