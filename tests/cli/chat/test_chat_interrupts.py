"""Signals in a chat: SIGINT (Ctrl-C), SIGTERM and SIGHUP."""

from __future__ import annotations

import signal

import pytest

from geminids.cli.shared.signals import HungUp, Interrupts


def test_signals_wait_during_a_turn_and_raise_at_the_prompt() -> None:
    """During a turn a signal is kept until the chat takes it.

    At the prompt it raises an exception at once.
    """
    interrupts = Interrupts()
    before = signal.getsignal(signal.SIGINT)
    with interrupts.handled():
        signal.raise_signal(signal.SIGINT)
        assert interrupts.waiting
        assert interrupts.take() == signal.SIGINT
        assert interrupts.take() is None
        with pytest.raises(KeyboardInterrupt), interrupts.prompting():
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(HungUp), interrupts.prompting():
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        with pytest.raises(HungUp), interrupts.prompting():
            raise AssertionError("never reached")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """A signal that was ignored before, as by `nohup`, stays ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        interrupts = Interrupts()
        with interrupts.handled():
            signal.raise_signal(signal.SIGHUP)
            assert not interrupts.waiting
    finally:
        signal.signal(signal.SIGHUP, before)
