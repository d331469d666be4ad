"""Load shedding without a measured capacity."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from config.settings import Settings
from models.loading.capacity_forecast import ModelCosts
from models.loading.catalogue import Catalogue
from tests.fakes.scripted_call import ScriptedLlm, ScriptedStt, ScriptedTts, scripted_catalogue
from trunkline.wiring.models import load_shedding


def test_an_error_in_the_measurement_is_logged_and_no_capacity_is_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Catalogue) -> ModelCosts:
        raise ZeroDivisionError("a speed of nothing")

    monkeypatch.setattr(load_shedding, "measure_costs", fails)
    models = scripted_catalogue(ScriptedLlm(), ScriptedStt(), ScriptedTts())
    with capture_logs() as lines:
        assert load_shedding._measure_capacity(Settings(data_dir=tmp_path), models) is None
    assert [line["event"] for line in lines] == ["models.not_measured"]
