"""The configuration file of a Piper voice: `*.onnx.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from models.tts.piper.phoneme_ids import BEGIN, END, PAD

_REMEDY: Final = "run `trunkline models verify`, and pull the voice again"


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Audio(_Part):
    sample_rate: Annotated[int, Field(ge=8000, le=48000)]
    quality: Annotated[str, Field(max_length=40)] | None = None


class _Espeak(_Part):
    voice: Annotated[str, Field(pattern=r"\A[A-Za-z0-9_-]{1,40}\z")]


class _Language(_Part):
    code: str


class _Inference(_Part):
    noise_scale: Annotated[float, Field(ge=0, le=2)] = 0.667
    length_scale: Annotated[float, Field(gt=0, le=4)] = 1.0
    noise_w: Annotated[float, Field(ge=0, le=2)] = 0.8


class VoiceConfig(_Part):
    """The training settings of a voice. Ids are below `num_symbols` and `num_speakers`."""

    audio: _Audio
    espeak: _Espeak
    language: _Language | None = None
    inference: _Inference = _Inference()
    phoneme_type: Literal["espeak", "text", "hebrew"] = "espeak"
    phoneme_id_map: dict[str, Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]]
    num_symbols: Annotated[int, Field(ge=1)]
    num_speakers: Annotated[int, Field(ge=1)] = 1
    speaker_id_map: dict[str, Annotated[int, Field(ge=0)]] = {}
    default_speaker_id: Annotated[int, Field(ge=0)] = 0
    hop_length: Annotated[int, Field(ge=1)] = 256
    vowel_clusters: frozenset[Annotated[tuple[str, ...], Field(min_length=2)]] | None = None
    """Sequences of phonemes that are one phoneme of the voice, such as diphthongs."""

    @model_validator(mode="after")
    def _validate_ids(self) -> Self:
        missing = {PAD, BEGIN, END} - self.phoneme_id_map.keys()
        if missing:
            raise ValueError(f"phoneme_id_map has no {' '.join(sorted(missing))}")
        if any(each >= self.num_symbols for ids in self.phoneme_id_map.values() for each in ids):
            raise ValueError("phoneme_id_map has an id that is not below num_symbols")
        if any(each >= self.num_speakers for each in (*self.speaker_id_map.values(), self.default_speaker_id)):
            raise ValueError("speaker_id_map has an id that is not below num_speakers")
        return self

    @property
    def speakers(self) -> dict[str, int]:
        """Speaker ids by name, the default first; {} for a voice with one speaker."""
        if self.num_speakers == 1:
            return {}
        names = self.speaker_id_map or {str(number): number for number in range(self.num_speakers)}
        return dict(sorted(names.items(), key=lambda each: (each[1] != self.default_speaker_id, each[1])))

    @property
    def language_tag(self) -> str:
        """The BCP 47 tag of its language."""
        return (self.language.code if self.language else self.espeak.voice).replace("_", "-")


def read_config(path: Path) -> VoiceConfig:
    """Read a voice's settings. Raises `ValueError`: one line."""
    try:
        return VoiceConfig.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): {_REMEDY}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(
            f"{path} is not a Piper voice's configuration ({where + ': ' if where else ''}{first['msg']}): {_REMEDY}"
        ) from error
