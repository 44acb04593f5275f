"""Judge the held-out clips of a run with the base, the warm-started and the trained policy.

All passes read the same prompts, generate greedily and are scored by the reward's own parser.
Finished records are appended to `judgements/<pass>.jsonl` batch by batch; only when every pass
is whole are `held_out_eval.json` and `metrics.json` written.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from subtext import strict_json
from subtext.config import RunConfig
from subtext.data.scenarios import load_run_scenarios
from subtext.errors import EvaluationError
from subtext.evaluation.generate import generate_answers
from subtext.evaluation.metrics import score_completion, summarise
from subtext.policy.base_model import resolve_base
from subtext.policy.hush import hush_libraries
from subtext.policy.load import load_adapters, load_base, load_tokenizer
from subtext.policy.precision import choose_precision, machine_facts
from subtext.policy.threads import set_threads
from subtext.progress import Progress, Stage, Watcher, nobody
from subtext.prompts import build_messages
from subtext.run_dir import RunDir, load_config

if TYPE_CHECKING:
    from peft import PeftModel

logger = logging.getLogger(__name__)

_STAGES: dict[str, Stage] = {
    "base": "judge base",
    "warm": "judge warm",
    "trained": "judge trained",
}


def judge_held_out(run: RunDir, watcher: Watcher = nobody) -> dict[str, Any]:
    """Judge the clips listed in `run`'s split and return what `metrics.json` holds.

    Passes: `base` (adapter off), `warm` (only where there was a warm start), `trained`. Raises
    EvaluationError when a pass does not finish; finished records stay in `run.judgements`.
    """
    hush_libraries()
    config = load_config(run)
    scenarios = load_run_scenarios(run)
    for stale in (run.held_out_eval, run.metrics):
        stale.unlink(missing_ok=True)
    clip_ids = run.read(run.split)["judged"]
    precision = choose_precision(machine_facts(config.model.device), config.model)
    set_threads(config.training.num_threads)
    base = resolve_base(config.model)
    tokenizer = load_tokenizer(base)
    adapters = {"warm": run.warm_adapter, "trained": run.adapter}
    if not config.warm_start.steps:
        del adapters["warm"]
    model = load_adapters(load_base(base, precision), adapters)

    # Figures of an earlier judging must not stand beside the records of one that fails.
    for path in (run.held_out_eval, run.metrics):
        path.unlink(missing_ok=True)
    passes = {}
    for name in ["base", *adapters]:
        with _policy(model, name):
            records = _judge(run, name, model, tokenizer, scenarios, clip_ids, config, watcher)
        passes[name] = summarise(records)
        logger.info(
            "%s: accuracy %.3f, well-formed %.3f, mean reward %.3f on %d clips", name,
            *(passes[name][key] for key in ("accuracy", "well_formed_rate", "mean_reward")),
            len(records),
        )  # fmt: skip
    return _write(run, passes)


@contextlib.contextmanager
def _policy(model: PeftModel, name: str) -> Iterator[None]:
    """Switch `model` to the policy `name` for the time of the block."""
    if name == "base":
        with model.disable_adapter():
            yield
    else:
        model.set_adapter(name)
        yield


def _judge(
    run: RunDir,
    name: str,
    model: Any,
    tokenizer: Any,
    scenarios: dict[str, dict[str, Any]],
    clip_ids: list[str],
    config: RunConfig,
    watcher: Watcher,
) -> list[dict[str, Any]]:
    conversations = [build_messages(clip_id, scenarios, config.prompt) for clip_id in clip_ids]
    batches = generate_answers(
        model,
        tokenizer,
        conversations,
        max_new_tokens=config.evaluation.max_new_tokens or config.grpo.max_completion_length,
        batch_size=config.evaluation.batch_size,
    )
    records: dict[str, dict[str, Any]] = {}
    path = run.judgements / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as stream:
        try:
            for batch in batches:
                for index, answer in batch:
                    clip_id = clip_ids[index]
                    record = score_completion(
                        clip_id, scenarios[clip_id], answer.text, answer.ended, answer.n_tokens
                    )
                    records[clip_id] = record
                    stream.write(json.dumps(record, allow_nan=False, sort_keys=True) + "\n")
                stream.flush()
                watcher(Progress(_STAGES[name], len(records), len(clip_ids)))
        except RuntimeError as error:  # torch's own errors, out of memory among them
            raise EvaluationError(
                f"pass {name!r} stopped after {len(records)} of {len(clip_ids)} clips: {error}. "
                f"Finished records are in {path}; lower evaluation.batch_size if memory ran out."
            ) from error
    return [records[clip_id] for clip_id in clip_ids]


def _write(run: RunDir, passes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Write both result files and return the smaller.

    `held_out_eval.json` has the seed's keys for the trained policy at its top, and every pass
    whole under `passes`.
    """
    strict_json.write(run.held_out_eval, {**passes["trained"], "passes": passes})
    metrics = {
        "passes": {
            name: {key: value for key, value in summary.items() if key != "results"}
            for name, summary in passes.items()
        },
        "training": _last_training_record(run),
    }
    strict_json.write(run.metrics, metrics)
    return metrics


def _last_training_record(run: RunDir) -> dict[str, Any]:
    history = run.read(run.log_history, default=[])
    steps = [record for record in history if "reward" in record]
    return steps[-1] if steps else {}
