"""Hugging Face Jobs against the local Hub: real commands, real ends, and a log that breaks."""

import json
import os
import shlex
import subprocess
import sys
import threading
import time

import pytest
from support.finished_run import SECRET, finished_run
from support.gateway import Gateway

from subtext import strict_json
from subtext.errors import ConfigError, DataError, MachineError, PublishError
from subtext.hf_jobs import archive, jobs
from subtext.hf_jobs.bring_back import bring_back, check_free
from subtext.hf_jobs.checkout import code_of
from subtext.hf_jobs.config import JobConfig
from subtext.hf_jobs.plan import PlannedJob, plan_job
from subtext.profiles import resolve
from subtext.run_dir import RunDir, load_config

USER = "local"

pytestmark = pytest.mark.slow


def planned(script: str, run_id: str, **changed) -> PlannedJob:
    values = {
        "run_id": run_id, "namespace": USER, "archive_repo": f"{USER}/runs", "image": "python:3.11",
        "command": ("bash", "-c", script), "env": {}, "secrets": ("HF_TOKEN",),
        "flavor": "t4-small", "timeout_s": 60, "commit": "",
    }  # fmt: skip
    return PlannedJob(**{**values, **changed})


def start(plan: PlannedJob, hub, **secrets: str) -> str:
    return jobs.submit(plan, {"HF_TOKEN": hub.token, **secrets}, hub.token)


def watch(plan: PlannedJob, hub, job_id: str, **secrets: str):
    said: list[str] = []
    given = {"HF_TOKEN": hub.token, **secrets}
    return jobs.follow(plan, job_id, hub.token, said.append, secrets=given), said


def wait_for(is_true, what: str) -> None:
    deadline = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < deadline, f"waited 30 s for {what}"
        time.sleep(0.05)


@pytest.fixture
def gateway(hub, monkeypatch):
    between = Gateway(hub.url)
    monkeypatch.setenv("HF_ENDPOINT", between.url)
    yield between
    between.down()


@pytest.mark.parametrize(
    ("script", "timeout_s", "stage", "message"),
    [
        pytest.param("echo done", 60, "COMPLETED", "", id="success"),
        pytest.param("echo done; exit 3", 60, "ERROR", "exit code: 3", id="exit-code"),
        pytest.param("echo done; sleep 60", 1, "ERROR", "timeout", id="timeout"),
        pytest.param("echo done; kill -9 $$", 60, "ERROR", "-9", id="killed"),
    ],
)
def test_true_end(hub, script, timeout_s, stage, message):
    plan = planned(script, f"end-{stage}-{timeout_s}-{len(script)}", timeout_s=timeout_s)
    ended, said = watch(plan, hub, start(plan, hub))
    assert (ended.stage, said, ended.last_lines) == (stage, ["done"], ("done",))
    assert message in ended.message


def test_cancel_ends_the_whole_process_group(hub, tmp_path):
    alive = tmp_path / "alive"
    plan = planned(f"(while :; do touch {alive}; sleep 0.1; done) & echo up; wait", "cancelled")
    job_id = start(plan, hub)
    wait_for(alive.exists, "the job")
    assert jobs.cancel(plan, hub.token) == [job_id]
    ended, said = watch(plan, hub, job_id)
    assert (ended.stage, said) == ("CANCELED", ["up"])
    alive.unlink()
    time.sleep(0.5)
    assert not alive.exists()
    assert jobs.cancel(plan, hub.token) == [], "nothing is left to cancel"


def test_a_second_start_finds_the_job_of_the_first(hub):
    plan = planned("echo once; sleep 2", "found-again")
    job_id = start(plan, hub)
    assert start(plan, hub) == job_id, "while it runs"
    watch(plan, hub, job_id)
    assert start(plan, hub) == job_id, "and when it ended well"
    assert len(hub.requests("run_job")) == 1


def test_a_lost_answer_starts_no_second_job(hub):
    plan = planned("sleep 5", "lost-answer")
    hub.fault("run_job", drop="after")
    with pytest.raises(jobs.JobError) as lost:
        start(plan, hub)
    assert lost.value.retryable
    start(plan, hub)
    assert len(hub.requests("run_job")) == 1
    assert len(jobs.cancel(plan, hub.token)) == 1


def test_a_job_that_failed_is_started_anew(hub):
    plan = planned("exit 1", "anew")
    first = start(plan, hub)
    watch(plan, hub, first)
    assert start(plan, hub) != first


def test_another_job_at_work_on_the_run_is_in_the_way(hub):
    at_work = planned("sleep 30", "contested")
    job_id = start(at_work, hub)
    with pytest.raises(jobs.JobError, match=f"hf jobs cancel {job_id}"):
        start(planned("sleep 31", "contested"), hub)
    assert jobs.cancel(planned("sleep 31", "contested"), hub.token) == [], "it is not ours to end"
    jobs.cancel(at_work, hub.token)


def test_cut_stream_loses_and_doubles_nothing(hub, gateway):
    plan = planned("for i in $(seq 40); do echo line $i; sleep 0.05; done", "cut")
    job_id = start(plan, hub)
    gateway.cut_path, gateway.cut_after, gateway.n_cuts = b"/logs", 900, 2
    ended, said = watch(plan, hub, job_id)
    assert gateway.n_cut == 2
    assert said == [f"line {i}" for i in range(1, 41)]
    assert ended.stage == "COMPLETED"


def test_lines_after_the_cut_of_an_ended_job_are_fetched(hub, gateway):
    plan = planned("for i in $(seq 40); do echo line $i; done", "cut-at-the-end")
    job_id = start(plan, hub)
    watch(plan, hub, job_id)
    gateway.cut_path, gateway.cut_after, gateway.n_cuts = b"/logs", 900, 1
    ended, said = watch(plan, hub, job_id)
    assert gateway.n_cut == 1
    assert said == [f"line {i}" for i in range(1, 41)]
    assert ended.last_lines[-1] == "line 40"


def test_hub_away_while_the_job_runs(hub, gateway):
    plan = planned("for i in $(seq 30); do echo line $i; sleep 0.2; done", "away")
    job_id = start(plan, hub)
    timers = [threading.Timer(1.0, gateway.down), threading.Timer(4.0, gateway.up)]
    for timer in timers:
        timer.start()
    ended, said = watch(plan, hub, job_id)
    assert [line for line in said if not line.startswith("[no answer")] == [
        f"line {i}" for i in range(1, 31)
    ]
    assert len(said) == 31, "that the Hub was away is said once"
    assert ended.stage == "COMPLETED"


def test_patience_counts_from_the_first_failure_not_from_the_last_line(hub, gateway):
    plan = planned("echo a; sleep 5; echo b", "silent")
    job_id = start(plan, hub)
    timers = [threading.Timer(3.0, gateway.down), threading.Timer(3.5, gateway.up)]
    for timer in timers:
        timer.start()
    said: list[str] = []
    ended = jobs.follow(plan, job_id, hub.token, said.append, secrets={}, patience_s=2.5)
    assert ended.stage == "COMPLETED"
    assert [line for line in said if not line.startswith("[no answer")] == ["a", "b"]
    assert len(said) == 3


def test_hub_away_for_too_long(hub, gateway):
    plan = planned("sleep 20", "gone")
    job_id = start(plan, hub)
    gateway.down()
    with pytest.raises(jobs.JobError) as gone:
        jobs.follow(plan, job_id, hub.token, lambda _: None, secrets={}, patience_s=2)
    assert gone.value.retryable
    with pytest.raises(jobs.JobError, match="may still run: `hf jobs ps"):
        jobs.cancel(plan, hub.token, seconds=3)
    gateway.up()
    assert jobs.cancel(plan, hub.token) == [job_id]


def test_secrets_reach_the_job_and_nothing_else(hub):
    plan = planned(
        'echo "token $HF_TOKEN key $WANDB_KEY"; test ${#HF_TOKEN} = 17 && test ${#WANDB_KEY} = 15',
        "secret",
        secrets=("HF_TOKEN", "WANDB_KEY"),
    )
    job_id = start(plan, hub, WANDB_KEY="k3y-0f-the-team")
    ended, said = watch(plan, hub, job_id, WANDB_KEY="k3y-0f-the-team")
    assert ended.stage == "COMPLETED", "the job saw the values"
    assert said == ["token *** key ***"]
    shown = json.dumps(hub.call("GET", f"/api/jobs/{USER}/{job_id}", token=hub.token))
    for text in (shown, plan.model_dump_json(), str(ended)):
        assert hub.token not in text
        assert "k3y-0f-the-team" not in text
    assert '"WANDB_KEY": ""' in shown


def test_log_is_bounded_and_plain(hub, monkeypatch):
    monkeypatch.setattr(jobs, "_MAX_LINES", 3)
    script = r"printf '\033[31mred\033[0m\n10%%\r20%%\n'; head -c 9000 /dev/zero | tr '\0' x; echo"
    plan = planned(f"{script}; echo fourth; echo fifth", "bounded")
    ended, said = watch(plan, hub, start(plan, hub))
    assert said[:2] == ["red", "20%"]
    assert said[2] == "x" * 2_000 + "… (9,000 characters)"
    assert said[3:] == ["[more than 3 lines: the rest is in the job's own log]"]
    assert ended.last_lines[-1] == "fifth", "the last lines are known all the same"


@pytest.mark.parametrize(
    ("status", "named"),
    [
        pytest.param(402, "credits", id="not-paid"),
        pytest.param(403, "may not run jobs", id="no-right"),
        pytest.param(401, "HF_TOKEN is wrong or expired", id="bad-token"),
    ],
)
def test_refusals_say_what_to_do(hub, status, named):
    hub.fault("run_job", status=status)
    with pytest.raises(jobs.JobError, match=named) as refused:
        start(planned("true", f"refused-{status}"), hub)
    assert not refused.value.retryable


def test_a_read_token_may_not_start_jobs(hub):
    with pytest.raises(jobs.JobError, match="may not run jobs"):
        jobs.submit(planned("true", "read"), {}, hub.read_token)


def test_price(hub):
    assert jobs.price_per_hour("t4-small", hub.token) == pytest.approx(0.4, rel=1e-3)
    with pytest.raises(MachineError, match=r"flavor = 't5-huge'.*Choose one of .*t4-small"):
        jobs.price_per_hour("t5-huge", hub.token)


def git(folder, *arguments: str) -> str:
    settings = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(
        ["git", *settings, "-C", str(folder), *arguments],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "a.py").write_text("one")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    return folder


def test_code_is_the_clean_commit_of_the_checkout(checkout, tmp_path):
    git(tmp_path, "clone", "--quiet", "--bare", str(checkout), "upstream.git")
    upstream = f"file://{tmp_path}/upstream.git"
    git(checkout, "remote", "add", "origin", upstream)
    head = git(checkout, "rev-parse", "HEAD")
    with pytest.raises(ConfigError, match=r"is not in file:.*Push it"):
        code_of(JobConfig(), checkout)
    git(checkout, "fetch", "--quiet", "origin")
    assert code_of(JobConfig(), checkout) == (upstream, head)
    other = JobConfig(repository="https://example.org/other.git", commit="a" * 40)
    assert code_of(other, checkout) == ("https://example.org/other.git", "a" * 40)
    assert code_of(JobConfig(code_path="/app"), checkout) == ("", "")


def test_code_that_no_clone_could_have_is_refused(checkout, tmp_path):
    with pytest.raises(ConfigError, match=r"job\.repository.*no https:// address"):
        code_of(JobConfig(), checkout)
    git(checkout, "remote", "add", "origin", f"https://me:{SECRET}@example.org/x.git")
    with pytest.raises(ConfigError) as with_password:
        code_of(JobConfig(), checkout)
    assert SECRET not in str(with_password.value)
    (checkout / "a.py").write_text("two")
    with pytest.raises(ConfigError, match=r"1 files differ from it, for example a\.py"):
        code_of(JobConfig(repository="https://example.org/x.git"), checkout)
    with pytest.raises(ConfigError, match="no git checkout"):
        code_of(JobConfig(repository="https://example.org/x.git"), tmp_path)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        pytest.param({"env": {"HF_TOKEN": "x"}}, "name it in secrets", id="token-by-name"),
        pytest.param({"env": {"A": SECRET}}, "env.A", id="token-by-value"),
        pytest.param({"repository": f"https://me:{SECRET}@x.org/y"}, "repository", id="password"),
        pytest.param({"repository": "git@github.com:a/b"}, "https://", id="ssh"),
        pytest.param({"code_path": "/app", "commit": "a" * 40}, "code_path", id="two-sources"),
        pytest.param({"commit": "main"}, "commit", id="branch"),
        pytest.param({"flavour": "t4-small"}, "flavour", id="typo"),
        pytest.param({"archive_repo": "../up"}, "archive_repo", id="no-repository"),
    ],
)
def test_bad_jobs_are_refused_without_repeating_a_token(values, named):
    with pytest.raises(ValueError, match=named) as refused:
        JobConfig(**values)
    assert SECRET not in str(refused.value)


def test_the_command_says_the_whole_run():
    job = JobConfig(repository="https://example.org/x.git", commit="a" * 40, secrets=("KEY",))
    knobs = {
        "grpo": {"max_steps": 3}, "training": {"runs_dir": "/srv/mine"},
        "publish": {"adapter_repo": "me/judge"}, "lora": {"target_modules": ["a b", "it's"]},
    }  # fmt: skip
    plan = plan_job("t4", knobs, job, "run-1", USER)
    script = plan.command[-1]
    assert f"git checkout --quiet --detach {'a' * 40}" in script
    assert "flows.data_flow --source mustard" in script, "the profile names no folder of clips"
    words = shlex.split(script.splitlines()[-1])
    given = {words[i + 1] for i, word in enumerate(words) if word == "--set"}
    assert given == {
        "grpo.max_steps=3", "training.run_id=run-1", "training.runs_dir=runs",
        "publish.adapter_repo=", "publish.results_repo=", 'lora.target_modules=["a b", "it\'s"]',
    }  # fmt: skip
    assert plan.secrets == ("HF_TOKEN", "KEY")
    assert plan.archive_repo == f"{USER}/subtext-runs"
    assert plan.labels != plan_job("t4", {}, job, "run-1", USER).labels
    demo = plan_job("demo", {}, job, "run-1", USER).command[-1]
    assert "data_flow" not in demo, "the demo corpus is in the checkout"


@pytest.fixture
def archived(hub, tmp_path, request):
    """A run of this test and the dataset it was pushed to."""
    run = finished_run(
        tmp_path / "there" / f"run-{abs(hash(request.node.name))}", request.node.name
    )
    strict_json.write(run.tracking, {"run_id": "of the job", "uri": "sqlite:///mlflow.db"})
    (run.path / "checkpoint-5").mkdir()
    (run.path / "checkpoint-5" / "trainer_state.json").write_text("{}")
    (run.path / "outside.json").symlink_to("/etc/hostname")
    return run, f"{USER}/archive"


def test_run_directory_comes_back(hub, archived, tmp_path):
    run, repo = archived
    revision = archive.push(run, repo, hub.token)
    assert archive.push(run, repo, hub.token) == revision, "without a change, no commit"
    back = RunDir(tmp_path / "here" / run.run_id)
    assert archive.pull(back, repo, hub.token) == revision
    there = {p.relative_to(run.path): p for p in run.path.rglob("*") if p.is_file()}
    here = {p.relative_to(back.path): p for p in back.path.rglob("*") if p.is_file()}
    left = {str(path) for path in there.keys() - here.keys()}
    assert left == {
        "adapter/training_args.bin", "adapter/checkpoint-5/optimizer.pt", "outside.json",
        "checkpoint-5/trainer_state.json", "tracking.json",
    }  # fmt: skip
    assert all(path.read_bytes() == there[name].read_bytes() for name, path in here.items())
    assert hub.call("GET", f"/api/datasets/{repo}", token=hub.token)["private"]
    assert [path.name for path in back.path.parent.iterdir()] == [run.run_id], (
        "nothing is left over"
    )


def test_brought_back_it_belongs_here(hub, archived, tmp_path):
    run, repo = archived
    archive.push(run, repo, hub.token)
    knobs = {"publish": {"adapter_repo": "me/judge"}, "data": {"root": str(tmp_path)}}
    ours = resolve("demo", knobs)
    back = RunDir(tmp_path / "here" / run.run_id)
    bring_back(back, ours, repo, hub.token)
    config = load_config(back)
    assert config.publish.adapter_repo == "me/judge"
    assert config.data.root == str(tmp_path)
    check_free(back, ours)
    with pytest.raises(ConfigError, match="another configuration"):
        check_free(back, resolve("demo", {"grpo": {"max_steps": 3}}))


@pytest.mark.parametrize("where", ["completions/a.jsonl", "adapter/chat_template.jinja"])
def test_a_secret_blocks_the_push_and_names_the_file(hub, archived, where):
    run, repo = archived
    (run.path / where).parent.mkdir(exist_ok=True)
    (run.path / where).write_text("the team's k3y-0f-the-team is here")
    hub.clear()
    with pytest.raises(PublishError, match=where) as refused:
        archive.push(run, repo, hub.token, ["k3y-0f-the-team"])
    assert not refused.value.retryable
    assert not hub.requests("commit")


def publish_manifest(hub, repo: str, run_id: str, files: dict) -> None:
    from huggingface_hub import HfApi

    manifest = {"schema": "subtext-archive/1", "run_id": run_id, "files": files}
    api = HfApi(endpoint=hub.url, token=hub.token)
    api.create_repo(repo, repo_type="dataset", exist_ok=True)
    api.upload_file(
        path_or_fileobj=strict_json.dumps(manifest).encode(), repo_id=repo, repo_type="dataset",
        path_in_repo=f"{run_id}/{archive.MANIFEST}",
    )  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "../escaped.json", "/etc/escaped.json", "a/../../escaped.json", "a\\..\\escaped.json",
        ".hidden/escaped.json", "a//escaped.json", "adapter/training_args.bin", "",
    ],
)  # fmt: skip
def test_names_cannot_leave_the_run_directory(hub, tmp_path, name):
    repo = f"{USER}/hostile"
    publish_manifest(hub, repo, "run-1", {name: {"sha256": "0" * 64, "size": 1}})
    with pytest.raises(DataError, match="Run directory refused"):
        archive.pull(RunDir(tmp_path / "runs" / "run-1"), repo, hub.token)
    assert not list(tmp_path.rglob("escaped*"))
    assert not (tmp_path / "runs" / "run-1").exists()


def test_a_link_in_the_run_directory_leads_nowhere_else(hub, archived, tmp_path):
    run, repo = archived
    archive.push(run, repo, hub.token)
    back = RunDir(tmp_path / "here" / run.run_id).create()
    (tmp_path / "elsewhere").mkdir()
    (back.path / "adapter").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="behind a link"):
        archive.pull(back, repo, hub.token)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_other_bytes_than_the_manifest_says_are_refused(hub, archived, tmp_path):
    run, repo = archived
    archive.push(run, repo, hub.token)
    listed = json.loads(hub.files(repo, "datasets")[f"{run.run_id}/{archive.MANIFEST}"])["files"]
    listed["report.html"]["sha256"] = "0" * 64
    publish_manifest(hub, repo, run.run_id, listed)
    back = RunDir(tmp_path / "here" / run.run_id)
    with pytest.raises(PublishError, match=r"report\.html at commit"):
        archive.pull(back, repo, hub.token)
    assert not back.path.exists()


def test_nothing_archived(hub, tmp_path):
    for repo in (f"{USER}/never-made", f"{USER}/hostile"):
        with pytest.raises(archive.NothingArchivedError, match="there is none"):
            archive.pull(RunDir(tmp_path / "run-9"), repo, hub.token)


def test_keep_pushes_while_it_grows_and_what_a_failure_left(hub, tmp_path):
    run, repo = RunDir(tmp_path / "grows"), f"{USER}/growing"
    script = (
        f"mkdir {run.path}; echo 1 > {run.config}; sleep 2.5; echo 2 > {run.training}; "
        f"echo '{{}}' > {run.path}/metric_log.jsonl; exit 3"
    )
    code = archive.keep(run, repo, hub.token, [], ["bash", "-c", script], every_s=1)
    assert code == 3, "the job ends as its command did"
    files = {name for name in hub.files(repo, "datasets") if name.startswith("grows/")}
    assert files == {
        f"grows/{name}"
        for name in ("archive.json", "config.json", "metric_log.jsonl", "training.json")
    }
    assert len(hub.commits(repo, "datasets")) == 2, "one in mid-run, one at the end, none between"


def test_keep_survives_files_that_vanish_while_it_reads(hub, tmp_path, monkeypatch):
    run, repo, pushes = RunDir(tmp_path / "moves"), f"{USER}/moving", []

    def push(*arguments):
        pushes.append(arguments)
        if len(pushes) == 1:
            raise FileNotFoundError(2, "No such file or directory", str(run.adapter))
        return archive_push(*arguments)

    archive_push = archive.push
    monkeypatch.setattr(archive, "push", push)
    script = f"mkdir {run.path}; echo 1 > {run.config}; sleep 2.5"
    assert archive.keep(run, repo, hub.token, [], ["bash", "-c", script], every_s=1) == 0
    assert "moves/config.json" in hub.files(repo, "datasets")


def test_keep_fails_where_the_last_push_is_refused(hub, tmp_path):
    run = RunDir(tmp_path / "refused")
    script = f"mkdir {run.path}; echo '\"{SECRET}\"' > {run.config}"
    code = archive.keep(run, f"{USER}/kept", hub.token, [], ["bash", "-c", script], every_s=60)
    assert code == 1


def training_record(finished: bool) -> dict:
    figures = {"reward": 0.5, "accuracy": 0.5}
    return {
        "finished": finished, "steps": 3, "train_runtime_s": 1.0, "resumed_at": [],
        "stopped": None, "first": figures, "final": figures,
    }  # fmt: skip


def test_a_new_job_goes_on_from_a_finished_training_only(hub, archived, tmp_path):
    run, repo = archived
    again = RunDir(tmp_path / "again" / run.run_id)
    strict_json.write(run.training, training_record(finished=False))
    archive.push(run, repo, hub.token)
    assert not archive.restore_finished(again, repo, hub.token)
    assert not again.path.exists()
    strict_json.write(run.training, training_record(finished=True))
    archive.push(run, repo, hub.token)
    assert archive.restore_finished(again, repo, hub.token)
    assert (again.adapter / "adapter_model.safetensors").exists()
    assert not archive.restore_finished(again, f"{USER}/never-made", hub.token)


def test_command_line_pushes_and_pulls(hub, archived, tmp_path, monkeypatch, capsys):
    run, _ = archived
    monkeypatch.setenv("HF_TOKEN", hub.token)
    options = ["--run", run.run_id, "--repo", f"{USER}/by-hand"]
    monkeypatch.setenv("SUBTEXT_HOME", str(run.path.parent))
    assert archive.main(["push", *options, "--runs", "."]) == 0
    monkeypatch.setenv("SUBTEXT_HOME", str(tmp_path / "here"))
    assert archive.main(["pull", *options]) == 0
    back = RunDir(tmp_path / "here" / "runs" / run.run_id)
    assert back.report.read_bytes() == run.report.read_bytes()
    assert archive.main(["pull", "--run", "other", "--repo", f"{USER}/by-hand"]) == 2
    assert "there is none" in capsys.readouterr().err
    monkeypatch.delenv("HF_TOKEN")
    assert archive.main(["pull", *options]) == 2
    assert "HF_TOKEN" in capsys.readouterr().err


def test_command_line_keeps_what_a_command_makes(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", hub.token)
    monkeypatch.setenv("SUBTEXT_HOME", str(tmp_path))
    script = f"mkdir -p {tmp_path}/runs/made && echo 1 > {tmp_path}/runs/made/config.json; exit 4"
    options = ["--run", "made", "--repo", f"{USER}/kept-by-hand", "--every", "60"]
    assert archive.main(["keep", *options, "--", "bash", "-c", script]) == 4
    assert "made/config.json" in hub.files(f"{USER}/kept-by-hand", "datasets")


def test_sigterm_reaches_the_command_and_what_it_left_is_pushed(hub, tmp_path):
    folder = tmp_path / "runs" / "stopped"
    script = (
        f"mkdir -p {folder}; echo 1 > {folder}/config.json; "
        f"trap 'echo 2 > {folder}/training.json; exit 130' TERM; touch {tmp_path}/up; "
        "while :; do sleep 0.1; done"
    )
    process = subprocess.Popen(
        [
            sys.executable, "-m", "subtext.hf_jobs.archive", "keep", "--run", "stopped",
            "--repo", f"{USER}/stopped", "--", "bash", "-c", script,
        ],
        env={**os.environ, **hub.environment, "SUBTEXT_HOME": str(tmp_path)},
    )  # fmt: skip
    wait_for((tmp_path / "up").exists, "the command")
    process.terminate()
    assert process.wait(60) == 130
    assert "stopped/training.json" in hub.files(f"{USER}/stopped", "datasets")
