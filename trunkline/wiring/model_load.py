"""How many calls the loaded models are expected to hold, and what becomes of those that come beyond."""

from __future__ import annotations

import structlog

from calls.admission.model_load import LatencyGate, ModelLoadShedder
from config.errors import ModelError
from config.settings import Settings
from models.loading.benchmark import measure_costs
from models.loading.capacity import CallProfile, capacities
from models.loading.catalogue import Catalogue
from models.runtime.machine import available_cores

TALK = CallProfile()

log = structlog.get_logger()


def load_of(settings: Settings, models: Catalogue) -> ModelLoadShedder | None:
    """Measures the models and watches them as the settings want it; None when they do not."""
    limits = settings.limits
    if limits.slow_answers == "off":
        return None
    return ModelLoadShedder(
        LatencyGate(limits.max_answer_wait_s),
        models.expected_wait_s,
        measure_capacity=lambda: _expected_calls(settings, models),
        sheds=limits.slow_answers == "refuse",
    )


def _expected_calls(settings: Settings, models: Catalogue) -> int | None:
    """How many calls get answers within `[limits] max_answer_wait_s`; None when the models cost nothing here, or
    fail. A second or two."""
    limits = settings.limits
    try:
        speeds = measure_costs(models)
    except ModelError as error:
        log.warning("models.not_measured", error=error.message)
        return None
    except Exception as error:
        log.warning("models.not_measured", error=repr(error), exc_info=error)
        return None
    if speeds.cost_nothing:
        return None
    [there] = capacities(speeds, available_cores(), limits.max_calls, TALK, [limits.max_answer_wait_s])
    log.info("models.measured", calls=there.calls, within_s=there.within_s, bound=there.bound)
    return there.calls
