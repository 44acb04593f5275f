"""The local Hub in a browser: which repositories there are, and what lies in each."""

from __future__ import annotations

from html import escape
from typing import Any
from urllib.parse import quote

from subtext.local_hub.store import KINDS, Repo, Store

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem;
       color: #1c2430; background: #fbfaf7 }
a { color: #0b57a4; text-decoration: none } a:hover { text-decoration: underline }
table { border-collapse: collapse; width: 100%; margin-bottom: 2rem }
td, th { text-align: left; padding: .4rem .6rem; border-bottom: 1px solid #e4e0d8 }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
.kind { background: #ece7db; border-radius: .4rem; padding: .1rem .5rem; font-size: .85rem }
code { color: #5b6472; font-size: .9rem }
"""


def index(store: Store) -> str:
    """HTML list of all repositories."""
    rows = []
    for repo in store.repos():
        history = store.history(repo)
        badge = f'<span class="kind">{KINDS[repo.kind]}</span>'
        private = " (private)" if store.about(repo)["private"] else ""
        rows.append(
            [f"{badge} {_link('/' + repo.url_path, repo.id)}{private}", len(history[0]["files"]),
             len(history) - 1, escape(history[0]["title"])]
        )  # fmt: skip
    body = _table(["Repository", "Files", "Commits", "Last commit"], rows)
    empty = "<p>Nothing has been published yet.</p>"
    return _page("Local Hub", "<h1>Local Hub</h1>" + (body if rows else empty))


def repository(store: Store, repo: Repo) -> str:
    """HTML page of one repository: its files at the head, and its commits."""
    history = store.history(repo)
    files = [
        [_link(f"/{repo.url_path}/resolve/main/{path}", path), f"{entry['size']:,}",
         f"<code>{entry['sha256'][:12]}</code>"]
        for path, entry in sorted(history[0]["files"].items())
    ]  # fmt: skip
    commits = [
        [f"<code>{item['id'][:12]}</code>", escape(item["date"]), escape(item["title"])]
        for item in history
    ]
    head = f'<p><a href="/">Local Hub</a></p><h1>{escape(repo.id)}</h1>'
    return _page(
        repo.id,
        f'{head}<p><span class="kind">{KINDS[repo.kind]}</span></p>'
        + _table(["File", "Bytes", "sha256"], files)
        + _table(["Commit", "When", "Title"], commits),
    )


def _link(path: str, text: str) -> str:
    return f'<a href="{escape(quote(path))}">{escape(text)}</a>'


def _table(titles: list[str], rows: list[list[Any]]) -> str:
    numbers = {"Files", "Commits", "Bytes"}
    classes = [' class="number"' if title in numbers else "" for title in titles]
    header = "".join(f"<th{kind}>{title}</th>" for kind, title in zip(classes, titles, strict=True))
    lines = (
        "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(classes, row, strict=True))
        for row in rows
    )
    return f"<table><tr>{header}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>{body}</body></html>"
    )
