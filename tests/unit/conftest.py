"""What several simulations need."""

import gc

import pytest


@pytest.fixture
def no_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """statsmodels' multipletests collects garbage at each call: minutes over thousands of them."""
    monkeypatch.setattr(gc, "collect", lambda: 0)
