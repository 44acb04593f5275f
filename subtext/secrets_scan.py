"""What must not leave this machine inside a file: access tokens, passwords, paths of its folders.

Looked for in a file's bytes as they are, and in the forms that JSON, URLs and base64 give them. No
finding shows the secret itself.
"""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from subtext.paths import cache_dir, project_root

REDACTED = "***"

# A shorter token can only be a local Hub's, and a shorter password might be any word.
_MIN_CHARACTERS = 12
_SECRET_VARIABLES = (
    "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN",
    "PREFECT_API_KEY", "PREFECT_API_AUTH_STRING", "AWS_SECRET_ACCESS_KEY",
)  # fmt: skip
_URL_VARIABLES = (
    "MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "HF_ENDPOINT", "PREFECT_API_URL",
    "PREFECT_API_DATABASE_CONNECTION_URL",
)  # fmt: skip
_HUB_TOKEN = re.compile(rb"(?<![A-Za-z0-9_])hf_[A-Za-z0-9]{20,}")
_BASE64_RUN = re.compile(rb"[A-Za-z0-9+/_-]{16,}")  # of _MIN_CHARACTERS and more
_JSON_ESCAPE = re.compile(rb"\\u00([0-7][0-9A-Fa-f])")
_ANY_PATH = re.compile(
    rb"(?<![A-Za-z0-9])[A-Za-z]:\\+\w[\w.\\ -]*"  # C:\models
    rb"|(?<![A-Za-z0-9])file:/+\w[\w./-]*"
    rb'|(?<=")/[\w.-]+/[\w./-]*(?=")'  # a JSON string that is nothing but a path
)
_PATH_STARTS = (b":\\", b"file:/", b'"/')
_SHOWN_CHARACTERS = 60


def known_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Tokens and passwords that the environment holds, those inside addresses too."""
    values = {environ.get(name, "").strip() for name in _SECRET_VARIABLES}
    for name in _URL_VARIABLES:
        try:
            password = urlsplit(environ.get(name, "")).password or ""
        except ValueError:  # no address at all, as in http://[x
            continue
        values |= {password, unquote(password)}
    return tuple(sorted(value for value in values if len(value) >= _MIN_CHARACTERS))


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """Return `text` with stars in place of Hub tokens and of `secrets`."""
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return _HUB_TOKEN.sub(REDACTED.encode(), text.encode(errors="replace")).decode()


def find_secret(content: bytes, secrets: tuple[str, ...], *, encoded: bool = True) -> str:
    """Say in words which kind of secret `content` holds; "" for none.

    `encoded=False` looks at the bytes as they are alone, as befits large arrays of numbers.
    """
    for view in _all_views(content) if encoded else (content,):
        if b"hf_" in view and _HUB_TOKEN.search(view):
            return "what looks like an access token (hf_…)"
        if any(secret.encode() in view for secret in secrets):
            return "a token or password that this machine uses"
    return ""


def local_folders(*more: Path) -> tuple[str, ...]:
    """Folders that no published file may name: home, checkout, the current one, caches, `more`."""
    folders = {Path.home(), Path.cwd(), project_root(), cache_dir(), Path(tempfile.gettempdir())}
    forms = {form for folder in folders | set(more) for form in (folder, folder.resolve())}
    return tuple(sorted(str(form) for form in forms if form.is_absolute() and form != Path("/")))


def find_local_path(content: bytes, folders: tuple[str, ...], *, encoded: bool = True) -> str:
    """Return the first path in `content` that lies below one of `folders`; "" for none."""
    for view in _plain_views(content) if encoded else (content,):
        for start in (folder.encode() + b"/" for folder in folders):
            # A word before the slash makes it part of a longer path, a slash part of a URL.
            pattern = rb"(?<![\w.~/-])" + re.escape(start) + rb"[\w.-][\w./-]*"
            if start in view and (found := re.search(pattern, view)):
                return _shown(found)
    return ""


def find_any_path(content: bytes) -> str:
    """Return the first drive path, file: address or JSON string that is an absolute path.

    Not for text that people or models wrote, which may speak of any path.
    """
    for view in _plain_views(content):
        if any(start in view for start in _PATH_STARTS) and (found := _ANY_PATH.search(view)):
            return _shown(found)
    return ""


def _shown(found: re.Match[bytes]) -> str:
    return found[0][:_SHOWN_CHARACTERS].decode(errors="replace")


def _plain_views(content: bytes) -> Iterator[bytes]:
    """`content` as it is, and without the escapes of JSON and URLs where it has any."""
    yield content
    if b"\\" in content:
        unescaped = _JSON_ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), content)
        yield unescaped.replace(rb"\/", b"/")
    if b"%" in content:
        yield unquote_to_bytes(content)


def _all_views(content: bytes) -> Iterator[bytes]:
    """The plain views, and what each long run of base64 decodes to, from each possible start."""
    yield from _plain_views(content)
    for run in _BASE64_RUN.finditer(content):
        text = run[0].translate(bytes.maketrans(b"-_", b"+/"))
        for start in range(4):
            yield base64.b64decode(_whole_base64(text[start:]))


def _whole_base64(text: bytes) -> bytes:
    text = text[:-1] if len(text) % 4 == 1 else text
    return text + b"=" * (-len(text) % 4)
