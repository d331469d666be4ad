"""`trunkline org topup`, `debit` and `balance`, without a server."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from trunkline.cli import main
from trunkline.cli.accounts.balance import format_amount

AMOUNT_ERROR = "takes an amount such as 20 or 12.50, with at most 6 decimal places"


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRUNKLINE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOGNAME", "kim")
    monkeypatch.setattr("config.logging.configure", lambda *_: None)  # the log of the tests stays theirs


@pytest.mark.usefixtures("data_dir")
def test_topups_and_debits_change_the_balance_and_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> list[str]:
        assert main.main(arguments) == 0
        return capsys.readouterr().out.splitlines()

    run("org", "create", "Bay", "--plan", "paid", "--balance", "12.5")
    assert run("org", "topup", "Bay", "10.25", "--note", "invoice 7") == ["22.75"]
    assert run("org", "debit", "Bay", "0.000001", "--note", "typed one too many") == ["22.749999"]
    headings, *changes, last = run("org", "balance", "Bay")
    assert headings.split() == ["TIME", "AMOUNT", "BALANCE", "BY", "NOTE"]
    assert last == "balance 22.749999  paid  Bay"
    assert [line.split("  ", 1)[1].split() for line in changes] == [
        ["+12.50", "12.50", "kim", "at", "first"],
        ["+10.25", "22.75", "kim", "invoice", "7"],
        ["-0.000001", "22.749999", "kim", "typed", "one", "too", "many"],
    ]
    (newest,) = run("org", "balance", "Bay", "--last", "1", "--json")
    newest_change = json.loads(newest)
    assert newest_change.pop("at").endswith("Z")
    assert newest_change == {
        "amount": "-0.000001",
        "balanceAfter": "22.749999",
        "madeBy": "kim",
        "callId": None,
        "note": "typed one too many",
    }
    assert any("paid  22.749999" in line for line in run("org", "list"))


@pytest.mark.usefixtures("data_dir")
def test_impossible_changes_are_rejected_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["org", "create", "Free"]) == 0
    assert main.main(["org", "create", "Rich", "--plan", "paid", "--balance", "999999999999"]) == 0
    capsys.readouterr()
    for arguments, complaint in [
        (["topup", "Nobody", "5"], "there is no organization 'Nobody': see `trunkline org list`"),
        (["balance", "Nobody"], "there is no organization 'Nobody': see `trunkline org list`"),
        (["topup", "Free", "5"], "'Free' is on the free plan, whose calls cost nothing: `trunkline"),
        (["topup", "Rich", "2"], "A balance is at most 1,000,000,000,000"),
    ]:
        assert main.main(["org", *arguments]) == 1
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith(f"trunkline: {complaint}")
    assert main.main(["org", "set", "Free", "--plan", "paid"]) == 0
    assert main.main(["org", "topup", "Free", "5"]) == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["topup", "Bay", "-5"], AMOUNT_ERROR),
        (["topup", "Bay", "nan"], AMOUNT_ERROR),
        (["topup", "Bay", "inf"], AMOUNT_ERROR),
        (["topup", "Bay", "1e3"], AMOUNT_ERROR),
        (["topup", "Bay", "0.0000001"], AMOUNT_ERROR),
        (["topup", "Bay", "1000000000000000"], AMOUNT_ERROR),
        (["topup", "Bay", "٣"], AMOUNT_ERROR),
        (["topup", "Bay", "0.00"], "takes an amount above 0"),
        (["debit", "Bay", "5"], "--note"),
    ],
)
def test_an_invalid_amount_is_rejected(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main.main(["org", *arguments])
    assert left.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("amount", "shown"),
    [("0", "0.00"), ("5", "5.00"), ("-0.5", "-0.50"), ("0.012340", "0.01234"), ("1234567.000001", "1234567.000001")],
)
def test_an_amount_has_two_decimal_places_and_no_trailing_zeros_after_them(amount: str, shown: str) -> None:
    assert format_amount(Decimal(amount)) == shown
