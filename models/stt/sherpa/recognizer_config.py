"""The configuration of a sherpa-onnx recognizer for a model's files. Loads nothing itself: what is broken in a file may
end the process that loads it (`models.stt.sherpa.load_check`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from models.stt.sherpa.hotwords import SCORE

PREFIX: Final = "sherpa-onnx/"

Argument = str | int | float | bool


@dataclass(frozen=True)
class EngineSpec:
    """The maker of an engine's recognizers: a class method of sherpa-onnx, the file roles that it takes by its names
    for them, and what it is told besides. `biased`: it can be made to expect words."""

    maker: str
    files: Mapping[str, str]
    streaming: bool = False
    biased: bool = False
    besides: Mapping[str, Argument] = field(default_factory=dict)


_TRANSDUCER: Final = {"encoder": "encoder", "decoder": "decoder", "joiner": "joiner", "tokens": "tokens"}
_SINGLE: Final = {"model": "model", "tokens": "tokens"}
ENGINES: Final[Mapping[str, EngineSpec]] = {
    "zipformer": EngineSpec("from_transducer", _TRANSDUCER, streaming=True, biased=True),
    "streaming-nemo-transducer": EngineSpec("from_transducer", _TRANSDUCER, streaming=True),
    "zipformer-ctc": EngineSpec("from_zipformer2_ctc", _SINGLE, streaming=True),
    "streaming-nemo-ctc": EngineSpec("from_nemo_ctc", _SINGLE, streaming=True),
    "streaming-wenet-ctc": EngineSpec("from_wenet_ctc", _SINGLE, streaming=True),
    "streaming-paraformer": EngineSpec(
        "from_paraformer", {"encoder": "encoder", "decoder": "decoder", "tokens": "tokens"}, streaming=True
    ),
    "nemo-transducer": EngineSpec("from_transducer", _TRANSDUCER, besides={"model_type": "nemo_transducer"}),
    "nemo-ctc": EngineSpec("from_nemo_ctc", _SINGLE),
    "moonshine": EngineSpec(
        "from_moonshine",
        {role: role for role in ("preprocessor", "encoder", "uncached_decoder", "cached_decoder", "tokens")},
    ),
    "whisper": EngineSpec(
        "from_whisper",
        {"encoder": "encoder", "decoder": "decoder", "tokens": "tokens"},
        # 300 frames of silence after the turn are enough for it to end; without them each turn costs 30 s of work.
        besides={"language": "", "tail_paddings": 300},
    ),
    "sense-voice": EngineSpec("from_sense_voice", _SINGLE, besides={"use_itn": True}),
    "paraformer": EngineSpec("from_paraformer", {"model": "paraformer", "tokens": "tokens"}),
}
"""By what follows `sherpa-onnx/` in the name of a known model's engine."""


def is_streaming(engine: str) -> bool:
    """True if models of a known model's engine give words while the caller speaks; True for engines that there are
    none of here."""
    make = ENGINES.get(engine.removeprefix(PREFIX))
    return make is None or make.streaming


@dataclass(frozen=True)
class RecognizerConfig:
    """One recognizer: `arguments` go to `maker` of sherpa-onnx's `OnlineRecognizer` or `OfflineRecognizer`."""

    streaming: bool
    maker: str
    arguments: Mapping[str, Argument]

    def recognizer(self) -> Any:
        """Make it. Raises whatever sherpa-onnx raises, or ends the process."""
        import sherpa_onnx

        kind = sherpa_onnx.OnlineRecognizer if self.streaming else sherpa_onnx.OfflineRecognizer
        return getattr(kind, self.maker)(**self.arguments)


def recognizer_config(
    make: EngineSpec, paths: Mapping[str, str], threads: int, vocabulary: tuple[str, str] | None = None
) -> RecognizerConfig:
    """With files by their roles. `vocabulary`: the modeling unit and the file of scored tokens for hot words; without
    one the quicker search is used."""
    arguments: dict[str, Argument] = {name: paths[role] for role, name in make.files.items()}
    arguments |= {"num_threads": threads, **make.besides}
    if vocabulary is not None:
        unit, path = vocabulary
        arguments |= {"decoding_method": "modified_beam_search", "modeling_unit": unit, "bpe_vocab": path}
        arguments |= {"hotwords_score": SCORE}
    return RecognizerConfig(make.streaming, make.maker, arguments)
