"""The configuration of a sherpa-onnx recognizer for a model's files. Loads nothing itself: a broken file may end the
process that loads it (`models.stt.sherpa.load_check`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from models.stt.sherpa.hotwords import SCORE

PREFIX: Final = "sherpa-onnx/"

Argument = str | int | float | bool


@dataclass(frozen=True)
class EngineSpec:
    """How an engine's recognizers are created: `maker`, a class method of sherpa-onnx; its arguments for the files, by
    their roles; and its other arguments. `supports_hotwords`: it can be biased towards words."""

    maker: str
    files: Mapping[str, str]
    streaming: bool = False
    supports_hotwords: bool = False
    other_arguments: Mapping[str, Argument] = field(default_factory=dict)


_TRANSDUCER: Final = {"encoder": "encoder", "decoder": "decoder", "joiner": "joiner", "tokens": "tokens"}
_SINGLE: Final = {"model": "model", "tokens": "tokens"}
ENGINES: Final[Mapping[str, EngineSpec]] = {
    "zipformer": EngineSpec("from_transducer", _TRANSDUCER, streaming=True, supports_hotwords=True),
    "streaming-nemo-transducer": EngineSpec("from_transducer", _TRANSDUCER, streaming=True),
    "zipformer-ctc": EngineSpec("from_zipformer2_ctc", _SINGLE, streaming=True),
    "streaming-nemo-ctc": EngineSpec("from_nemo_ctc", _SINGLE, streaming=True),
    "streaming-wenet-ctc": EngineSpec("from_wenet_ctc", _SINGLE, streaming=True),
    "streaming-paraformer": EngineSpec(
        "from_paraformer", {"encoder": "encoder", "decoder": "decoder", "tokens": "tokens"}, streaming=True
    ),
    "nemo-transducer": EngineSpec("from_transducer", _TRANSDUCER, other_arguments={"model_type": "nemo_transducer"}),
    "nemo-ctc": EngineSpec("from_nemo_ctc", _SINGLE),
    "moonshine": EngineSpec(
        "from_moonshine",
        {role: role for role in ("preprocessor", "encoder", "uncached_decoder", "cached_decoder", "tokens")},
    ),
    "whisper": EngineSpec(
        "from_whisper",
        {"encoder": "encoder", "decoder": "decoder", "tokens": "tokens"},
        # 300 frames of silence are enough to end a turn; by default each turn would be padded to 30 s.
        other_arguments={"language": "", "tail_paddings": 300},
    ),
    "sense-voice": EngineSpec("from_sense_voice", _SINGLE, other_arguments={"use_itn": True}),
    "paraformer": EngineSpec("from_paraformer", {"model": "paraformer", "tokens": "tokens"}),
}
"""By the part of a known model's engine name after `sherpa-onnx/`."""


def is_streaming(engine: str) -> bool:
    """True if models of a known model's engine give partial results; True also for unknown engines."""
    spec = ENGINES.get(engine.removeprefix(PREFIX))
    return spec is None or spec.streaming


@dataclass(frozen=True)
class RecognizerConfig:
    """One recognizer: `arguments` go to `maker` of sherpa-onnx's `OnlineRecognizer` or `OfflineRecognizer`."""

    streaming: bool
    maker: str
    arguments: Mapping[str, Argument]

    def create(self) -> Any:
        """Create the recognizer. Raises sherpa-onnx's errors, or ends the process."""
        import sherpa_onnx

        kind = sherpa_onnx.OnlineRecognizer if self.streaming else sherpa_onnx.OfflineRecognizer
        return getattr(kind, self.maker)(**self.arguments)


def recognizer_config(
    spec: EngineSpec, paths: Mapping[str, str], threads: int, vocabulary: tuple[str, str] | None = None
) -> RecognizerConfig:
    """`paths` by their roles. `vocabulary`: the modeling unit and the file of scored tokens for hot words; without them
    the quicker search is used."""
    arguments: dict[str, Argument] = {name: paths[role] for role, name in spec.files.items()}
    arguments |= {"num_threads": threads, **spec.other_arguments}
    if vocabulary is not None:
        unit, path = vocabulary
        arguments |= {"decoding_method": "modified_beam_search", "modeling_unit": unit, "bpe_vocab": path}
        arguments |= {"hotwords_score": SCORE}
    return RecognizerConfig(spec.streaming, spec.maker, arguments)
