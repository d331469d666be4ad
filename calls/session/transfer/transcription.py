"""Transcription of two connected parties by an agent that stays on the call: it listens to both and says nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NoReturn

import structlog

from calls.conversation.conversation import Conversation
from calls.post_call.redaction import redactor
from calls.session.agent_config import models_for
from calls.session.conversation_runner import CallParticipants, open_speech_to_text
from calls.session.dependencies import CallDependencies
from calls.session.live_transcript import store_progress
from calls.session.transfer.party_recognizer import PartyRecognizer, Utterance
from calls.session.transfer.transcription_stop_phrases import stops_transcription
from calls.tools.toolset import ToolSet
from media.engine.call_audio import CallAudio
from storage.calls.calls import Speaker, TranscriptionEnd
from storage.database.errors import StorageUnavailable

MAX_UTTERANCES: Final = 5_000
"""Of one call: some four hours of talk. The transcription ends with the last one."""
LAST_WORDS_S: Final = 1.0
"""Time for the recognizer at the end of the call to recognize what was said last."""

log = structlog.get_logger()


class ConnectedTranscription:
    """Transcribes connected parties: `start`, `stop` and `finish`. It ends earlier if one of them says so, or with an
    error, which ends the transcription alone. The words are added to the transcript and the timeline of `conversation`,
    which is over, and metered and stored with its call. Nothing is added any more once it has ended."""

    def __init__(
        self,
        participants: CallParticipants,
        deps: CallDependencies,
        conversation: Conversation,
        parties: Mapping[Speaker, CallAudio],
        *,
        is_heard: Callable[[], bool],
    ) -> None:
        """`is_heard` returns False while one of the parties holds the call: what is said then is not transcribed."""
        self._participants = participants
        self._deps = deps
        self._conversation = conversation
        self._parties = parties
        self._is_heard = is_heard
        self._recognizers: list[PartyRecognizer] = []
        self._changed = asyncio.Event()
        self._storing: asyncio.Task[NoReturn] | None = None
        self._utterances = 0
        self._ended = False
        self._log = log.bind(call_id=participants.call.id)

    def start(self) -> None:
        """Begin. An error of the models ends the transcription."""
        self._storing = asyncio.create_task(self._store_progress())
        try:
            self._open()
        except Exception as error:  # noqa: BLE001 - whatever the models raise
            self._on_error(error)
            return
        for recognizer in self._recognizers:
            recognizer.attach()
        self._log.info("transcription.started")

    def stop(self) -> None:
        """The call ends: listen no longer, and begin to recognize what was said last."""
        for recognizer in self._recognizers if not self._ended else ():
            recognizer.detach()
            recognizer.end_utterance()

    async def finish(self) -> None:
        """After `stop`: wait for the last words, for `LAST_WORDS_S` at most, and free the recognizers."""
        try:
            recognizing = [task for recognizer in self._recognizers for task in recognizer.recognizing]
            if recognizing and not self._ended:
                await asyncio.wait(recognizing, timeout=LAST_WORDS_S)
            if not self._ended:
                self._end(None)
        finally:
            await self._stop_storing()

    def _open(self) -> None:
        participants = self._participants
        models, no_tools = models_for(participants.agent, self._deps.models), ToolSet()
        for speaker, audio in self._parties.items():
            stt = open_speech_to_text(models, participants, no_tools, audio.rate, lambda _: None)
            self._recognizers.append(
                PartyRecognizer(
                    speaker,
                    audio,
                    stt,
                    is_heard=self._is_heard,
                    on_utterance=self._on_utterance,
                    on_error=self._on_error,
                )
            )

    def _on_utterance(self, utterance: Utterance) -> None:
        if self._ended:
            return
        self._utterances += 1
        why: TranscriptionEnd | None = "limit" if self._utterances == MAX_UTTERANCES else None
        if stops_transcription(utterance.text, self._participants.agent.language_hint):
            why = utterance.speaker
        end_ms = self._deps.engine.now_ms() if utterance.ended is None else utterance.ended.speech_end_ms
        self._conversation.transcript.add_utterance(
            utterance.speaker, utterance.text, utterance.speech_start_ms, end_ms
        )
        self._conversation.transcript.time_words(utterance.word_starts_ms)
        self._conversation.timeline.add_utterance(
            utterance.speaker, utterance.speech_start_ms, utterance.ended, transcription_ended=why
        )
        speech_end_ms = None if utterance.ended is None else utterance.ended.speech_end_ms
        self._conversation.finished_turns.on_utterance(
            utterance.speaker, utterance.text, utterance.speech_start_ms, speech_end_ms
        )
        self._log.info("transcription.utterance", speaker=utterance.speaker, characters=len(utterance.text))
        self._log.debug("transcription.utterance.text", text=utterance.text)
        self._changed.set()
        if why is not None:
            self._end(why)

    def _on_error(self, error: Exception) -> None:
        if self._ended:
            return
        self._log.warning("transcription.failed", error=repr(error), exc_info=error)
        self._conversation.timeline.add_transcription_error()
        self._changed.set()
        self._end("error")

    def _end(self, why: TranscriptionEnd | None) -> None:
        """End the transcription; `why` None: the call ends."""
        self._ended = True
        for recognizer in self._recognizers:
            recognizer.close()
        self._log.info("transcription.ended", reason=why or "call_ended", utterances=self._utterances)

    async def _store_progress(self) -> NoReturn:
        call, meter = self._participants.call, self._participants.meter
        rules_of = partial(redactor.redaction_rules_of_organization, organization_id=call.organization_id)
        try:
            rules = await self._deps.database.read(rules_of)
        except StorageUnavailable:
            rules = redactor.REDACT_EVERYTHING
        await store_progress(
            self._deps.database, call.id, self._conversation, meter, changed=self._changed, rules=rules
        )

    async def _stop_storing(self) -> None:
        storing = self._storing
        assert storing is not None
        storing.cancel()
        await asyncio.wait((storing,))
        if not storing.cancelled():
            self._log.error("transcription.not_stored", error=repr(storing.exception()), exc_info=storing.exception())
