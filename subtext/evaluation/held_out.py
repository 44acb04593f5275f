"""Judge the clips of a run with the base, the warm-started and the trained policy, and what more
`evaluation` asks for (`subtext.evaluation.passes`).

Every pass generates greedily and is scored by the reward's own parser. Answers are kept in
`RunDir.answers` batch by batch, so a judging that was stopped goes on where it was. Only when every
pass is whole is `held_out_eval.json` written.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from subtext import strict_json
from subtext.config import RunConfig
from subtext.data.clips import Scenarios
from subtext.data.scenarios import load_run_scenarios
from subtext.data.scenes import scene_of
from subtext.evaluation.answer_cache import AnswerCache
from subtext.evaluation.generate import generate_answers
from subtext.evaluation.judgements import judged_records
from subtext.evaluation.metrics import summarise, without_records
from subtext.evaluation.passes import Pass, planned_passes
from subtext.evaluation.policy_digest import policy_digest
from subtext.policy.adapter_record import read_adapter_record
from subtext.policy.base_model import BaseModel, pinned, resolve_base
from subtext.policy.hush import hush_libraries
from subtext.policy.load import load_adapters, load_base, load_tokenizer
from subtext.policy.precision import Precision, choose_precision, machine_facts
from subtext.policy.threads import set_threads
from subtext.progress import Watcher, nobody
from subtext.run_dir import RunDir, load_config

if TYPE_CHECKING:
    from peft import PeftModel

logger = logging.getLogger(__name__)


def judge_held_out(run: RunDir, watcher: Watcher = nobody) -> dict[str, dict[str, Any]]:
    """Judge as `run`'s configuration asks and return the figures of each pass, by its name.

    Raises EvaluationError when a pass does not finish; what was answered stays.
    """
    hush_libraries()
    config = load_config(run)
    scenarios = load_run_scenarios(run)
    # Figures of an earlier judging must not stand beside the records of one that fails.
    for stale in (run.held_out_eval, run.metrics):
        stale.unlink(missing_ok=True)
    precision = choose_precision(machine_facts(config.model.device), config.model)
    set_threads(config.training.num_threads)
    base = resolve_base(pinned(config.model, read_adapter_record(run.adapter)["base"]))
    passes = list(planned_passes(run, config, scenarios))
    adapters = {each.adapter.name: each.adapter for each in passes if each.adapter}
    policies = _Policies(
        base, precision, load_adapters(load_base(base, precision), adapters), load_tokenizer(base)
    )
    scenes = scene_of(scenarios)
    figures = {}
    with AnswerCache(run.answers) as answers:
        for each in passes:
            records = _judge(run, each, policies, answers, scenarios, config, watcher)
            figures[each.name] = summarise(records, scenes)
            logger.info(
                "%s: accuracy %.3f, well-formed %.3f, mean reward %.3f on %d clips", each.name,
                *(figures[each.name][key] for key in ("accuracy", "strict_rate", "mean_reward")),
                len(records),
            )  # fmt: skip
    strict_json.write(run.held_out_eval, {**figures["trained"], "passes": figures})
    return {name: without_records(summary) for name, summary in figures.items()}


class _Policies:
    """The base with every adapter that some pass needs, one of them switched on at a time."""

    def __init__(
        self, base: BaseModel, precision: Precision, model: PeftModel, tokenizer: Any
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._base = base
        self._precision = precision

    @contextlib.contextmanager
    def of(self, each: Pass) -> Iterator[str]:
        """Switch to the policy of a pass for the time of the block; yields its digest."""
        digest = policy_digest(self._base, self._precision, each.adapter)
        if each.adapter is None:
            with self.model.disable_adapter():
                yield digest
        else:
            self.model.set_adapter(each.adapter.name)
            yield digest


def _judge(
    run: RunDir,
    each: Pass,
    policies: _Policies,
    answers: AnswerCache,
    scenarios: Scenarios,
    config: RunConfig,
    watcher: Watcher,
) -> list[dict[str, Any]]:
    with policies.of(each) as policy:
        batches = generate_answers(
            policies.model,
            policies.tokenizer,
            [each.messages(clip_id) for clip_id in each.clip_ids],
            max_new_tokens=config.evaluation.max_new_tokens or config.grpo.max_completion_length,
            batch_size=config.evaluation.batch_size,
            cache=answers,
            policy=policy,
        )
        return judged_records(run, each.name, each.clip_ids, scenarios, batches, watcher)
