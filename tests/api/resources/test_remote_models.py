"""`/v1/remote-models`: where remote models are, without their keys, and how their last request ended."""

from __future__ import annotations

from api.schemas.remote_models import remote_model_id
from config.errors import ModelError
from storage.agents import remote_models
from storage.agents.remote_models import StoredRemoteModel
from tests.api.auth.test_user_sessions import signed_in
from tests.api.conftest import Api, StartApi

GPU = StoredRemoteModel(
    name="gpu", kind="llm", base_url="https://gpu.example/v1", model="large", key_encrypted="encrypted-key",
    extra={"secret": "hush"},
)  # fmt: skip


async def test_a_test_request_is_told_and_remembered(start_api: StartApi) -> None:
    answers = ["first token after 9 ms"]

    async def probe(name: str) -> str:
        if not answers:
            raise ModelError(f"{name} cannot be reached")
        return answers.pop()

    api: Api = await start_api(probe_remote_model=probe)
    await api.services.database.write(lambda conn: remote_models.add(conn, GPU))
    user = await signed_in(api, "operator")
    (shown,) = (await user("GET", "/v1/remote-models"))[1]["data"]
    assert (shown["url"], shown["hasKey"], shown["lastRequest"]) == ("https://gpu.example/v1", True, None)
    assert "encrypted-key" not in str(shown) and "hush" not in str(shown)
    path = f"/v1/remote-models/{remote_model_id('gpu')}/test"
    for answer, problem in (("first token after 9 ms", None), (None, "gpu cannot be reached")):
        assert await user("POST", path) == (201, {"data": {"answer": answer, "problem": problem}})
        (shown,) = (await user("GET", "/v1/remote-models"))[1]["data"]
        assert shown["lastRequest"]["problem"] == problem
    assert (await user("POST", f"/v1/remote-models/{remote_model_id('other')}/test"))[0] == 404
