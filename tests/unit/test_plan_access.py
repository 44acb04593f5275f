"""Whether a token may write to a repository, by what the Hub's whoami says of it."""

from __future__ import annotations

from typing import Any

import pytest

from subtext.publishing.access import Access, TargetAccess, access_problems, write_right


def identity(role: str = "write", **more: Any) -> dict[str, Any]:
    fine = {"fineGrained": more.pop("fine")} if "fine" in more else {}
    return {
        "type": "user", "name": "ada",
        "auth": {"type": "access_token", "accessToken": {"role": role, **fine}}, **more,
    }  # fmt: skip


def scoped(kind: str, name: str, *permissions: str) -> dict[str, Any]:
    return {
        "global": [],
        "scoped": [{"entity": {"type": kind, "name": name}, "permissions": list(permissions)}],
    }


def member(role: str | None) -> list[dict[str, Any]]:
    return [{"type": "org", "name": "other"}, {"type": "org", "name": "team", "roleInOrg": role}]


@pytest.mark.parametrize(
    ("who", "repo_id", "exists", "may_write", "why"),
    [
        pytest.param(identity(), "ada/judge", False, True, "own", id="own namespace"),
        pytest.param(
            identity(orgs=[]), "team/judge", True, False, "not a member of team", id="stranger"
        ),
        pytest.param(
            identity(orgs=member("write")), "team/judge", True, True, "'write'", id="may write"
        ),
        pytest.param(
            identity(orgs=member("read")), "team/judge", True, False, "'read'", id="only reads"
        ),
        pytest.param(
            identity(orgs=member(None)), "team/judge", True, None, "role", id="role not told"
        ),
        pytest.param(
            identity(), "team/judge", True, None, "organisations", id="organisations not told"
        ),
        pytest.param(
            identity("fineGrained", fine=scoped("user", "ada", "repo.write")), "ada/judge", False,
            True, "repo.write on ada", id="fine-grained, whole namespace",
        ),
        pytest.param(
            identity("fineGrained", fine=scoped("user", "ada", "repo.content.read")), "ada/judge",
            True, False, "no scope", id="fine-grained, reading only",
        ),
        pytest.param(
            identity("fineGrained", fine=scoped("user", "bob", "repo.write")), "ada/judge", True,
            False, "no scope", id="fine-grained, another namespace",
        ),
        pytest.param(
            identity("fineGrained", fine=scoped("model", "ada/judge", "repo.write")), "ada/judge",
            True, True, "on ada/judge", id="fine-grained, this repository",
        ),
        pytest.param(
            identity("fineGrained", fine=scoped("model", "ada/judge", "repo.write")), "ada/judge",
            False, False, "can't create", id="fine-grained, this repository, which is missing",
        ),
        pytest.param(
            identity("fineGrained", fine=scoped("dataset", "ada/judge", "repo.write")),
            "ada/judge", True, False, "no scope", id="fine-grained, a dataset of that name",
        ),
        pytest.param(
            identity("fineGrained"), "ada/judge", True, None, "scopes", id="scopes not told"
        ),
    ],
)  # fmt: skip
def test_write_right(
    who: dict[str, Any], repo_id: str, exists: bool, may_write: bool | None, why: str
) -> None:
    found, said = write_right(who, repo_id, "model", exists=exists)
    assert found is may_write
    assert why in said


def test_each_repository_that_can_not_be_written_to_is_named() -> None:
    targets = (
        TargetAccess("adapter_repo", "ada/judge", "model", True, True, "own"),
        TargetAccess("results_repo", "team/results", "dataset", True, False, "a reader"),
        TargetAccess("results_repo", "rest/results", "dataset", True, None, "not told"),
    )
    [problem] = access_problems(Access("ada", "write", targets))
    assert (problem.field, problem.value) == ("publish.results_repo", "team/results")
    assert "a reader" in problem.problem
