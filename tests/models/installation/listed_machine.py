"""A folder of models whose list has one model, and its installer."""

from __future__ import annotations

import json
from pathlib import Path

from models.installation.installer import ModelInstaller
from models.loading.catalogue import VoiceInfo, voice_id
from models.loading.model_usage import ModelUsage
from models.model_files.known_models import OPERATOR_LIST, KnownModel

GGUF = b"GGUF" + bytes(100)
"""The beginning of a language model's file, as far as an import looks."""


def installer_of(folder: Path, model: KnownModel) -> ModelInstaller:
    """An installer without reserve, of a server that has loaded the voice `piper/anna`."""
    folder.mkdir()
    (folder / OPERATOR_LIST).write_text(json.dumps([json.loads(model.model_dump_json(exclude_none=True))]))
    usage = ModelUsage({}, [VoiceInfo(voice_id("piper/anna"), "piper/anna", "en", "piper")])
    return ModelInstaller(folder, lambda: usage, lambda: 0, named_by_settings={}, reserve_bytes=0, keep_free=0)
