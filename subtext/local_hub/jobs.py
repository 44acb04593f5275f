"""Hugging Face Jobs on this machine: the routes that the client calls, and jobs that really run.

A job's command runs as a process of this machine, without a container: its image is only noted. It
starts in a temporary folder, which is its HOME too, sees `python` of the environment that serves
this Hub and nothing else of its variables, and gets the job's own, its secrets, and the address of
this Hub. Timeout and cancel end its whole process group; so does the end of the Hub.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response
from starlette.types import Receive, Scope, Send

from subtext.local_hub.observe import USER, ObservedRoute, role_of
from subtext.local_hub.store import HubError

# What the Hub listed in 2026, as examples: prices in millionths of a dollar a minute.
_HARDWARE = {
    "cpu-basic": ("CPU Basic", "2 vCPU", "16 GB", None, 167),
    "t4-small": ("Nvidia T4 - small", "4 vCPU", "15 GB", ("T4", "16 GB"), 6_667),
    "a10g-small": ("Nvidia A10G - small", "4 vCPU", "15 GB", ("A10G", "24 GB"), 16_667),
    "a100-large": ("Nvidia A100 - large", "12 vCPU", "142 GB", ("A100", "80 GB"), 41_667),
}
_DEFAULT_TIMEOUT_S = 1_800
_GRACE_S = 10.0
_POLL_S = 0.05
_KEEP_ALIVE_S = 15.0
_MAX_LINES = 200_000


class Job:
    """One job: its process, its log so far, and how it stands. `log` only grows."""

    def __init__(self, namespace: str, spec: Mapping[str, Any], endpoint: str) -> None:
        self.id, self.namespace, self.spec = secrets.token_hex(12), namespace, spec
        self.log: list[dict[str, str]] = []
        self.created, self.finished = _now(), ""
        self.message = ""
        self._stage, self._stopped = "SCHEDULING", ""
        self._folder = Path(tempfile.mkdtemp(prefix="subtext-job-"))
        self._append(f"===== Job started at {self.created} =====")
        command = [*spec.get("command", []), *spec.get("arguments", [])]
        try:
            self._process = subprocess.Popen(
                command, cwd=self._folder, env=self._environment(endpoint),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise HubError(400, f"the command can't be started: {error}") from error
        self._stage = "RUNNING"
        timeout_s = spec.get("timeoutSeconds") or _DEFAULT_TIMEOUT_S
        self._timer = threading.Timer(timeout_s, self.stop, ("ERROR", "Job timeout"))
        self._timer.daemon = True
        self._timer.start()
        for work in (self._wait, self._read):
            threading.Thread(target=work, daemon=True).start()

    @property
    def stage(self) -> str:
        return self._stage

    @property
    def ended(self) -> bool:
        return self._stage not in ("SCHEDULING", "RUNNING")

    def stop(self, stage: str, message: str) -> None:
        """End the process group, and after some seconds by force, for a reason that it keeps."""
        if not self.ended and not self._stopped:
            self._stopped, self.message = stage, message
            self._signal(signal.SIGTERM)
            force = threading.Timer(_GRACE_S, self._signal, (signal.SIGKILL,))
            force.daemon = True
            force.start()

    def kill(self) -> None:
        """End the process group at once and wait for it."""
        self._stopped = self._stopped or "CANCELED"
        self._signal(signal.SIGKILL)
        self._process.wait()

    def shown(self) -> dict[str, Any]:
        """The job as the Hub shows it: of secrets, the names."""
        return {
            "id": self.id, "createdAt": self.created, "startedAt": self.created,
            "finishedAt": self.finished or None, "dockerImage": self.spec.get("dockerImage"),
            "spaceId": self.spec.get("spaceId"), "command": self.spec.get("command"),
            "arguments": self.spec.get("arguments"), "environment": self.spec.get("environment"),
            "secrets": dict.fromkeys(self.spec.get("secrets", {}), ""),
            "flavor": self.spec.get("flavor"), "labels": self.spec.get("labels"),
            "status": {"stage": self._stage, "message": self.message or None},
            "owner": {"id": "0" * 24, "name": self.namespace, "type": "user"},
        }  # fmt: skip

    def _environment(self, endpoint: str) -> dict[str, str]:
        here = str(self._folder)
        python = str(Path(sys.executable).parent)
        return {
            "PATH": os.pathsep.join([python, os.environ.get("PATH", os.defpath)]),
            "HOME": here, "TMPDIR": here, "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1",
            "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1", "JOB_ID": self.id,
            **{name: str(value) for name, value in self.spec.get("environment", {}).items()},
            **{name: str(value) for name, value in self.spec.get("secrets", {}).items()},
        }  # fmt: skip

    def _wait(self) -> None:
        self._process.wait()
        self._signal(signal.SIGKILL)  # what the command left behind, which may keep the log open

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._append(line.decode(errors="replace").rstrip("\n"))
        code = self._process.wait()
        self._timer.cancel()
        shutil.rmtree(self._folder, ignore_errors=True)
        self.finished = _now()
        if not self._stopped and code:
            self.message = f"Job failed with exit code: {code}. Reason: Error"
        self._stage = self._stopped or ("ERROR" if code else "COMPLETED")

    def _append(self, line: str) -> None:
        if len(self.log) < _MAX_LINES:
            self.log.append({"data": line, "timestamp": _now()})

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


class Jobs:
    """The jobs of this Hub, newest first. They end with it."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        atexit.register(self.close)

    def start(self, namespace: str, spec: Mapping[str, Any], endpoint: str) -> Job:
        job = Job(namespace, spec, endpoint)
        self._jobs.insert(0, job)
        return job

    def listed(self, namespace: str) -> list[Job]:
        return [job for job in self._jobs if job.namespace == namespace]

    def get(self, namespace: str, job_id: str) -> Job:
        for job in self.listed(namespace):
            if job.id == job_id:
                return job
        raise HubError(404, f"{namespace} has no job {job_id}")

    def close(self) -> None:
        """Kill every job that still runs."""
        for job in self._jobs:
            if not job.ended:
                job.kill()


class LogStream(Response):
    """The log as server-sent events, from its first line until the job has ended."""

    def __init__(self, job: Job) -> None:
        super().__init__(media_type="text/event-stream")
        self.job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        gone = asyncio.ensure_future(_disconnected(receive))
        n_sent, said_at = 0, time.monotonic()
        try:
            while not gone.done():
                ended = self.job.ended  # asked first: no line comes after it
                events = self.job.log[n_sent:]
                n_sent += len(events)
                body = "".join(_event(event) for event in events)
                if not body and time.monotonic() - said_at > _KEEP_ALIVE_S:
                    body = ": keep-alive\n\n"
                if body:
                    said_at = time.monotonic()
                    await send(_chunk(body, more=True))
                if ended:
                    await send(_chunk("", more=False))
                    return
                await asyncio.sleep(_POLL_S)
        finally:
            gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(event: Mapping[str, str]) -> str:
    return f"data: {json.dumps(event)}\n\n"


def _chunk(body: str, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body.encode(), "more_body": more}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


JobSpec = Annotated[dict[str, Any], Body()]

jobs = APIRouter(route_class=ObservedRoute)


def _known(request: Request) -> Jobs:
    known: Jobs = request.app.state.jobs
    return known


def _check_role(request: Request, *, write: bool) -> None:
    role = role_of(request)
    if role is None:
        raise HubError(401, "Invalid username or password.")
    if write and role != "write":
        raise HubError(403, "You don't have the rights to run jobs here: this token only reads.")


@jobs.get("/api/jobs/hardware")
async def list_jobs_hardware(request: Request) -> list[dict[str, Any]]:
    return [_hardware(name) for name in _HARDWARE]


def _hardware(name: str) -> dict[str, Any]:
    pretty_name, cpu, ram, accelerator, micro_usd = _HARDWARE[name]
    described = accelerator and {
        "type": "gpu", "model": accelerator[0], "quantity": "1", "vram": accelerator[1],
        "manufacturer": "Nvidia",
    }  # fmt: skip
    return {
        "name": name, "prettyName": pretty_name, "cpu": cpu, "ram": ram, "accelerator": described,
        "unitCostMicroUSD": micro_usd, "unitCostUSD": micro_usd / 1e6, "unitLabel": "minute",
    }  # fmt: skip


@jobs.get("/api/jobs/{namespace}")
async def list_jobs(
    request: Request,
    namespace: str,
    stage: Annotated[list[str] | None, Query()] = None,
    label: Annotated[list[str] | None, Query()] = None,
) -> list[dict[str, Any]]:
    _check_role(request, write=False)
    wanted = dict(item.split("=", 1) for item in label or () if "=" in item)
    return [
        job.shown()
        for job in _known(request).listed(namespace)
        if (not stage or job.stage in stage)
        and wanted.items() <= (job.spec.get("labels") or {}).items()
    ]


@jobs.post("/api/jobs/{namespace}")
async def run_job(request: Request, namespace: str, spec: JobSpec) -> dict[str, Any]:
    _check_role(request, write=True)
    if namespace != USER:
        raise HubError(403, f"You don't have the rights to run jobs in {namespace}.")
    if spec.get("flavor") not in _HARDWARE:
        raise HubError(400, f"flavor {spec.get('flavor')!r}: choose of {', '.join(_HARDWARE)}")
    host, port = request.scope["server"]
    return _known(request).start(namespace, spec, f"http://{host}:{port}").shown()


@jobs.get("/api/jobs/{namespace}/{job_id}")
async def inspect_job(request: Request, namespace: str, job_id: str) -> dict[str, Any]:
    _check_role(request, write=False)
    return _known(request).get(namespace, job_id).shown()


@jobs.get("/api/jobs/{namespace}/{job_id}/logs")
async def job_logs(request: Request, namespace: str, job_id: str) -> Response:
    _check_role(request, write=False)
    return LogStream(_known(request).get(namespace, job_id))


@jobs.post("/api/jobs/{namespace}/{job_id}/cancel")
async def cancel_job(request: Request, namespace: str, job_id: str) -> dict[str, Any]:
    _check_role(request, write=True)
    job = _known(request).get(namespace, job_id)
    job.stop("CANCELED", "")
    return job.shown()
