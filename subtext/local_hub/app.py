"""The local Hub's HTTP routes: the part of the Hugging Face Hub's protocol that publishing uses.

Every route under `ObservedRoute` is recorded, checked for its token and exposed to the faults that
are switched on; a route's function name is its verb. As on the Hub, anyone may read a public
repository, a wrong token is refused even for reading, and writing needs a token that may write.
"""

from __future__ import annotations

import base64
import secrets
from pathlib import Path
from typing import Annotated, Any

import yaml
from fastapi import APIRouter, Body, Depends, FastAPI, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse

from subtext.local_hub import pages
from subtext.local_hub.faults import Fault, Faults
from subtext.local_hub.jobs import Jobs, jobs
from subtext.local_hub.observe import USER, ObservedRoute, Role, json_lines, refusal, role_of
from subtext.local_hub.store import KINDS, HubError, Repo, Store, lfs_pointer, safe_path

_LFS_SUFFIXES = (".safetensors", ".bin", ".gguf", ".onnx", ".parquet", ".pt", ".wav", ".npz")
_LFS_MIN_BYTES = 10 * 2**20
_TEXT_SUFFIXES = (".json", ".md", ".txt", ".jinja", ".py", ".toml", ".yaml", ".html", ".jsonl")


JsonBody = Annotated[dict[str, Any], Body()]

hub = APIRouter(route_class=ObservedRoute)
control = APIRouter()


def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


def _named(namespace: str, name: str, kind: str = "models") -> Repo:
    return Repo(kind, namespace, name)


def _readable(request: Request, namespace: str, name: str, kind: str = "models") -> Repo:
    repo = Repo(kind, namespace, name)
    if _store(request).about(repo)["private"] and role_of(request) is None:
        raise HubError(404, f"Repository {repo.id} not found", "RepoNotFound")
    return repo


NamedRepo = Annotated[Repo, Depends(_named)]
ReadableRepo = Annotated[Repo, Depends(_readable)]


def _url(request: Request, repo: Repo) -> str:
    return f"{request.base_url}{repo.url_path}"


@hub.get("/api/agent-harnesses")
async def agent_harnesses(request: Request) -> dict[str, Any]:
    return {"harnesses": {}}


@hub.get("/api/whoami-v2")
async def whoami(request: Request) -> dict[str, Any]:
    access = {"displayName": "local", "role": role_of(request)}
    return {
        "type": "user", "name": USER, "fullname": "Local Hub",
        "auth": {"type": "access_token", "accessToken": access},
    }  # fmt: skip


@hub.post("/api/repos/create")
async def create(request: Request, body: JsonBody) -> dict[str, Any]:
    kind = {one: many for many, one in KINDS.items()}.get(body.get("type") or "model", "")
    repo = Repo(kind, body.get("organization") or USER, str(body["name"]))
    if kind == "spaces" and not body.get("sdk"):
        raise HubError(400, "sdk is required for a Space")
    private = bool(body.get("private") or body.get("visibility") == "private")
    try:
        _store(request).create(repo, private=private, sdk=body.get("sdk"))
    except HubError as error:
        raise HubError(error.status, error.message, url=_url(request, repo)) from error
    return {"url": _url(request, repo), "id": repo.id, "name": repo.id}


@hub.post("/api/validate-yaml")
async def validate_yaml(request: Request, body: JsonBody) -> Response:
    errors, warnings = front_matter_problems(str(body.get("content", "")))
    answer = {"errors": [{"message": text} for text in errors]}
    answer["warnings"] = [{"message": text} for text in warnings]
    return JSONResponse(answer, 400 if errors else 200)


def front_matter_problems(content: str) -> tuple[list[str], list[str]]:
    """Errors and warnings of a README's YAML header, the Hub's main rules."""
    _, opening, rest = content.partition("---\n")
    text, closing, _ = rest.partition("\n---")
    if not opening or not closing or not content.startswith("---\n"):
        return [], ["empty or missing yaml metadata in repo card"]
    try:
        metadata = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return [f"invalid YAML: {error}"], []
    if not isinstance(metadata, dict):
        return ["the YAML metadata is no mapping"], []
    base = metadata.get("base_model", [])
    names = base if isinstance(base, list) else [base]
    return [
        f'"base_model" with value "{name}" is not valid. Use a model id from the Hub.'
        for name in names
        if not isinstance(name, str) or name.count("/") > 1 or name[:1] in "/.~" or "\\" in name
    ], []


@hub.get("/api/{kind}/{namespace}/{name}")
@hub.get("/api/{kind}/{namespace}/{name}/revision/{revision}")
async def info(request: Request, repo: ReadableRepo, revision: str = "main") -> dict[str, Any]:
    about, history = _store(request).about(repo), _store(request).history(repo, revision)
    return {
        "_id": history[-1]["id"][:24], "id": repo.id, "modelId": repo.id, "author": repo.namespace,
        "sha": history[0]["id"], "lastModified": history[0]["date"],
        "createdAt": history[-1]["date"], "private": about["private"], "sdk": about["sdk"],
        "gated": False, "disabled": False, "tags": [], "downloads": 0, "likes": 0,
        "siblings": [{"rfilename": path} for path in sorted(history[0]["files"])],
    }  # fmt: skip


@hub.get("/api/{kind}/{namespace}/{name}/commits/{revision}")
async def commits(request: Request, repo: ReadableRepo, revision: str) -> list[dict[str, Any]]:
    return [
        {
            "id": item["id"], "title": item["title"], "message": item["description"],
            "authors": [{"user": USER}], "date": item["date"],
        }
        for item in _store(request).history(repo, revision)
    ]  # fmt: skip


@hub.get("/api/{kind}/{namespace}/{name}/tree/{revision}")
@hub.get("/api/{kind}/{namespace}/{name}/tree/{revision}/{path:path}")
async def tree(
    request: Request, repo: ReadableRepo, revision: str, path: str = "", recursive: bool = False
) -> list[dict[str, Any]]:
    entries = _store(request).commit_at(repo, revision)["files"]
    prefix = f"{path}/" if path else ""
    inside = {name: entry for name, entry in entries.items() if name.startswith(prefix)}
    if path and not inside:
        raise HubError(404, f"{repo.id} has no folder {path!r}", "EntryNotFound")
    folders: set[str] = set()
    for file in inside:
        steps = file.removeprefix(prefix).split("/")[:-1]
        folders |= {prefix + "/".join(steps[: depth + 1]) for depth in range(len(steps))}
    return [
        {"type": "directory", "path": folder, "oid": "0" * 40, "size": 0}
        for folder in sorted(folders)
        if recursive or "/" not in folder.removeprefix(prefix)
    ] + [
        _tree_entry(file, entry)
        for file, entry in sorted(inside.items())
        if recursive or "/" not in file.removeprefix(prefix)
    ]


def _tree_entry(path: str, entry: dict[str, Any]) -> dict[str, Any]:
    size, sha256 = entry["size"], entry["sha256"]
    shown = {"type": "file", "path": path, "size": size, "oid": entry["oid"]}
    if entry["lfs"]:
        pointer_size = len(lfs_pointer(sha256, size))
        shown["lfs"] = {"oid": sha256, "size": size, "pointerSize": pointer_size}
    return shown


@hub.post("/api/{kind}/{namespace}/{name}/preupload/{revision}")
async def preupload(
    request: Request, repo: NamedRepo, revision: str, body: JsonBody
) -> dict[str, Any]:
    entries = _store(request).commit_at(repo, revision)["files"]
    files = []
    for item in body["files"]:
        path, size = safe_path(item["path"]), int(item["size"])
        large = path.endswith(_LFS_SUFFIXES) or size >= _LFS_MIN_BYTES
        answer = {"path": path, "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}
        if (entry := entries.get(path)) is not None:
            answer["oid"] = entry["sha256"] if entry["lfs"] else entry["oid"]
        files.append(answer)
    return {"files": files}


@hub.post("/{namespace}/{name}.git/info/lfs/objects/batch")
@hub.post("/{kind}/{namespace}/{name}.git/info/lfs/objects/batch")
async def lfs_batch(request: Request, repo: NamedRepo, body: JsonBody) -> dict[str, Any]:
    _store(request).about(repo)
    base, objects = f"{request.base_url}_lfs/{repo.kind}/{repo.id}", []
    for item in body["objects"]:
        sha256, size = str(item["oid"]), int(item["size"])
        answer: dict[str, Any] = {"oid": sha256, "size": size}
        if not _store(request).has_blob(sha256, size):
            ticket = secrets.token_urlsafe(16)
            request.app.state.tickets[ticket] = (sha256, size)
            answer["actions"] = {
                "upload": {"href": f"{base}/put/{ticket}"}, "verify": {"href": f"{base}/verify"},
            }  # fmt: skip
        objects.append(answer)
    return {"transfer": "basic", "objects": objects}


@hub.put("/_lfs/{kind}/{namespace}/{name}/put/{ticket}")
async def lfs_put(request: Request, ticket: str) -> Response:
    # As with the Hub's signed storage links, the address itself is the permission.
    if ticket not in request.app.state.tickets:
        raise HubError(403, "this upload link is not valid")
    sha256, size = request.app.state.tickets[ticket]
    await _store(request).receive_blob(request.stream(), sha256, size)
    return Response(headers={"ETag": f'"{sha256}"'})


@hub.post("/_lfs/{kind}/{namespace}/{name}/verify")
async def lfs_verify(request: Request, body: JsonBody) -> Response:
    if not _store(request).has_blob(str(body["oid"]), int(body["size"])):
        raise HubError(404, f"content {body['oid']} was not received")
    return Response()


@hub.post("/api/{kind}/{namespace}/{name}/commit/{revision}")
async def commit(request: Request, repo: NamedRepo, revision: str) -> dict[str, Any]:
    if revision != "main":
        raise HubError(400, f"the local Hub commits to main only, not to {revision!r}")
    header: dict[str, Any] = {}
    contents: dict[str, bytes] = {}
    pointers: dict[str, dict[str, Any]] = {}
    deleted: list[str] = []
    for item in json_lines(await request.body()):
        key, value = item["key"], item["value"]
        if key == "header":
            header = value
        elif key == "file":
            contents[safe_path(value["path"])] = base64.b64decode(value["content"], validate=True)
        elif key == "lfsFile":
            pointers[safe_path(value["path"])] = value
        elif key in ("deletedFile", "deletedFolder"):
            folder = key == "deletedFolder"
            deleted.append(safe_path(value["path"].rstrip("/")) + ("/" if folder else ""))
        else:
            raise HubError(400, f"unknown operation {key!r}")
    commit_id = _store(request).commit(repo, header, contents, pointers, deleted)
    return {
        "success": True, "commitOid": commit_id,
        "commitUrl": f"{_url(request, repo)}/commit/{commit_id}",
    }  # fmt: skip


@hub.api_route("/{namespace}/{name}/resolve/{revision}/{path:path}", methods=["GET", "HEAD"])
@hub.api_route("/{kind}/{namespace}/{name}/resolve/{revision}/{path:path}", methods=["GET", "HEAD"])
async def resolve(request: Request, repo: ReadableRepo, revision: str, path: str) -> Response:
    entry, content = _store(request).file_at(repo, revision, path)
    headers = {
        "X-Repo-Commit": _store(request).commit_at(repo, revision)["id"],
        "ETag": f'"{entry["sha256"] if entry["lfs"] else entry["oid"]}"',
    }
    if entry["lfs"]:
        headers |= {"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(entry["size"])}
    # Nothing uploaded is ever served as a page of this origin.
    text = path.endswith(_TEXT_SUFFIXES)
    media_type = "text/plain; charset=utf-8" if text else "application/octet-stream"
    return FileResponse(content, headers=headers, media_type=media_type)


@control.get("/_faults")
async def list_faults(request: Request) -> Any:
    return request.app.state.faults.listed()


@control.post("/_faults", status_code=201)
async def add_fault(request: Request, fault: Fault) -> Fault:
    request.app.state.faults.add(fault)
    return fault


@control.delete("/_faults", status_code=204)
async def clear_faults(request: Request) -> None:
    request.app.state.faults.clear()


@control.get("/_requests")
async def list_requests(request: Request) -> Any:
    return request.app.state.requests


@control.delete("/_requests", status_code=204)
async def clear_requests(request: Request) -> None:
    request.app.state.requests.clear()


@control.get("/", response_class=HTMLResponse)
async def index(request: Request) -> str:
    return pages.index(_store(request))


@control.get("/{namespace}/{name}", response_class=HTMLResponse)
@control.get("/{kind}/{namespace}/{name}", response_class=HTMLResponse)
async def repo_page(request: Request, repo: NamedRepo) -> str:
    return pages.repository(_store(request), repo)


def create_app(root: Path, tokens: dict[str, Role], faults: list[Fault]) -> FastAPI:
    """The application that serves the repositories under `root`.

    `tokens` are the accepted access tokens with what each may do. Raises HubError when another
    process serves the same root.
    """
    app = FastAPI(title="Subtext local Hub", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.store = Store(root)
    app.state.tokens, app.state.faults = dict(tokens), Faults(faults)
    app.state.requests, app.state.tickets = [], {}
    app.state.jobs = Jobs()
    app.include_router(jobs)  # before the routes of any kind of repository
    app.include_router(hub)
    app.include_router(control)
    app.add_exception_handler(HubError, lambda _, error: refusal(error))
    return app
