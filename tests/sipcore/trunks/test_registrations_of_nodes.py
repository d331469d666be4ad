"""A trunk that several nodes use and one registers: it begins and ends here while calls go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sipcore.trunks.trunk import Trunk, TrunkStatus
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_registrar import RawRegistrar, accept_contacts
from tests.sipcore.trunks.test_account_ids import number_of
from tests.sipcore.trunks.test_registration_client import SETTINGS, TrunkWatcher, trunk_at, watch

__all__ = ["SETTINGS", "watch"]
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_registration_moves_between_nodes_without_another_account(watch: TrunkWatcher, phone: Phone) -> None:
    async with RawRegistrar(accept_contacts()) as registrar:
        here = trunk_at(registrar)
        elsewhere = replace(here, registers_here=False)
        await watch.endpoint.set_trunks([elsewhere])
        account = number_of(phone, here.key)
        assert watch.endpoint.trunk_status(here.key) == TrunkStatus("listening", "another node registers it")
        expiries = []
        for trunk in (here, elsewhere, here):
            await watch.endpoint.set_trunks([trunk])
            expiries.append((await registrar.next_request()).header("Expires"))
            if trunk.registers_here:
                await watch.until("registered")
            else:
                await _ended(watch, here)
        assert expiries == ["300", "0", "300"]
        assert number_of(phone, here.key) == account
        assert registrar.got.empty()


async def test_a_registration_that_comes_back_while_it_ends_is_bound_at_last(watch: TrunkWatcher) -> None:
    async with RawRegistrar(accept_contacts()) as registrar:
        here = trunk_at(registrar)
        await watch.endpoint.set_trunks([here])
        await watch.until("registered")
        await watch.endpoint.set_trunks([replace(here, registers_here=False)])
        await watch.endpoint.set_trunks([here])
        await watch.until("registered")
        requests = [await registrar.next_request() for _ in range(3)]
        assert sorted(requests, key=lambda each: int(each.header("CSeq").split()[0]))[-1].header("Expires") == "300"


async def _ended(watch: TrunkWatcher, trunk: Trunk) -> None:
    trunks = watch.endpoint._trunk_accounts
    assert trunks
    unregistered = trunks._entries[trunk.key].unregistered
    assert unregistered
    await unregistered
