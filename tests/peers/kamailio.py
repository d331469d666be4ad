"""Kamailio, as Debian packages it, as registrar and proxy with digest authentication."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Mapping
from typing import Any, Self
from uuid import uuid4

from tests.peers.ports import free_port
from tests.peers.process import Process

_CONFIG = """
#!KAMAILIO
debug=1
log_stderror=yes
children=2
tcp_children=2
auto_aliases=no
tcp_connection_lifetime=300
{listen}
alias="{realm}"
{settings}
loadmodule "kex.so"
loadmodule "jsonrpcs.so"
loadmodule "tm.so"
loadmodule "sl.so"
loadmodule "rr.so"
loadmodule "pv.so"
loadmodule "maxfwd.so"
loadmodule "textops.so"
loadmodule "siputils.so"
loadmodule "xlog.so"
loadmodule "htable.so"
loadmodule "usrloc.so"
loadmodule "registrar.so"
loadmodule "auth.so"
modparam("jsonrpcs", "transport", 4)
modparam("jsonrpcs", "dgram_socket", "{folder}/rpc")
modparam("jsonrpcs", "dgram_workers", 1)
modparam("htable", "htable", "passwords=>size=8;")
modparam("htable", "htable", "numbers=>size=8;")
modparam("htable", "htable", "routes=>size=8;")
modparam("usrloc", "timer_interval", 1)
modparam("registrar", "max_expires", {max_expires})
modparam("registrar", "min_expires", {min_expires})
modparam("auth", "nonce_expire", {nonce_expire_s})
modparam("auth", "algorithm", "{algorithm}")
modparam("rr", "enable_full_lr", 1)

request_route {{
    if (!mf_process_maxfwd_header("10")) {{ sl_send_reply("483", "Too Many Hops"); exit; }}
    if (is_method("CANCEL")) {{ if (t_check_trans()) {{ t_relay(); }} exit; }}
    if (has_totag()) {{
        loose_route();
        t_relay();
        exit;
    }}
    if (is_method("OPTIONS")) {{ sl_send_reply("200", "OK"); exit; }}
    remove_hf("Route");
    if (is_method("REGISTER")) {{
        if (!pv_auth_check("{realm}", "$sht(passwords=>$au)", "0", "0")) {{ auth_challenge("{realm}", "0"); exit; }}
        if ($au != $tU) {{ sl_send_reply("403", "Forbidden"); exit; }}
        save("location");
        exit;
    }}
    if (!is_method("INVITE")) {{ sl_send_reply("405", "Method Not Allowed"); exit; }}
    if ($sht(numbers=>$rU) != $null) {{
        if (!lookup("location", "sip:$sht(numbers=>$rU)@{realm}")) {{ sl_send_reply("404", "Not Found"); exit; }}
    }} else {{
        if (!pv_auth_check("{realm}", "$sht(passwords=>$au)", "0", "0")) {{ proxy_challenge("{realm}", "0"); exit; }}
        consume_credentials();
        if ($sht(routes=>$rU) == $null) {{ sl_send_reply("404", "Not Found"); exit; }}
        $du = $sht(routes=>$rU);
    }}
    record_route();
    t_relay();
}}

event_route[htable:mod-init] {{
{tables}
    return;
}}
"""


class Kamailio(Process):
    """A registrar and proxy on loopback; use `async with`. It routes an INVITE for one of `numbers` to the registered
    contact of its user without authentication; every other INVITE is challenged (407) and routed by `routes`."""

    def __init__(
        self,
        passwords: Mapping[str, str],
        *,
        numbers: Mapping[str, str] | None = None,
        routes: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        realm: str = "pbx.example.net",
        algorithm: str = "",
        min_expires: int = 5,
        max_expires: int = 3600,
        nonce_expire_s: int = 300,
        settings: str = "",
    ) -> None:
        """`passwords` by user; `numbers`: the user of each number; `routes`: a `sip:` URI by dialled number;
        `settings`: additional lines of the configuration."""
        super().__init__()
        self.host = host
        self.port = free_port(host)
        self._parameters: dict[str, object] = {
            "realm": realm, "algorithm": algorithm, "min_expires": min_expires, "max_expires": max_expires,
            "nonce_expire_s": nonce_expire_s, "settings": settings,
        }  # fmt: skip
        self._tables = {"passwords": dict(passwords), "numbers": dict(numbers or {}), "routes": dict(routes or {})}

    @property
    def target(self) -> str:
        """host:port."""
        return f"{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        tables = [
            f'    $sht({table}=>{key}) = "{value}";'
            for table, rows in self._tables.items()
            for key, value in rows.items()
        ]
        listen = "\n".join(f"listen={kind}:{self.target}" for kind in ("udp", "tcp"))
        config = _CONFIG.format(listen=listen, folder=self.folder, tables="\n".join(tables), **self._parameters)
        (self.folder / "kamailio.cfg").write_text(config.lstrip())
        await self.start(
            "kamailio", "-DD", "-E", "-f", str(self.folder / "kamailio.cfg"), "-P", str(self.folder / "pid"),
            "-Y", str(self.folder), "-m", "32", "-M", "4", "-w", str(self.folder),
        )  # fmt: skip
        async with asyncio.timeout(10):
            while True:
                try:
                    await self.rpc("core.version")
                except OSError:
                    if self.child.returncode is not None:
                        raise AssertionError(f"kamailio: exit {self.child.returncode}\n{self.output()}") from None
                    await asyncio.sleep(0.02)  # there is no event for it
                else:
                    return self

    async def rpc(self, method: str, *parameters: object) -> Any:
        """Calls a JSON-RPC method. Raises `OSError` while Kamailio does not listen, `AssertionError` for an error
        response."""
        loop = asyncio.get_running_loop()
        client_path = self.folder / f"client-{uuid4().hex[:8]}"  # unique, because calls may be concurrent
        with (
            contextlib.ExitStack() as stack,
            contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as client,
        ):
            client.setblocking(False)
            client.bind(str(client_path))
            stack.callback(client_path.unlink)
            client.connect(str(self.folder / "rpc"))
            await loop.sock_sendall(
                client, json.dumps({"jsonrpc": "2.0", "method": method, "params": parameters, "id": 1}).encode()
            )
            response = json.loads(await asyncio.wait_for(loop.sock_recv(client, 1 << 20), 5))
        if "error" in response:
            raise AssertionError(f"kamailio: {method}: {response['error']}")
        return response["result"]

    async def set_password(self, user: str, password: str) -> None:
        """Sets the password of a user."""
        await self.rpc("htable.sets", "passwords", user, password)

    async def set_route(self, number: str, uri: str) -> None:
        """Sets the route of a dialled number."""
        await self.rpc("htable.sets", "routes", number, uri)

    async def all_contacts(self) -> dict[str, list[str]]:
        """The registered contact URIs that have not expired, by user."""
        aors = [each["Info"] for domain in (await self.rpc("ul.dump"))["Domains"] for each in domain["Domain"]["AoRs"]]
        contacts = {aor["AoR"]: [each["Contact"] for each in aor["Contacts"]] for aor in aors}
        return {
            user: [each["Address"] for each in found if each["Expires"] not in ("expired", "deleted")]
            for user, found in contacts.items()
        }

    async def contacts(self, user: str) -> list[str]:
        """The registered contact URIs of a user that have not expired."""
        return (await self.all_contacts()).get(user, [])

    async def wait_for_contacts(self, user: str, count: int = 1, timeout_s: float = 10) -> list[str]:
        """Waits until a user has `count` contacts. Returns them."""
        async with asyncio.timeout(timeout_s):
            while len(contacts := await self.contacts(user)) != count:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.02)
        return contacts
