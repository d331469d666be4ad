"""Fits `models/stt/pocketsphinx/narrowband_adaptation.json`: the difference of the recognizer's features between
telephone-band and full-band audio.

The features of the same speech (flite's voices) are computed twice, in full band and after a telephone line and
`NarrowbandInput`; the linear map from the one's cepstra to the other's, by least squares, is applied to the model's
means.

    python -m bench.models.fit_telephone_band > models/stt/pocketsphinx/narrowband_adaptation.json

`--sentences N` uses only the first N sentences, which proves that it works.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

from media.audio_port import Samples
from models.stt.pocketsphinx.bindings import Decoder, load_library, model_path
from models.stt.pocketsphinx.dither import WidebandInput
from models.stt.pocketsphinx.narrowband_adaptation import NarrowbandInput
from models.tts.flite.bindings import VOICES, FliteLibrary

SENTENCES = (
    "the quick brown fox jumps over the lazy dog while seven wizards watch the moon",
    "she sells fresh vegetables and cheese at the market every thursday morning",
    "we usually measure the pressure before the machine starts working again",
    "my father thought that both brothers should join the navy next year",
    "please send the package to the third house on the left side of the street",
    "they found a strange object floating above the ocean near the island",
    "judge george asked the witness whether the vehicle had stopped",
    "our new software has been changed since the last version was published",
    "in the evening the children enjoy playing music and singing old songs",
    "six hundred people finished the race before five o'clock in the afternoon",
    "a huge yellow bird was sitting on the roof of the church",
    "the young engineer explained how the engine works and why it failed",
    "you could choose between fish soup and beef with potatoes for lunch",
    "i hope that nothing bad happened to you during the storm last night",
    "his voice was so quiet that hardly anybody in the room could hear it",
    "the doctor gave her some medicine against the cough and the fever",
)
Cepstra = NDArray[np.float64]


class FrontEnd:
    """The recognizer's own features, read from its feature log."""

    def __init__(self, folder: Path) -> None:
        models = model_path()
        options = {"hmm": models / "en-us", "dict": models / "cmudict-en-us.dict", "keyphrase": "hello"}
        self._folder = folder
        self._decoder = Decoder(load_library(), {k: str(v) for k, v in (options | {"mfclogdir": folder}).items()})

    def cepstra(self, samples: Samples) -> Cepstra:
        """`int16[n]` at 16 kHz -> `float64[frames, 13]`."""
        self._decoder.start(None)
        self._decoder.process(samples)
        self._decoder.end()
        (log,) = self._folder.glob("*.mfc")
        values = np.frombuffer(log.read_bytes()[4:], ">f4").reshape(-1, 13).astype(np.float64)
        log.unlink()
        return values


def telephone_audio(samples: Samples) -> Samples:
    """Audio at 16 kHz after an 8 kHz mu-law line and `NarrowbandInput`, without the filters' delay."""
    narrow = np.clip(soxr.resample(samples / 32768, 16000, 8000), -1, 1)
    code = np.rint(np.sign(narrow) * np.log1p(255 * np.abs(narrow)) / np.log(256) * 127) / 127
    line = (np.sign(code) * (256 ** np.abs(code) - 1) / 255 * 32767).astype(np.int16)
    delay = 2 * 80 + 31
    return NarrowbandInput().push(np.pad(line, (0, 200)))[delay:][: len(samples)]


def speech_frames(wide: Cepstra, narrow: Cepstra) -> tuple[Cepstra, Cepstra]:
    """The frames of both that are speech (the louder four fifths), minus their means."""
    count = min(len(wide), len(narrow))
    wide, narrow = wide[:count], narrow[:count]
    loud = wide[:, 0] > np.percentile(wide[:, 0], 20)
    return (wide - wide.mean(axis=0))[loud], (narrow - narrow.mean(axis=0))[loud]


def main() -> None:
    """Fits the map; prints it as JSON on stdout, and the share of the variance that remains on stderr."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=len(SENTENCES))
    sentences = SENTENCES[: parser.parse_args().sentences]
    library = FliteLibrary()
    full, line, means = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        front_end = FrontEnd(Path(folder))
        for voice in VOICES:
            for text in sentences:
                speech = np.pad(library.speak(text, voice, 1.0).samples, 3200)
                narrow = front_end.cepstra(telephone_audio(speech))
                wide, telephone = speech_frames(front_end.cepstra(WidebandInput().push(speech)), narrow)
                full.append(wide)
                line.append(telephone)
                means.append(narrow.mean(axis=0))
    x, y = np.vstack(full), np.vstack(line)
    solution = np.linalg.lstsq(np.c_[x, np.ones(len(x))], y, rcond=None)[0]
    residual = np.var(y - np.c_[x, np.ones(len(x))] @ solution, axis=0) / np.var(y, axis=0)
    print(f"{len(x)} frames; residual variance: {residual.round(2).tolist()}", file=sys.stderr)
    result = {
        "means": solution[:-1].T.round(5).tolist(),
        "offsets": solution[-1].round(5).tolist(),
        "variances": [1.0] * 13,
        "channel_mean": np.mean(means, axis=0).round(1).tolist(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
