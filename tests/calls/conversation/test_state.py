"""The states of a conversation: what the user does, and whether further words continue the last turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from calls.conversation.state import ConversationEnd, ConversationState, LastTurn, UserState

Event = Callable[[ConversationState], object]


def starts(state: ConversationState) -> None:
    state.on_speech_started()


def stops(state: ConversationState) -> None:
    state.on_speech_ended()


def interrupts(state: ConversationState) -> None:
    state.on_barge_in(played=True)


def interrupts_at_once(state: ConversationState) -> None:
    state.on_barge_in(played=False)


def speaks_words(state: ConversationState) -> None:
    state.on_user_input(dtmf=False)


def dials(state: ConversationState) -> None:
    state.on_user_input(dtmf=True)


def is_asked_to_repeat(state: ConversationState) -> None:
    state.on_repeat_prompt()


def after(*events: Event) -> ConversationState:
    state = ConversationState()
    for event in events:
        event(state)
    return state


@pytest.mark.parametrize(
    ("events", "user"),
    [
        ((), UserState.SILENT),
        ((starts,), UserState.SPEAKING),
        ((starts, starts), UserState.SPEAKING),
        ((starts, stops), UserState.SILENT),
        ((starts, interrupts), UserState.INTERRUPTING),
        ((starts, interrupts, dials), UserState.SPEAKING),
        ((starts, interrupts, stops), UserState.NOT_UNDERSTOOD),
        ((starts, interrupts, stops, starts), UserState.INTERRUPTING),
        ((starts, interrupts, stops, speaks_words), UserState.SILENT),
        ((starts, interrupts, stops, is_asked_to_repeat), UserState.SILENT),
        ((interrupts,), UserState.NOT_UNDERSTOOD),
    ],
)
def test_the_user_is_in_the_state_of_its_events(events: tuple[Event, ...], user: UserState) -> None:
    state = after(*events)
    assert state.user is user
    assert state.is_user_speaking == (user in (UserState.SPEAKING, UserState.INTERRUPTING))


@pytest.mark.parametrize(
    ("events", "last_turn"),
    [
        ((), LastTurn.COMPLETE),
        ((speaks_words, interrupts), LastTurn.COMPLETE),
        ((speaks_words, interrupts_at_once), LastTurn.OPEN),
        ((speaks_words, interrupts_at_once, is_asked_to_repeat), LastTurn.OPEN),
        ((speaks_words, interrupts_at_once, interrupts), LastTurn.COMPLETE),
        ((speaks_words, interrupts_at_once, speaks_words), LastTurn.COMPLETE),
        ((dials, interrupts_at_once), LastTurn.DTMF),
        ((dials, speaks_words), LastTurn.COMPLETE),
    ],
)
def test_words_continue_a_turn_whose_response_was_not_played(events: tuple[Event, ...], last_turn: LastTurn) -> None:
    assert after(*events).last_turn is last_turn


def test_a_barge_in_stops_the_agent_when_playout_was_paused() -> None:
    state = ConversationState()
    assert state.on_playout_flushed(900.0) == 900.0
    state.playout_paused_ms = 500.0
    assert state.on_playout_flushed(900.0) == 500.0
    assert state.on_playout_flushed(950.0) == 950.0, "the pause is over"


def test_the_second_idle_prompt_is_the_goodbye_and_words_reset_it() -> None:
    state = ConversationState()

    def end_after_goodbye(*, failed: bool) -> ConversationEnd | None:
        state.on_goodbye(failed=failed)
        return state.end_requested

    assert [state.on_user_idle(), state.on_user_idle()] == [False, True]
    assert end_after_goodbye(failed=False) == "customer_silent"
    state.on_user_input(dtmf=False)
    assert (state.end_requested, state.on_user_idle()) == (None, False)
    assert end_after_goodbye(failed=False) == "agent_ended"
    assert end_after_goodbye(failed=True) == "error"
