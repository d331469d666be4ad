"""A model's speed, measured at its start."""

from __future__ import annotations

from models.llama.engine import Engine
from models.llama.library import Context, Model
from models.llama.schedule import Pace
from models.llama.speed import measure
from tests.models.llama.conftest import alone, ask


def test_the_speed_is_measured_for_as_many_calls_as_there_are_places(tiny: Model) -> None:
    context, pace = Context(tiny, sequences=4, cells=512), Pace(step_s=1.0, token_s=1.0)
    speed = measure(context, pace)
    context.close()
    assert list(speed.writes) == [1, 4]
    assert speed.reads > speed.writes[1] > 0
    assert pace.step_s(1) < 1


def test_steps_are_measured_with_an_empty_memory_and_with_talks_in_all_sequences(tiny: Model) -> None:
    context = Context(tiny, sequences=4, cells=512)
    steps = measure(context, Pace()).steps
    assert {cells: sorted(times) for cells, times in steps.items()} == {64: [1, 4, 64], 256: [1, 4, 64]}
    context.close()


def test_a_memory_that_is_too_small_to_be_filled_is_measured_empty(tiny: Model) -> None:
    context = Context(tiny, sequences=4, cells=256)
    assert list(measure(context, Pace()).steps) == [64, 128]
    context.close()


def test_nothing_of_the_measurement_stays_in_memory(tiny: Model) -> None:
    context = Context(tiny, sequences=4, cells=512, exact=True)
    measure(context, Pace())
    engine = Engine(tiny, context)
    prompt = tiny.tokens("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
    assert ask(engine, "a", prompt, 10).wait() == alone(tiny, prompt, 10)
    engine.close()
