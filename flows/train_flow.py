"""Flow `subtext`: prepare, train, judge held-out clips, register the model, publish.

Deployed as `subtext/train`, `subtext/train-cpu` and `subtext/train-demo` (prefect.yaml). Without a
server: `python -m flows.train_flow --profile cpu --set grpo.max_steps=3`.
"""

from __future__ import annotations

from prefect import flow

from subtext.config import Overrides
from subtext.profiles import Profile
from tasks.data import prepare
from tasks.evaluation import assess, judge, judge_champion
from tasks.publishing import require_all, upload_missing, write_card
from tasks.tracking import finish, log_results, pass_gate, register, tracked
from tasks.training import train


@flow(name="subtext")
def train_flow(profile: Profile = Profile.t4, overrides: Overrides = Overrides()) -> str:  # noqa: B008
    """Train a judge of sarcasm from a profile, with some knobs turned; return the run directory."""
    run = prepare(profile, overrides)
    with tracked(run):
        train(run)
        judge(run)
        judge_champion(run)
        assess(run)
        write_card(run)
        log_results(run)
        register(run)
        pass_gate(run)
        uploads = upload_missing(run)
        finish(run)
        require_all(run, uploads)
    return run


if __name__ == "__main__":
    from flows.command_line import train_main

    raise SystemExit(train_main(train_flow))
