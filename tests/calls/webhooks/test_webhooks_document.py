"""The code of docs/reference/webhooks.md verifies real deliveries."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from calls.webhooks.signing import signature_headers
from config.secrets import Secrets
from storage.database.database import Database
from tests.calls.webhooks.outbox_harness import Receiver, put, running_sender

PAGE = (Path(__file__).parents[3] / "docs/reference/webhooks.md").read_text()
SECRETS = (
    *("hush · hush", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    *("whsec_Zm9yIHlvdXIgZXllcw==", "whsec_Zm9yIHlvdXIgZXllcw"),
)
"""Of each kind; the last two are one key, with and without base64's padding."""

PYTHON = """
import base64, json, sys
from email.message import Message
from verify import simple, standard
def verdicts_of(case):
    headers, body = Message(), base64.b64decode(case["body"])
    for name, value in case["headers"].items():
        headers[name] = value
    return [simple(headers, body, case["secret"]), standard(headers, body, case["secret"])]
print(json.dumps([verdicts_of(case) for case in json.load(open(sys.argv[1]))]))
"""
NODE = """
const told = ({ headers, body, secret }) => {
  const lower = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
  return [simple, standard].map((verify) => verify(lower, Buffer.from(body, "base64"), secret));
};
console.log(JSON.stringify(JSON.parse(require("fs").readFileSync(process.argv[2])).map(told)));
"""
GO = """package main

import (
	"encoding/base64"
	"encoding/json"
	"net/textproto"
	"os"
	"time"
)

func main() {
	var cases []struct {
		Headers      map[string]string
		Body, Secret string
	}
	file, _ := os.ReadFile(os.Args[1])
	if err := json.Unmarshal(file, &cases); err != nil {
		panic(err)
	}
	told := [][2]bool{}
	for _, each := range cases {
		header := textproto.MIMEHeader{}
		for name, value := range each.Headers {
			header.Set(name, value)
		}
		body, _ := base64.StdEncoding.DecodeString(each.Body)
		told = append(told, [2]bool{
			simple(header.Get, body, each.Secret), standard(header.Get, body, each.Secret, 5*time.Minute)})
	}
	json.NewEncoder(os.Stdout).Encode(told)
}
"""
PHP = """
$told = [];
foreach (json_decode(file_get_contents($argv[1]), true) as $case) {
    $arguments = [array_change_key_case($case['headers']), base64_decode($case['body']), $case['secret']];
    $told[] = [simple(...$arguments), standard(...$arguments)];
}
echo json_encode($told);
"""


@dataclass(frozen=True)
class Case:
    """A received request, the receiver's secret, and the validity of both signatures."""

    headers: dict[str, str]
    body: bytes
    secret: str
    holds: tuple[bool, bool]

    def without(self, name: str, *holds: bool) -> Case:
        kept = {each: value for each, value in self.headers.items() if each != name}
        return replace(self, headers=kept, holds=(holds[0], holds[1]))

    def having(self, name: str, value: str, *holds: bool) -> Case:
        return replace(self, headers={**self.headers, name: value}, holds=(holds[0], holds[1]))


def code(language: str) -> str:
    """Returns the only code block of a language."""
    (block,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(block)


def write_case_files(
    command: Sequence[str], files: dict[str, str], cases: Sequence[Case], folder: Path
) -> tuple[list[str], Path]:
    """Write the files and the cases; returns the command."""
    for name, text in files.items():
        (folder / name).write_text(text)
    given = [
        {"headers": case.headers, "body": base64.b64encode(case.body).decode(), "secret": case.secret} for case in cases
    ]
    (folder / "cases.json").write_text(json.dumps(given))
    return [*command, "cases.json"], folder


def variants(good: Case) -> list[Case]:
    """Yields the valid request, and invalid variants of it."""
    signature, sent_at = good.headers["webhook-signature"], int(good.headers["webhook-timestamp"])
    old = signature_headers(good.headers["webhook-id"], good.body, good.secret, int(time.time()) - 301)
    return [
        good,
        replace(good, body=good.body.replace(b"completed", b"Completed"), holds=(False, False)),
        replace(good, body=good.body + b" ", holds=(False, False)),
        replace(good, secret=good.secret[:-4] + "AAAA", holds=(False, False)),
        good.without("X-Service-Signature", False, True),
        good.without("webhook-signature", True, False),
        good.without("webhook-timestamp", True, False),
        good.without("webhook-id", True, False),
        good.having("X-Service-Signature", good.headers["X-Service-Signature"].upper(), False, True),
        good.having("webhook-timestamp", str(sent_at + 1), True, False),
        good.having("webhook-timestamp", "soon", True, False),
        good.having("webhook-signature", f"v1,AAAA {signature}", True, True),
        good.having("webhook-signature", signature.removeprefix("v1,"), True, False),
        replace(good, headers={**good.headers, **old}, holds=(True, False)),
    ]


@pytest.fixture
async def cases(database: Database, secrets: Secrets, receiver: Receiver) -> list[Case]:
    """Returns received requests, signed with each kind of secret, and their variants."""
    for secret in SECRETS:
        await put(database, f"{receiver.origin}/hook", secrets.encrypt(secret))
        async with running_sender(database, secrets) as sender:
            await sender.wait_idle()
    came = zip(receiver.got, SECRETS, strict=True)
    return [each for (headers, body), secret in came for each in variants(Case(headers, body, secret, (True, True)))]


async def run(command: Sequence[str], files: dict[str, str], cases: Sequence[Case], folder: Path) -> list[list[bool]]:
    """Run the code; returns its result for each case."""
    arguments, folder = await asyncio.to_thread(write_case_files, command, files, cases, folder)
    process = await asyncio.create_subprocess_exec(
        *arguments, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    said: list[list[bool]] = json.loads(out)
    return said


def interpreter(name: str) -> str:
    """Returns the interpreter's path; skips the test if it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"`{name}` is not installed")
    return found


async def test_the_python_code_verifies(cases: list[Case], tmp_path: Path) -> None:
    said = await run([sys.executable, "run.py"], {"verify.py": code("python"), "run.py": PYTHON}, cases, tmp_path)
    assert said == [list(case.holds) for case in cases]


async def test_the_node_code_verifies(cases: list[Case], tmp_path: Path) -> None:
    said = await run([interpreter("node"), "run.js"], {"run.js": code("js") + NODE}, cases, tmp_path)
    assert said == [list(case.holds) for case in cases]


async def test_the_php_code_verifies(cases: list[Case], tmp_path: Path) -> None:
    said = await run([interpreter("php"), "run.php"], {"run.php": code("php") + PHP}, cases, tmp_path)
    assert said == [list(case.holds) for case in cases]


async def test_the_go_code_verifies(cases: list[Case], tmp_path: Path) -> None:
    """Debian's compiler takes 400 MB, so set-up does not install it."""
    go = interpreter("go")
    said = await run([go, "run", "verify.go", "run.go"], {"verify.go": code("go"), "run.go": GO}, cases, tmp_path)
    assert said == [list(case.holds) for case in cases]
