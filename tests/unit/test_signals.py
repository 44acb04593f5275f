"""Signals that wait: for whom, how long, and who answers them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from subtext.signals import DeferredSignals


class AnsweredError(BaseException):
    """What the handler raises that was there before."""


@pytest.fixture(autouse=True)
def before() -> Iterator[signal.Handlers]:
    """A handler for SIGTERM as Prefect's, and the proof that it is there again afterwards."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise AnsweredError(number)

    earlier = signal.signal(signal.SIGTERM, handler)
    ctrl_c = signal.getsignal(signal.SIGINT)
    yield handler
    assert signal.signal(signal.SIGTERM, earlier) is handler
    assert signal.getsignal(signal.SIGINT) is ctrl_c


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def test_while_nothing_is_held_the_earlier_handler_is_the_one_installed(before):
    with DeferredSignals() as signals:
        assert signal.getsignal(signal.SIGTERM) is before
        signals.hold()
        signals.release()
        assert signal.getsignal(signal.SIGTERM) is before
        with pytest.raises(AnsweredError):
            send(signal.SIGTERM)


def test_a_held_signal_is_answered_on_release():
    with DeferredSignals() as signals:
        signals.hold()
        send(signal.SIGTERM)
        assert signals.held
        with pytest.raises(AnsweredError):
            signals.release()
        assert not signals.held
        signals.release()  # once


def test_the_first_of_two_is_answered():
    with DeferredSignals() as signals:
        signals.hold()
        send(signal.SIGINT)
        send(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signals.release()


def test_what_waits_is_answered_on_leaving():
    with pytest.raises(AnsweredError), DeferredSignals() as signals:
        signals.hold()
        send(signal.SIGTERM)


def test_beside_an_ordinary_error_the_signal_counts():
    with pytest.raises(AnsweredError) as caught, DeferredSignals() as signals:
        signals.hold()
        send(signal.SIGTERM)
        raise ValueError("while held")
    assert isinstance(caught.value.__context__, ValueError)


def test_a_second_signal_does_not_replace_the_first_ones_exception():
    with pytest.raises(KeyboardInterrupt), DeferredSignals() as signals:
        try:
            send(signal.SIGINT)
        finally:
            signals.hold()
            send(signal.SIGTERM)


def test_without_a_handler_the_process_leaves_with_the_shells_code():
    earlier = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as caught, DeferredSignals():
            send(signal.SIGTERM)
        assert caught.value.code == 128 + signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, earlier)


def test_what_is_ignored_stays_ignored():
    earlier = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with DeferredSignals() as signals:
            send(signal.SIGINT)
            signals.hold()
            send(signal.SIGINT)
            signals.release()
    finally:
        signal.signal(signal.SIGINT, earlier)


def test_another_thread_leaves_signals_alone(before):
    found = []

    def work():
        with DeferredSignals() as signals:
            signals.hold()
            found.append(signal.getsignal(signal.SIGTERM))
            signals.release()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [before]


def test_prefect_knows_its_own_handler_unless_held(before):
    """It takes a cancellation for a crash where another handler is installed."""
    from prefect.exceptions import TerminationSignal
    from prefect.utilities.engine import can_ack_control_intent, capture_sigterm

    with capture_sigterm(), DeferredSignals() as signals:
        assert can_ack_control_intent()
        signals.hold()
        assert not can_ack_control_intent()
        send(signal.SIGTERM)
        with pytest.raises(TerminationSignal):
            signals.release()
        assert can_ack_control_intent()
