"""The shape in which clips travel: what `subtext.data.scenarios` returns, and others only read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Clip = Mapping[str, Any]
"""One clip: `utterance, speaker, show, context, context_speakers, sarcasm, prosody, is_pivot`."""

Scenarios = Mapping[str, Clip]
"""Clips by clip id."""
