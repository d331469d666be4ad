"""What an operator has to know of a stored remote model: problems of its address, and why it must not be removed."""

from __future__ import annotations

from urllib.parse import urlsplit

from calls.http_egress.address_rules import HttpEgressRules
from config.settings_tables import ModelSettings
from models.model_files.known_models import is_loopback
from storage.agents.remote_models import StoredRemoteModel


def remote_model_warnings(stored: StoredRemoteModel, rules: HttpEgressRules) -> list[str]:
    """What the operator has to know of a model's address: the settings refuse it, or it sends the key unencrypted. No
    name is looked up."""
    parts, warnings = urlsplit(stored.base_url), []
    refused = rules.refused_host(parts.hostname or "")
    if refused is not None:
        address = refused.partition("%")[0]
        cidr = f"{address}/{32 if '.' in address and ':' not in address else 128}"
        warnings.append(
            f'{address} is refused until the settings list it: [egress] allow = ["{cidr}"] '
            f"(TRUNKLINE_EGRESS__ALLOW='[\"{cidr}\"]'). Tools and webhooks may then connect to it too"
        )
    if stored.key_encrypted is not None and parts.scheme == "http" and not is_loopback(stored.base_url):
        warnings.append(
            "the key and all content are sent unencrypted: use https if others can read the network traffic"
        )
    return warnings


def obstacle_to_removal(name: str, settings: ModelSettings) -> str | None:
    """Why a remote model must not be removed: the server does not start while a setting names a model that does not
    exist. None if it may be removed."""
    named = ((each, value if isinstance(value, tuple) else (value,)) for each, value in settings.model_dump().items())
    setting = next((each for each, values in named if name in values), None)
    if setting is None:
        return None
    return f"The settings name it: [models] {setting}. Name another model there, and restart the server"
