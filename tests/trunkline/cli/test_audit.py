"""`trunkline audit`: what commands change, in organizations and in the whole installation."""

from __future__ import annotations

import json
from typing import Any

from config.operating_system_user import operating_system_user
from tests.trunkline.cli.conftest import Run


def _entries(run: Run, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("audit", "--json", *arguments).splitlines()]


def test_commands_are_in_it_with_the_user_of_the_operating_system(run: Run) -> None:
    key = run("key", "create", "--org", "Bay", "--name", "till").strip()
    run("key", "rename", key[:11], "web shop")
    run("key", "delete", key[:11], "--yes")
    run("org", "set", "Bay", "--max-calls", "7", "--quota", "agents=9")
    run("org", "set", "Bay", "--max-calls", "7")
    run("org", "topup", "Bay", "50")
    run("user", "create", "anna", "--org", "Bay", "--role", "owner")
    run("user", "delete", "anna", "--yes")
    run("agent", "create", "Reception", "--org", "Bay")
    found = _entries(run, "--org", "Bay")
    assert [(each["action"], each["objectName"], each["fields"]) for each in found] == [
        ("organization.create", "Bay", []),
        ("key.create", f"{key[:11]} till", []),
        ("key.update", f"{key[:11]} web shop", ["name"]),
        ("key.delete", f"{key[:11]} web shop", []),
        ("organization.update", "Bay", ["quotas"]),
        ("organization.update", "Bay", ["maxCalls"]),
        ("organization.topup", "Bay", ["balance"]),
        ("user.create", "anna", []),
        ("user.delete", "anna", []),
        ("agent.create", "Reception", []),
    ]
    assert {(each["actor"], each["actorType"]) for each in found} == {(operating_system_user(), "command")}
    assert key[12:] not in run("audit") + run("audit", "--json")


def test_what_belongs_to_no_organization_is_in_it(run: Run) -> None:
    run("user", "create", "root", "--operator")
    run("org", "create", "Cove")
    run("org", "delete", "Cove", "--yes")
    found = [(each["action"], each["organization"], each["objectName"]) for each in _entries(run)]
    assert found[:2] == [("user.create", None, "root"), ("organization.delete", None, "Cove")]
    lines = run("audit").splitlines()
    assert ["user.create", "-", operating_system_user(), "root"] == lines[0].split()[1:5]
    assert not any("root  operator" in line for line in run("audit", "--org", "Bay").splitlines())
