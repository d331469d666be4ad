"""The backlog of streams, and the number of decoding threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pytest

from models.stt.sherpa import streaming_model
from models.stt.sherpa.batcher import Batcher, Decodable
from models.stt.sherpa.chunk_timing import measure_chunk_timing
from models.stt.sherpa.stream import SherpaStream
from models.stt.sherpa.streaming_model import SherpaSpeechToText
from models.stt.sherpa.truecasing import Truecaser
from tests.models.stt.sherpa.conftest import no_words

BLOCK = np.zeros(160, np.int16)


@dataclass
class ManualBatcher:
    """A batcher without a thread: the test decodes."""

    woken: list[Decodable] = field(default_factory=list)

    def wake(self, stream: Decodable) -> None:
        self.woken.append(stream)


def by_hand(streaming: SherpaSpeechToText) -> SherpaStream:
    recognizer = streaming._recognizer
    return SherpaStream(
        cast("Batcher", ManualBatcher()),
        recognizer,
        recognizer.create_stream,
        measure_chunk_timing(recognizer),
        8000,
        Truecaser("lower", "en"),
        no_words,
    )


def test_a_model_that_is_just_fast_enough_has_no_backlog(streaming: SherpaSpeechToText) -> None:
    stream = by_hand(streaming)
    step = measure_chunk_timing(streaming._recognizer).step // 2 // len(BLOCK)
    stream.feed(np.zeros(8000, np.int16))
    said = 0.0
    for number in range(20 * step):  # always a piece ready, and always another one when it has been decoded
        stream.feed(BLOCK)
        if number % step == 0:
            assert stream.prepare()
            streaming._recognizer.decode_streams([stream.recognizer_stream])
            stream.on_decoded()
            said = stream.backlog_s
            assert said <= (stream._fed - stream._consumed) / 8000
    assert said <= 1


def test_undecoded_audio_is_backlog(streaming: SherpaSpeechToText) -> None:
    stream = by_hand(streaming)
    for _ in range(500):
        stream.feed(BLOCK)
    assert 9 < stream.backlog_s < 10
    stream.close()
    assert stream.backlog_s == 0


def test_a_share_of_the_machine_has_fewer_threads(
    streaming: SherpaSpeechToText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming_model, "available_cores", lambda: 8.5)
    model = SherpaSpeechToText(
        "share", streaming._recognizer, streaming._tokens, languages=("en",), supports_hotwords=True
    )
    assert model.threads == 2
    model.close()
