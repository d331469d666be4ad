"""Load shedding by slow models: inbound calls get 503, and queued outbound calls wait."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
import pytest_asyncio

from config.settings import Settings
from models.loading.catalogue import Catalogue, LanguageModelInfo, language_model_id
from tests.fakes.fake_models import CertainStt, FragileTts, PromptedLlm
from tests.fakes.scripted_call import AlwaysEndOfTurn
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.callees import trunk_phone
from tests.trunkline.calls.test_outbound import body_for, start
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import calling, refusal

pytestmark = pytest.mark.asyncio(loop_scope="module")


class BusyLanguage(PromptedLlm):
    """A language model whose expected wait a test sets."""

    wait_s = 0.0

    def expected_wait_s(self) -> float:
        return self.wait_s


def busy_models(_: Settings) -> Catalogue:
    language = BusyLanguage()
    info = LanguageModelInfo(language_model_id(language.name), language.name, "builtin", 4096, True)
    return Catalogue(CertainStt(), {info: language}, [FragileTts()], AlwaysEndOfTurn())


@pytest.fixture(scope="module")
def no_smoothing() -> Iterator[None]:
    """No smoothing of the expected wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("calls.admission.load_shedding.SMOOTHING_S", 0.01)
        patch.setattr("calls.admission.load_shedding.SAMPLE_EVERY_S", 0.05)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory, no_smoothing: None) -> AsyncIterator[LocalServer]:
    folder = tmp_path_factory.mktemp("server")
    async with open_local_server(folder, busy_models, limits={"slow_answers": "refuse"}) as local_server:
        yield local_server


async def set_expected_wait(local_server: LocalServer, wait_s: float) -> None:
    """Set the models' expected wait, and wait until the server has sampled it."""
    language, since = local_server.language, local_server.log.mark()
    assert isinstance(language, BusyLanguage)
    language.wait_s = wait_s
    await local_server.log.event("models.slow" if wait_s else "models.keep_up_again", since=since)


async def options(local_server: LocalServer) -> int:
    """The status of the response to OPTIONS."""
    async with RawPhone(local_server.target) as phone:
        phone.send(phone.request("OPTIONS", phone.dialog()))
        return (await phone.final_response("OPTIONS")).status


async def page(local_server: LocalServer, path: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"{local_server.server.api_origin}/{path}") as answer:
        return await answer.text()


async def test_inbound_calls_get_503_while_the_expected_wait_is_too_long(
    local_server: LocalServer,
) -> None:
    line = await local_server.number_with_agent("Thank you.", customerSilenceMs=0)
    async with calling(local_server.target, line) as call:
        await set_expected_wait(local_server, 60.0)
        refused = await refusal(local_server.target, line)
        assert (refused.status, refused.header("Retry-After")) == (503, "10")
        assert await options(local_server) == 503
        assert "responses wait" in await page(local_server, "readyz")
        assert "trunkline_models_slow 1.0" in await page(local_server, "metrics")
        await call.hears(5)
        await set_expected_wait(local_server, 0.0)
        assert await options(local_server) == 200
        async with calling(local_server.target, line) as second:
            await second.hears(5)
            await second.hang_up()
        await call.hang_up()


async def test_outbound_calls_stay_queued_while_the_expected_wait_is_too_long(
    local_server: LocalServer,
) -> None:
    line = await local_server.number_with_agent("Thank you.", customerSilenceMs=0)
    async with trunk_phone(local_server.target) as phone, calling(local_server.target, line) as call:
        await set_expected_wait(local_server, 60.0)
        since = local_server.log.mark()
        call_id = await start(local_server, await body_for(local_server, phone.port))
        await local_server.log.event("call.waits_for_models", since=since)
        assert (await local_server.client.call(call_id))["status"] == "queued"
        await set_expected_wait(local_server, 0.0)
        callee = await phone.called()
        callee.ring()
        await local_server.log.event("call.ringing", call_id=call_id)
        await local_server.client.v1("POST", f"calls/{call_id}/hangup", {})
        await call.hang_up()


async def test_a_single_call_is_accepted_however_slow_the_models_are(local_server: LocalServer) -> None:
    line = await local_server.number_with_agent("Thank you.", customerSilenceMs=0)
    async with calling(local_server.target, line) as call:
        await set_expected_wait(local_server, 60.0)
        since = local_server.log.mark()
        await call.hang_up()
    await local_server.log.event("models.keep_up_again", since=since)
    async with calling(local_server.target, line) as alone:
        await alone.hears(5)
        await alone.hang_up()
    language = local_server.language
    assert isinstance(language, BusyLanguage)
    language.wait_s = 0.0
