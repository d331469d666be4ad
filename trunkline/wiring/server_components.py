"""The components of a server, which are opened in this order and closed in reverse order."""

from __future__ import annotations

from dataclasses import dataclass

from trunkline.wiring.call_components import CallComponents
from trunkline.wiring.models.server_models import ServerModels
from trunkline.wiring.sip.sip_stack import SipStack
from trunkline.wiring.storage.server_storage import ServerStorage


@dataclass(frozen=True)
class ServerComponents:
    """The open components."""

    storage: ServerStorage
    sip: SipStack
    models: ServerModels
    calls: CallComponents
