"""The run directory: the single record of a run. This module alone knows the names inside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from subtext import strict_json
from subtext.config import RunConfig
from subtext.run_records import check_shape, shape_error, unreadable


@dataclass(frozen=True)
class RunDir:
    """Paths of one run. `path.name` is the run id, which is also the tag of published results."""

    path: Path

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def config(self) -> Path:
        """The resolved `RunConfig`, and the profile it came from."""
        return self.path / "config.json"

    @property
    def split(self) -> Path:
        """Training and held-out ids, with the digest of the data they were drawn from."""
        return self.path / "split.json"

    @property
    def prosody_reference(self) -> Path:
        """Thresholds and speakers' pitch, fitted on the training clips."""
        return self.path / "prosody_reference.json"

    @property
    def leak_report(self) -> Path:
        """What crosses the split, and what trivial predictors score on the held-out clips."""
        return self.path / "leak_report.json"

    @property
    def training(self) -> Path:
        """How far training is: whether it finished, what stopped it, where it was resumed."""
        return self.path / "training.json"

    @property
    def alarms(self) -> Path:
        """What training raised alarm about while it ran, each with the step it was first seen."""
        return self.path / "alarms.json"

    @property
    def metric_log(self) -> Path:
        """Every metric of training, one JSON line a step, written before MLflow is told."""
        return self.path / "metric_log.jsonl"

    @property
    def lock(self) -> Path:
        """Held by the process that works on the run."""
        return self.path / ".lock"

    @property
    def lock_holder(self) -> Path:
        """Which process has the lock. A file of its own: opening a lock to write may cut it."""
        return self.path / ".lock.json"

    @property
    def checkpoints(self) -> dict[int, Path]:
        """TRL's own checkpoints by step, oldest first; for resuming, never published or tracked."""
        found = {
            int(step): folder
            for folder in self.path.glob("checkpoint-*")
            if (step := folder.name.removeprefix("checkpoint-")).isdecimal()
        }
        return dict(sorted(found.items()))

    @property
    def warm_adapter(self) -> Path:
        """The adapter as the warm start left it; absent without a warm start."""
        return self.path / "warm_adapter"

    @property
    def adapter(self) -> Path:
        """The trained adapter with its tokenizer: what is published and registered."""
        return self.path / "adapter"

    @property
    def completions(self) -> Path:
        """One parquet file a logged step: prompts, completions, rewards."""
        return self.path / "completions"

    @property
    def trainer_state(self) -> Path:
        return self.path / "trainer_state.json"

    @property
    def log_history(self) -> Path:
        return self.path / "log_history.json"

    @property
    def judgements(self) -> Path:
        """Finished held-out records, one JSON line each, one file a pass."""
        return self.path / "judgements"

    def records_of(self, name: str) -> Path:
        """The finished records of the pass `name`."""
        return self.judgements / f"{name}.jsonl"

    @property
    def answers(self) -> Path:
        """Every answer given so far in this folder of runs, which its runs share."""
        return self.path.parent / ".answers.sqlite"

    @property
    def held_out_eval(self) -> Path:
        """Every record of every pass, the trained policy's at the top as in the seed."""
        return self.path / "held_out_eval.json"

    @property
    def judged_model(self) -> Path:
        """Which model was judged, in a run that trained none."""
        return self.path / "judged_model.json"

    @property
    def champion(self) -> Path:
        """Which registered champion judged the same clips, and which of them it was trained on."""
        return self.path / "champion.json"

    @property
    def metrics(self) -> Path:
        """The evaluation: figures, comparisons, warnings. Report, card and gate read nothing else
        for a number."""
        return self.path / "metrics.json"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def plots(self) -> Path:
        """The report's plots, one SVG each."""
        return self.path / "plots"

    @property
    def gate(self) -> Path:
        """Whether the version became the champion, and why."""
        return self.path / "gate.json"

    @property
    def model_card(self) -> Path:
        return self.path / "README.md"

    @property
    def tracking(self) -> Path:
        """Ids of the MLflow run and of the registered model version."""
        return self.path / "tracking.json"

    @property
    def published(self) -> Path:
        """What landed on the Hub: repository, path, sha256 and commit of each upload."""
        return self.path / "published.json"

    def create(self) -> RunDir:
        """Make the folder (and parents) and return self."""
        self.path.mkdir(parents=True, exist_ok=True)
        return self

    def read(self, path: Path, default: Any = None) -> Any:
        """Return the JSON at `path`, or `default` where there is no such file.

        Raises DataError for a file that can't be read or lacks what others read from it.
        """
        try:
            value = strict_json.read(path)
        except (FileNotFoundError, NotADirectoryError):
            return default
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from error
        check_shape(path, value)
        return value

    def require(self, path: Path) -> Any:
        """Return the JSON at `path`. Raises DataError also where there is no such file."""
        missing = object()
        value = self.read(path, missing)
        if value is missing:
            raise unreadable(path, FileNotFoundError(2, "there is no such file"))
        return value


def load_config(run: RunDir) -> RunConfig:
    """Return the configuration that the run was prepared with.

    Raises DataError where config.json is missing, corrupt or not of this version's shape.
    """
    try:
        return _Recorded.model_validate(run.read(run.config)).config
    except ValidationError as error:
        raise shape_error(run.config, error) from None


class _Recorded(BaseModel):
    config: RunConfig
