"""How many calls the loaded models are expected to hold, and what becomes of those that come beyond."""

from __future__ import annotations

import structlog

from calls.load import Gate, Load
from config.settings import Settings
from models.budget import Speeds, Talk, capacities
from models.catalogue import Catalogue
from models.machine import cores
from models.measuring import speeds_of

TALK = Talk()

log = structlog.get_logger()


def expected_calls(settings: Settings, models: Catalogue) -> int | None:
    """How many calls get answers within `[limits] max_answer_wait_s`; None when the models cost nothing here, or when
    nobody wants to know. Up to a second or two: not for the event loop."""
    if settings.limits.slow_answers == "off":
        return None
    speeds = speeds_of(models)
    return None if speeds.cost_nothing else held(settings, speeds)


def held(settings: Settings, speeds: Speeds) -> int:
    """The same, of what was measured."""
    limits = settings.limits
    there = capacities(speeds, cores(), limits.max_calls, TALK, [limits.max_answer_wait_s])[0]
    log.info("models.measured", calls=there.calls, within_s=there.within_s, bound=there.bound)
    return there.calls


def load_of(settings: Settings, models: Catalogue, expected: int | None) -> Load | None:
    """Watches the models as the settings want it; None when they do not."""
    limits = settings.limits
    if limits.slow_answers == "off":
        return None
    gate = Gate(limits.max_answer_wait_s, expected)
    return Load(gate, models.expected_wait_s, refuses=limits.slow_answers == "refuse")
