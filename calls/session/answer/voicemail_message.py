"""The message that an agent leaves in a voicemail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import numpy as np
import structlog

from calls.call_record.transcript import Transcript, TranscriptLine, played_text
from calls.conversation.speech_output import SpeechOutput
from config.errors import ModelError
from media.audio_port import Samples
from media.engine.call_audio import CallAudio, CallEvent, UtterancePlayed
from models.protocols import SynthesizedSpeech
from models.text.sentence_splitter import SentenceSplitter

MAX_SECONDS: Final = 30
"""A longer message is cut."""

log = structlog.get_logger()


class VoicemailMessage:
    """`prepare` synthesizes the message, `play` plays it. It listens to the call's events meanwhile."""

    def __init__(self, call_id: str, text: str, output: SpeechOutput, audio: CallAudio) -> None:
        self._text = text
        self._output = output
        self._audio = audio
        self._played = asyncio.Event()
        self._speech: SynthesizedSpeech | None = None
        self._log = log.bind(call_id=call_id)

    def on_media_events(self, events: Sequence[CallEvent]) -> None:
        """See `CallEventListener`: the only utterance has been sent."""
        if any(isinstance(event, UtterancePlayed) for event in events):
            self._played.set()

    async def prepare(self) -> bool:
        """Returns False if there is nothing to say, or no voice to say it: that is logged."""
        splitter = SentenceSplitter(self._output.language)
        sentences = [*splitter.feed(self._text), *([rest] if (rest := splitter.finish()) else [])]
        pieces: list[Samples] = []
        try:
            for sentence in sentences:
                pieces.append((await self._output.synthesize(sentence)).samples)
        except ModelError as error:
            self._log.error("call.voicemail_message_failed", error=str(error))
            return False
        rate = self._audio.rate
        samples = np.concatenate([np.zeros(0, np.int16), *pieces])
        self._speech = SynthesizedSpeech(self._text, samples, rate)
        if len(samples) > MAX_SECONDS * rate:
            self._log.warning("call.voicemail_message_cut", seconds=round(len(samples) / rate, 1), limit=MAX_SECONDS)
        return len(samples) > 0

    async def play(self, transcript: Transcript) -> None:
        """Play the prepared message to its end; what was played of it comes into the transcript, also after a
        cancellation. Nothing that the voicemail plays interrupts it."""
        assert self._speech is not None
        speech, playout = self._speech, self._audio.playout
        self._audio.set_listening(False)
        playout.flush()
        self._played.clear()
        line = TranscriptLine("assistant", "")
        transcript.add_agent_line(line)
        utterance = playout.begin(speech.text)
        self._output.on_spoken(speech.text)
        playout.write(speech.samples[: MAX_SECONDS * speech.rate])
        playout.end()
        try:
            await self._played.wait()
        finally:
            line.text = played_text(speech, playout.played(utterance))
            line.start_ms, line.end_ms = utterance.started_ms, utterance.stopped_ms
            self._log.info(
                "call.voicemail_message",
                complete=self._played.is_set(),
                seconds=round(playout.played(utterance) / self._audio.rate, 1),
            )
