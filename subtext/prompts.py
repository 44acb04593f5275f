"""What the model reads: the system prompt with the answer grammar, and one clip as a user message.

`PromptConfig` turns three knobs. The header of the seed names the clip, its speaker and its
duration, and names stand beside every line: on MUStARD these leak the label, so `header="blind"`
and `speaker="masked"` leave them out. `cue_rules` adds the seed's two rules of thumb about
delivery, which the literature contradicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from subtext.answer import FINAL_CLOSE, FINAL_OPEN, THINK_CLOSE, THINK_OPEN
from subtext.config import PromptConfig
from subtext.data.clips import Scenarios
from subtext.data.masking import Cast, masked_clip
from subtext.prosody.render import (
    render_pitch_contour,
    render_prosody_features,
    render_transcript,
)

SEED_PROMPT = PromptConfig(header="seed", speaker="named", cue_rules=True)

_ANSWER = (
    f"{THINK_OPEN}2 to 6 sentences that weigh the words and the delivery{THINK_CLOSE}\n"
    f'{FINAL_OPEN}{{"label":"sarcastic"|"sincere","confidence":0.0..1.0}}{FINAL_CLOSE}'
)

SYSTEM_PROMPT = f"""You are a skilled listener who recognises sarcasm in spoken dialogue.
For one line from a TV show you are given:
- its transcript, with the conversation that leads up to it
- prosody features of how it was spoken: pitch, energy and pauses
- the pitch contour across the line

Decide whether the line is SARCASTIC or SINCERE. Read between the lines: the way something is
said can turn the literal meaning of its words around.

Answer in EXACTLY this form:
{_ANSWER}

Rules:
1. Reason from the transcript AND from the prosody.
2. Strong pitch variation, a pause for emphasis and positive words together often mean sarcastic.
3. A flat voice, no pause inside the line and neutral content together often mean sincere.
4. Let the confidence say how well the cues agree.
"""
"""The seed's system prompt in content, with its rules of thumb."""

_PLAIN_SYSTEM_PROMPT = f"""Judge whether a spoken line is sarcastic or sincere. \
You get its transcript with context, its prosody and its pitch contour.
Answer in exactly this form:
{_ANSWER}
The confidence is the probability that your label is right.
"""


def system_prompt(prompt: PromptConfig) -> str:
    """Return `SYSTEM_PROMPT`, or a shorter one without rules of thumb."""
    return SYSTEM_PROMPT if prompt.cue_rules else _PLAIN_SYSTEM_PROMPT


def build_full_observation(
    clip_id: str,
    scenarios: Scenarios,
    prompt: PromptConfig = SEED_PROMPT,
    cast: Cast | None = None,
) -> str:
    """Return the user message of one clip: header, transcript, prosody, contour and question.

    Masking hides the names of `cast`, which is that of `scenarios` unless it is given.
    """
    clip = scenarios[clip_id]
    if prompt.speaker == "masked":
        clip = masked_clip(clip, cast or Cast.of(scenarios))
    prosody = clip.get("prosody")
    sections = [
        f"=== Transcript ===\n{render_transcript(clip_id, {clip_id: clip})}",
        f"=== Prosody features ===\n{render_prosody_features(clip_id, prosody)}",
        f"=== Pitch contour ===\n{render_pitch_contour(clip_id, prosody)}",
        "Is the line to judge sarcastic or sincere?",
    ]
    if prompt.header == "seed":
        sections.insert(0, _seed_header(clip_id, clip))
    return "\n\n".join(sections)


def build_messages(
    clip_id: str,
    scenarios: Scenarios,
    prompt: PromptConfig = SEED_PROMPT,
    cast: Cast | None = None,
) -> list[dict[str, str]]:
    """Return the chat of one clip: the system message, then the user's."""
    return [
        {"role": "system", "content": system_prompt(prompt)},
        {"role": "user", "content": build_full_observation(clip_id, scenarios, prompt, cast)},
    ]


def _seed_header(clip_id: str, clip: Mapping[str, Any]) -> str:
    prosody = clip.get("prosody")
    duration = f"{prosody['duration_s']:.2f}s" if prosody else "unknown"
    speaker = " ".join(clip["speaker"].split())
    return f"Clip {clip_id} (speaker {speaker}, duration {duration})"
