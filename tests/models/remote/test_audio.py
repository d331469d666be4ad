"""Remote speech to text, text to speech and embeddings."""

from __future__ import annotations

import asyncio
import json
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from config.errors import ModelError
from media.audio_port import Samples
from models.errors import RemoteModelError
from models.protocols import SpeechToText, SpeechToTextStream, VoiceSettings
from models.remote.client import RemoteModelClient
from models.remote.config import RemoteKind, RemoteVoice
from models.remote.embeddings import RemoteEmbeddings
from models.remote.speech_to_text import RemoteTranscriber
from models.remote.text_to_speech import RemoteTextToSpeech
from models.remote.wav import decode_wav, encode_wav
from models.stt.two_pass import TwoPassSpeechToText
from tests.models.remote.raw_server import QUICK, Answer, remote, responds_then_hangs, responds_with, status

VOICES = (RemoteVoice("heart", "en-US"), RemoteVoice("any"))
SETTINGS = VoiceSettings("gpu/heart", 1.2, 0.5, 8000)


def answers(content: bytes, kind: str = "application/json") -> Answer:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    return responds_with(head.encode() + content)


def decoded(text: str) -> Answer:
    return answers(json.dumps({"text": text}).encode())


def tone(rate: int, seconds: float = 0.5, hz: float = 440) -> Samples:
    return (9000 * np.sin(2 * np.pi * hz * np.arange(int(rate * seconds)) / rate)).astype(np.int16)


# WAV files.


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 48000])
def test_audio_is_resampled_to_the_target_rate(rate: int) -> None:
    sound = decode_wav(encode_wav(tone(rate), rate), 16000)
    assert len(sound) == pytest.approx(8000, abs=2)
    spectrum = np.abs(np.fft.rfft(sound))
    assert np.argmax(spectrum) == pytest.approx(220, abs=1)
    assert np.abs(sound[1000:-1000]).max() == pytest.approx(9000, rel=0.02)


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 2_000_000_000])
def test_a_wav_file_of_unknown_size_is_read_to_its_end(size: int) -> None:
    file = bytearray(encode_wav(tone(8000), 8000))
    file[40:44] = struct.pack("<I", size)
    assert (decode_wav(bytes(file), 8000) == tone(8000)).all()


def test_stereo_floats_and_other_chunks_are_decoded() -> None:
    sound = np.column_stack((tone(8000), tone(8000))).astype(np.float32) / 32767
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 3, 2, 8000, 64000, 8, 32)
    listed = struct.pack("<4sI4s", b"LIST", 3, b"abc\0")
    file = b"RIFF\0\0\0\0WAVE" + listed + form + struct.pack("<4sI", b"data", sound.nbytes) + sound.tobytes()
    assert np.abs(decode_wav(file, 8000) - tone(8000)).max() <= 1


def test_non_finite_floats_are_replaced() -> None:
    data = np.array([np.nan, np.inf, -np.inf, 5.0], "<f4").tobytes()
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 3, 1, 8000, 32000, 4, 32)
    file = b"RIFF\0\0\0\0WAVE" + form + struct.pack("<4sI", b"data", len(data)) + data
    assert decode_wav(file, 8000).tolist() == [0, 32767, -32767, 32767]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"ID3 an MP3 file",
        b"RIFF\0\0\0\0WAVE",
        b"RIFF\0\0\0\0WAVEdata\x04\0\0\0abcd",
        b"RIFF\0\0\0\0WAVEfmt \xff\xff\xff\xff",
        encode_wav(tone(8000), 8000).replace(struct.pack("<I", 8000), struct.pack("<I", 1), 1),
        encode_wav(tone(8000), 8000).replace(struct.pack("<H", 16), struct.pack("<H", 8), 2),
    ],
)
def test_invalid_audio_raises(content: bytes) -> None:
    with pytest.raises(RemoteModelError):
        decode_wav(content, 8000)


# Speech to text.


def form_fields(request: bytes) -> dict[bytes, bytes]:
    """The parts of a multipart form by name."""
    head, _, form = request.partition(b"\r\n\r\n")
    boundary = re.search(rb"boundary=(\S+)", head)
    assert boundary is not None
    parts = form.split(b"--" + boundary[1])
    assert parts[-1] == b"--\r\n"
    return {re.findall(rb'name="(\w+)"', part)[0]: part.partition(b"\r\n\r\n")[2][:-2] for part in parts[1:-1]}


async def test_fields_of_requests_are_replaced_and_removed() -> None:
    """As `--extra` of `trunkline models remote add` says."""
    async with remote(decoded("x"), kind="stt", language=None, vad=True, temperature=0.5) as (endpoint, server):
        await RemoteTranscriber(endpoint).transcribe([tone(8000)], 8000, "de")
    assert form_fields(server.requests[0]).keys() == {b"model", b"response_format", b"vad", b"temperature", b"file"}
    assert [form_fields(server.requests[0])[name] for name in (b"vad", b"temperature")] == [b"true", b"0.5"]
    answer = answers(encode_wav(tone(24000), 24000), "audio/wav")
    async with remote(answer, kind="tts", voices=VOICES, speed=None, gain=2) as (endpoint, server):
        await RemoteTextToSpeech(endpoint).synthesize("Hello.", SETTINGS)
    sent = json.loads(server.requests[0].partition(b"\r\n\r\n")[2])
    assert (sent.keys(), sent["gain"]) == ({"model", "input", "voice", "response_format", "gain"}, 2)
    answer = vectors({"index": 0, "embedding": [1]})
    async with remote(answer, kind="embedding", encoding_format=None, input_type="x") as (endpoint, server):
        await RemoteEmbeddings(endpoint).embed(["one"], query=False)
    assert json.loads(server.requests[0].partition(b"\r\n\r\n")[2]).keys() == {"model", "input", "input_type"}


async def test_a_turn_is_sent_as_a_wav_file_with_its_language() -> None:
    sound = tone(8000)
    async with remote(decoded(" Good \n morning. "), kind="stt", prompt="Names: Ada") as (endpoint, server):
        assert (
            await RemoteTranscriber(endpoint).transcribe([sound[:1000], sound[1000:]], 8000, "de-AT") == "Good morning."
        )
    assert server.requests[0].startswith(b"POST /v1/audio/transcriptions ")
    fields = form_fields(server.requests[0])
    assert (decode_wav(fields.pop(b"file"), 8000) == sound).all()
    assert fields == {b"model": b"m", b"response_format": b"json", b"language": b"de", b"prompt": b"Names: Ada"}


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"text": 7}', b"no JSON", b'{"text": "' + b"x" * 30_000 + b'"}'])
async def test_an_invalid_transcript_raises(body: bytes) -> None:
    async with remote(answers(body), kind="stt") as (endpoint, _):
        with pytest.raises(RemoteModelError):
            await RemoteTranscriber(endpoint).transcribe([tone(8000)], 8000, None)


class LocalSttStream(SpeechToTextStream):
    """Returns a constant transcript."""

    def feed(self, samples: Samples) -> None:
        pass

    def partial(self) -> str:
        return "local words"

    async def flush(self) -> str:
        return "local words"

    async def end_turn(self) -> str:
        return "local words"

    def reset(self) -> None:
        pass

    def close(self) -> None:
        pass


class LocalStt(SpeechToText):
    """Gives one `SpeechSink` to each call."""

    name = "ears"

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> LocalSttStream:
        return LocalSttStream()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (decoded("Remote words."), "Remote words."),
        (decoded(""), "local words"),
        (status(500), "local words"),
        (responds_then_hangs(), "local words"),
    ],
)
async def test_a_transcript_is_the_remote_one_else_the_local_one(answer: Answer, text: str) -> None:
    limits = replace(QUICK, total_s=0.5) if text == "local words" else QUICK
    async with remote(answer, kind="stt", limits=limits) as (endpoint, server):
        ears = TwoPassSpeechToText(LocalStt(), RemoteTranscriber(endpoint), limits.total_s + 5)
        stream = ears.open(rate=8000, language=None, on_words=lambda _: None)
        stream.feed(tone(8000))
        assert stream.partial() == "local words"
        assert await stream.end_turn() == text
        stream.close()
    assert server.requests


# Text to speech.


async def test_a_sentence_is_synthesized_by_the_servers_voice_with_word_ends() -> None:
    sound = np.pad(np.concatenate((tone(24000), np.zeros(6000, np.int16), tone(24000))), 4800)
    async with remote(answers(encode_wav(sound, 24000), "audio/wav"), kind="tts", voices=VOICES) as (endpoint, server):
        voice = RemoteTextToSpeech(endpoint)
        assert voice.voices() == ("gpu/heart", "gpu/any")
        assert [voice.language_of(name) for name in ("gpu/heart", "gpu/any", "x")] == ["en-US", None, None]
        speech = await voice.synthesize("Good morning, hello.", SETTINGS)
    asked = json.loads(server.requests[0].partition(b"\r\n\r\n")[2])
    assert asked == {
        "model": "m", "input": "Good morning, hello.", "voice": "heart", "response_format": "wav", "speed": 1.2
    }  # fmt: skip
    assert (speech.rate, len(speech.samples)) == (8000, pytest.approx(10500, abs=1000))
    assert [word.char_end for word in speech.words] == [4, 13, 20]
    assert speech.words[1].sample_end == pytest.approx(4400, abs=600), "the comma is where the pause is"


@pytest.mark.parametrize("kind", ["stt", "tts"])
async def test_audio_beyond_the_nodes_share_of_a_server_fails_in_time_and_is_not_sent(kind: RemoteKind) -> None:
    limits, voices = replace(QUICK, first_word_s=1), VOICES if kind == "tts" else ()
    async with remote(responds_then_hangs(b"HTTP/1.1 200 OK\r\n"), kind=kind, voices=voices, limits=limits) as (
        endpoint,
        server,
    ):
        one = RemoteModelClient(endpoint.model, endpoint._http, limit=1)

        async def ask() -> object:
            if kind == "stt":
                return await RemoteTranscriber(one).transcribe([tone(8000)], 8000, None)
            return await RemoteTextToSpeech(one).synthesize("Good morning.", SETTINGS)

        first = asyncio.ensure_future(ask())
        await server.asked.wait()
        with pytest.raises(RemoteModelError) as raised:
            await ask()
        first.cancel()
        await asyncio.wait((first,))
    assert (raised.value.kind, len(server.requests), one.queue.in_flight) == ("busy", 1, 0)


async def test_a_text_without_letters_is_empty_speech_and_not_sent() -> None:
    async with remote(status(500), kind="tts", voices=VOICES) as (endpoint, server):
        speech = await RemoteTextToSpeech(endpoint).synthesize("...", SETTINGS)
    assert (len(speech.samples), server.requests) == (0, [])


@pytest.mark.parametrize(
    "answer", [status(404), answers(b"{}"), answers(encode_wav(np.zeros(8000, np.int16), 8000)), answers(b"")]
)
async def test_a_response_without_speech_raises(answer: Answer) -> None:
    async with remote(answer, kind="tts", voices=VOICES) as (endpoint, _):
        with pytest.raises(ModelError):
            await RemoteTextToSpeech(endpoint).synthesize("Hello.", SETTINGS)


async def test_an_unknown_voice_raises() -> None:
    async with remote(status(500), kind="tts", voices=VOICES) as (endpoint, _):
        with pytest.raises(ModelError, match="no voice"):
            await RemoteTextToSpeech(endpoint).synthesize("Hello.", replace(SETTINGS, voice="gpu/other"))


# Embeddings.


def vectors(*items: object) -> Answer:
    return answers(json.dumps({"data": items}).encode())


async def test_texts_become_unit_vectors_in_order() -> None:
    answer = vectors({"index": 1, "embedding": [0, 2.0]}, {"index": 0, "embedding": [3, 4]})
    async with remote(answer, kind="embedding") as (endpoint, server):
        rows = await RemoteEmbeddings(endpoint).embed(["one", "two"], query=False)
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.0, 1.0]], rtol=1e-6)
    assert rows.dtype == np.float32
    assert json.loads(server.requests[0].partition(b"\r\n\r\n")[2])["input"] == ["one", "two"]


async def test_many_texts_are_sent_in_several_requests() -> None:
    answer = vectors(*({"index": place, "embedding": [1, 0]} for place in range(64)))
    async with remote(answer, kind="embedding") as (endpoint, server):
        assert (await RemoteEmbeddings(endpoint).embed(["text"] * 130, query=False)).shape == (130, 2)
        assert (await RemoteEmbeddings(endpoint).embed([], query=False)).shape == (0, 0)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "answer",
    [
        answers(b"{}"),
        answers(b'{"data": [7]}'),
        vectors(),
        vectors({"embedding": []}),
        vectors({"embedding": ["x"]}),
        vectors({"embedding": [0, 0]}),
        answers(b'{"data": [{"embedding": [NaN]}]}'),
        answers(b'{"data": [{"embedding": [1e999]}]}'),
        answers(b'{"data": [{"embedding": [1' + b"0" * 400 + b"]}]}"),
        vectors({"index": 0, "embedding": [1] * 20_000}),
        vectors({"index": [], "embedding": {}}),
    ],
)
async def test_invalid_vectors_raise(answer: Answer) -> None:
    async with remote(answer, kind="embedding") as (endpoint, _):
        with pytest.raises(RemoteModelError):
            await RemoteEmbeddings(endpoint).embed(["text"], query=False)
