"""What a bundle tells of its models: `BUNDLE.json`, its first entry."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from config.errors import ModelFileError
from models.model_files.known_models import Name, Sha256

CONTENTS: Final = "BUNDLE.json"
"""The first entry: models with licences, languages, and the size and SHA-256 of each file."""
MAX_CONTENTS_BYTES: Final = 4 << 20


class BundledFile(BaseModel):
    """A file of a bundle; its entry is `MODEL/FILE`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Name
    size: Annotated[int, Field(ge=0)]
    sha256: Sha256


class BundledModel(BaseModel):
    """A model of a bundle, as far as an import needs it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Name
    files: tuple[BundledFile, ...]


class BundleContents(BaseModel):
    """The models of a bundle."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    models: tuple[BundledModel, ...]

    def file(self, model: str, name: str) -> BundledFile | None:
        """The file `model`/`name`; None if the bundle has none."""
        files = (file for each in self.models if each.name == model for file in each.files)
        return next((file for file in files if file.name == name), None)


def read_contents(text: bytes) -> BundleContents:
    """Reads `BUNDLE.json`. Raises `ModelFileError`."""
    try:
        return BundleContents.model_validate_json(text)
    except ValidationError as error:
        raise ModelFileError(f"{CONTENTS} is not one of `trunkline models bundle`: copy the bundle again") from error
