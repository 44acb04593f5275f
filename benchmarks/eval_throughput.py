"""How fast clips are judged: by the seed's loop and by ours, with the same weights and clips.

    python benchmarks/eval_throughput.py [--clips 24] [--new-tokens 128] [--adapter FOLDER]

SmolLM2-135M without quantisation and a warm-started adapter, which the first run trains on the demo
corpus and keeps in `$SUBTEXT_CACHE`; held-out clips of the demo corpus. The seed's loop asks
one clip at a time and here goes on to the limit; when each answer's end token came is noted, so
that a loop that stops there is reported as well. Ours runs before and after it; its mean counts.

- *labels*: share of clips with the label (or the lack of one) that the seed's loop reads.
- *formed*: share of well-formed answers.
- *MiB*: largest resident memory of a process that does nothing else.
- *weights*: share of the time in which the weights could have been read from memory, once a
  decoding step, at the bandwidth measured in the same run. What lies above is prompt reading,
  arithmetic and overhead.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import logging
import multiprocessing
import operator
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from subtext import strict_json
from subtext.answer import parse_final
from subtext.config import RunConfig
from subtext.cores import free_cores
from subtext.data.masking import Cast
from subtext.data.scenarios import data_digest, load_reference, load_run_scenarios, load_scenarios
from subtext.evaluation.generate import Messages, generate_answers
from subtext.paths import cache_dir
from subtext.policy.base_model import resolve_base
from subtext.policy.hush import hush_libraries
from subtext.policy.load import (
    CHAT_TEMPLATE_OPTIONS,
    add_adapter,
    load_adapters,
    load_base,
    load_tokenizer,
    save_adapter,
)
from subtext.policy.precision import Precision, choose_precision, machine_facts
from subtext.policy.threads import set_threads, wait_passively
from subtext.policy.train import training_rows
from subtext.policy.warm_start import teacher_examples, warm_start
from subtext.prepare import prepare_run
from subtext.progress import Progress
from subtext.prompts import build_messages
from subtext.run_dir import RunDir, load_config

_STEPS, _BATCH = 32, 4
_OVERRIDES = {
    "data": {"root": "data/demo", "split": "scene", "eval_ratio": 0.33, "require_prosody": False},
    "model": {"quantization": "none"},
    "warm_start": {
        "steps": _STEPS, "batch_size": _BATCH, "learning_rate": 2e-3,
        "n_examples": _STEPS * _BATCH,
    },
}  # fmt: skip
_STREAMED_BYTES = 1 << 30


@dataclasses.dataclass(frozen=True)
class Setup:
    """What both sides have in common."""

    run: Path
    adapter: Path
    n_clips: int
    new_tokens: int
    threads: int


@dataclasses.dataclass(frozen=True)
class Judged:
    """Answers of one side: text and number of tokens each; seconds until each row's end token and
    for all."""

    texts: list[str]
    n_tokens: list[int]
    to_own_end_s: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class Measured:
    judged: Judged
    decode_steps: int
    weight_bytes: int
    peak_bytes: int


def main(setup: Setup) -> None:
    """Train the adapter where there is none, run both sides and print the table."""
    if not setup.adapter.exists():
        print(f"training the adapter, once: {_STEPS} steps of {_BATCH} answers", flush=True)
        seconds = _alone(train_adapter, setup)
        print(f"trained in {seconds:.0f} s: {setup.adapter}", flush=True)
    bandwidth = _alone(measure_bandwidth, setup.threads)
    first = _alone(measure, batched, setup)
    seeds = _alone(measure, one_at_a_time, setup)
    second = _alone(measure, batched, setup)
    _print(setup, bandwidth, seeds, [first, second])


def one_at_a_time(
    model: Any, tokenizer: Any, conversations: list[Messages], new_tokens: int
) -> Judged:
    """Answer as the seed does, but on to the limit: no end token stops the model."""
    import torch

    model.generation_config.eos_token_id = None
    texts, n_tokens, to_own_end_s, started = [], [], 0.0, time.perf_counter()
    for messages in conversations:
        asked = time.perf_counter()
        encoded = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True,
            **CHAT_TEMPLATE_OPTIONS,
        ).to(model.device)  # fmt: skip
        clock = _Clock()
        with torch.no_grad():
            output = model.generate(
                **encoded,
                max_new_tokens=new_tokens,
                do_sample=False,
                pad_token_id=tokenizer.eos_token_id,
                use_cache=True,
                streamer=clock,
            )
        tokens = output[0, encoded["input_ids"].shape[1] :].tolist()
        length = [*tokens, tokenizer.eos_token_id].index(tokenizer.eos_token_id) + 1
        length = min(length, len(tokens))
        texts.append(tokenizer.decode(tokens[:length], skip_special_tokens=True))
        n_tokens.append(length)
        to_own_end_s += clock.times[length] - asked
    return Judged(texts, n_tokens, to_own_end_s, time.perf_counter() - started)


def batched(model: Any, tokenizer: Any, conversations: list[Messages], new_tokens: int) -> Judged:
    """Answer with the product's engine, in one batch."""
    started = time.perf_counter()
    (batch,) = generate_answers(
        model, tokenizer, conversations, max_new_tokens=new_tokens, batch_size=len(conversations)
    )
    answers = dict(batch)
    seconds = time.perf_counter() - started
    in_order = [answers[index] for index in range(len(conversations))]
    return Judged(
        [answer.text for answer in in_order],
        [answer.n_tokens for answer in in_order],
        seconds,
        seconds,
    )


class _Clock:
    """A streamer that notes when the prompt came (0) and each token (1 …)."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: Any) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass


def measure(side: Callable[..., Judged], setup: Setup) -> Measured:
    """Load the policy, let `side` judge, and return what it took. For a process of its own."""
    hush_libraries()
    run = RunDir(setup.run)
    config, precision = _prepared(run, setup.threads)
    scenarios = load_run_scenarios(run)
    clip_ids = run.read(run.split)["judged"][: setup.n_clips]
    conversations = [build_messages(clip_id, scenarios, config.prompt) for clip_id in clip_ids]
    base = resolve_base(config.model)
    tokenizer = load_tokenizer(base)
    model = load_adapters(load_base(base, precision), {"warm": setup.adapter})
    side(model, tokenizer, conversations[:1], 2)  # what libraries do once
    n_steps = count_decode_steps(model)
    judged = side(model, tokenizer, conversations, setup.new_tokens)
    return Measured(
        judged,
        n_steps(),
        sum(each.numel() * each.element_size() for each in model.parameters()),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def count_decode_steps(model: Any) -> Callable[[], int]:
    """Return a function that says how often `model` has read one token a row since."""
    calls: list[int] = []

    def note(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if kwargs["input_ids"].shape[1] == 1:
            calls.append(1)

    model.get_base_model().register_forward_pre_hook(note, with_kwargs=True)
    return lambda: len(calls)


def measure_bandwidth(threads: int) -> float:
    """Return bytes a second that torch reads from memory: the best of summing and of copying."""
    _prepare_torch(threads)
    import torch

    source = torch.ones(_STREAMED_BYTES // 4)
    target = torch.empty_like(source)
    reading = _best_of_five(source.sum)
    copying = _best_of_five(functools.partial(target.copy_, source))
    return max(_STREAMED_BYTES / reading, 2 * _STREAMED_BYTES / copying)


def _best_of_five(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def train_adapter(setup: Setup) -> float:
    """Warm-start an adapter into `setup.adapter` and return the seconds it took."""
    hush_libraries()
    started = time.monotonic()
    run = RunDir(setup.run)
    config, precision = _prepared(run, setup.threads)
    scenarios, rows = training_rows(run, config)
    base = resolve_base(config.model)
    tokenizer = load_tokenizer(base)
    model = add_adapter(load_base(base, precision), config.lora, config.training.seed)
    examples = teacher_examples(rows, scenarios, config)
    with tempfile.TemporaryDirectory() as scratch:
        warm_start(model, tokenizer, examples, config, precision, Path(scratch), _tell)
    cast, reference = Cast.of(scenarios), load_reference(run)
    save_adapter(model, tokenizer, base, precision, cast, reference, config, setup.adapter)
    return time.monotonic() - started


def _tell(progress: Progress) -> None:
    if loss := progress.metrics.get("warm_start/loss"):
        print(f"  step {progress.step} of {progress.max_steps}: loss {loss:.2f}", flush=True)


def _prepared(run: RunDir, threads: int) -> tuple[RunConfig, Precision]:
    config = load_config(run)
    precision = choose_precision(machine_facts(config.model.device), config.model)
    _prepare_torch(threads)
    return config, precision


def _prepare_torch(threads: int) -> None:
    wait_passively()
    set_threads(threads)


def _alone(work: Callable[..., Any], *arguments: Any) -> Any:
    """Run `work` in a fresh process, whose peak of memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def _print(setup: Setup, bandwidth: float, seeds: Measured, ours: list[Measured]) -> None:
    from rich.console import Console
    from rich.table import Table

    seed, our = seeds.judged, ours[0].judged
    n_to_end = sum(seed.n_tokens)
    our_s = statistics.mean(each.judged.seconds for each in ours)
    # The first token of each answer comes with the prompt, without a step.
    rows = [
        ("seed, to the limit", seed.seconds, setup.n_clips * setup.new_tokens, seeds,
         seeds.decode_steps),
        ("seed, to its end", seed.to_own_end_s, n_to_end, seeds,
         n_to_end - setup.n_clips),
        ("ours", our_s, sum(our.n_tokens), ours[0], ours[0].decode_steps),
    ]  # fmt: skip
    columns = ("", "seconds", "tokens/s", "ratio", "labels", "formed", "MiB", "weights")
    table = Table(*columns, title=f"{setup.n_clips} clips, up to {setup.new_tokens} new tokens")
    expected = labels_of(seed)
    for name, seconds, n_tokens, side, n_steps in rows:
        labels = labels_of(side.judged)
        equal = sum(map(operator.eq, labels, expected)) / len(labels)
        formed = sum(label is not None for label in labels) / len(labels)
        weights = n_steps * side.weight_bytes / bandwidth / seconds
        table.add_row(
            name, f"{seconds:.1f}", f"{n_tokens / seconds:.0f}", f"{seed.seconds / seconds:.1f}",
            f"{equal:.1%}", f"{formed:.1%}", f"{side.peak_bytes / 2**20:.0f}", f"{weights:.0%}",
        )  # fmt: skip
    console = Console()
    console.print(table)
    both = " and ".join(f"{each.judged.seconds:.1f}" for each in ours)
    console.print(
        f"ours: {both} s; {setup.threads} threads on {os.cpu_count()} cores, "
        f"torch {version('torch')}; {seeds.weight_bytes / 1e6:.0f} MB of weights, "
        f"memory at {bandwidth / 1e9:.1f} GB/s",
        highlight=False,
    )


def labels_of(judged: Judged) -> list[str | None]:
    """Return the label of each answer, None where it is malformed."""
    return [parse_final(text)[0] for text in judged.texts]


def _setup() -> Setup:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clips", type=int, default=24)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--adapter", type=Path, help="trained on SmolLM2-135M; by default our own")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as cores are free")
    asked = parser.parse_args()
    home = cache_dir() / "benchmarks"
    of_data = strict_json.digest([data_digest(load_scenarios("data/demo")), _OVERRIDES])[:12]
    overrides = {**_OVERRIDES, "training": {"runs_dir": str(home)}}
    run = prepare_run("cpu", overrides, default_run_id=f"eval-throughput-{of_data}")
    adapter = asked.adapter or run.adapter
    return Setup(run.path, adapter, asked.clips, asked.new_tokens, asked.threads or free_cores())


if __name__ == "__main__":
    logging.disable(logging.INFO)
    wait_passively()
    main(_setup())
