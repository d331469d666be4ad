"""The SIP side of a server: the endpoint, its trunks, and the dialogs that a killed process has left."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass

from calls.admission.rejection import RETRY_AFTER_S
from calls.service import CallService
from calls.trunks.dialog_recovery import DialogRecorder, DialogRecovery
from config.settings import Settings
from sipcore.dialogs.leg import Leg
from sipcore.endpoint import Endpoint
from sipcore.trunks.registration_client import REGISTERS_PER_SECOND
from storage.calls.dialog_journal import DialogFiles
from trunkline.wiring.endpoint_settings import endpoint_settings
from trunkline.wiring.sip.trunks import TrunkComponents, carrier_accounts, open_trunks
from trunkline.wiring.storage.server_storage import ServerStorage


class IncomingLegs:
    """Hands incoming legs to the call service, which is created after the endpoint and before it accepts calls."""

    calls: CallService

    def handle(self, leg: Leg) -> None:
        """For the endpoint."""
        self.calls.on_incoming_call(leg)


@dataclass(frozen=True)
class SipStack:
    """The endpoint, which rejects calls for now, with its trunks."""

    endpoint: Endpoint
    incoming: IncomingLegs
    trunks: TrunkComponents


async def open_sip_stack(settings: Settings, storage: ServerStorage, stack: AsyncExitStack) -> SipStack:
    """Open it until `stack` is closed, and end the dialogs that a killed process has left: before the models load,
    which takes longer than peers may wait. Raises `StartupError`."""
    incoming = IncomingLegs()
    dialogs = DialogFiles(settings.data_dir)
    stack.push_async_callback(asyncio.to_thread, dialogs.close)
    endpoint = Endpoint(endpoint_settings(settings), incoming.handle, DialogRecorder(dialogs))
    await endpoint.start()
    endpoint.set_accepting(False, RETRY_AFTER_S)
    stack.push_async_callback(endpoint.close)
    carriers = await asyncio.to_thread(carrier_accounts, settings.providers)
    registrations = storage.membership.share("registration", REGISTERS_PER_SECOND, takes_part=not settings.standby)
    trunks = open_trunks(settings, storage.database, storage.secrets, endpoint, stack, carriers, registrations)
    await trunks.sources.refresh()  # they get 503 while the models load
    await _end_orphaned_dialogs(dialogs, trunks, endpoint, stack)
    return SipStack(endpoint, incoming, trunks)


async def _end_orphaned_dialogs(
    files: DialogFiles, trunks: TrunkComponents, endpoint: Endpoint, stack: AsyncExitStack
) -> None:
    """Send a BYE or CANCEL in every dialog that a killed process has left."""
    recovery = DialogRecovery(
        files, trunks.database, trunks.provisioner.builder, trunks.authorizer, endpoint.end_orphaned_dialog
    )
    stack.push_async_callback(recovery.close)
    await recovery.end_all()
