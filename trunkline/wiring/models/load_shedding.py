"""Load shedding of a running server: measures the loaded models, and builds the shedder that `[limits]` asks for."""

from __future__ import annotations

import structlog

from calls.admission.load_shedding import CallAdmissionControl, ModelLoadShedder
from config.errors import ModelError
from config.settings import Settings
from models.loading.capacity_forecast import CallProfile, forecast_capacities
from models.loading.catalogue import Catalogue
from models.loading.cost_measurement import measure_costs
from models.runtime.cpu_memory_limits import available_cores

CALL_PROFILE = CallProfile()
"""The call that capacities are estimated for."""

log = structlog.get_logger()


def model_load_shedder(settings: Settings, models: Catalogue) -> ModelLoadShedder | None:
    """Returns the load shedder of these models; None if `[limits] slow_answers` is `off`."""
    limits = settings.limits
    if limits.slow_answers == "off":
        return None
    return ModelLoadShedder(
        CallAdmissionControl(limits.max_answer_wait_s),
        models.expected_wait_s,
        measure_capacity=lambda: _measure_capacity(settings, models),
        sheds=limits.slow_answers == "refuse",
    )


def _measure_capacity(settings: Settings, models: Catalogue) -> int | None:
    """Returns the number of calls that get answers within `[limits] max_answer_wait_s`; None if the models cost nothing
    on this machine, or fail. Takes a second or two."""
    limits = settings.limits
    try:
        costs = measure_costs(models)
    except ModelError as error:
        log.warning("models.not_measured", error=error.message)
        return None
    except Exception as error:
        log.warning("models.not_measured", error=repr(error), exc_info=error)
        return None
    if costs.is_free:
        return None
    [capacity] = forecast_capacities(
        costs, available_cores(), limits.max_calls, CALL_PROFILE, [limits.max_answer_wait_s]
    )
    log.info("models.measured", calls=capacity.calls, within_s=capacity.within_s, bound=capacity.limited_by)
    return capacity.calls
