"""The remedy for absent packages fits the checkout or the service that lacks them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from config.optional_packages import INSTALL_COMMAND, install_command
from scripts import sbom

ROOT: Final = Path(__file__).parents[2]


def test_a_checkout_and_a_service_have_different_remedies(tmp_path: Path) -> None:
    assert install_command(ROOT) == INSTALL_COMMAND == "scripts/venv.sh cluster"
    assert install_command(tmp_path).startswith("scripts/venv.sh cluster && sudo make install")


def test_services_packages_and_images_have_the_packages_and_are_audited_with_them() -> None:
    texts = {name: (ROOT / name).read_text() for name in ("scripts/install.sh", "scripts/supply.sh")}
    for lock in sbom.LOCKS:
        assert all(lock in text for text in texts.values()), lock
    assert "venv.sh cluster &&" in (ROOT / "Dockerfile").read_text()
    deb = (ROOT / "Makefile").read_text().partition("\ndeb:")[2].partition("\n\n")[0]
    assert "venv.sh cluster" in deb
