"""The PBX Asterisk, from the Debian folder that `scripts/asterisk.sh` creates; each instance is a process of its
own."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.peers.ports import free_port
from tests.peers.process import Process

_SCRIPT = Path(__file__).parents[2] / "scripts/asterisk.sh"
_MODULES = (
    "res_sorcery_astdb res_sorcery_config res_sorcery_memory res_timing_timerfd res_pjproject res_pjsip "
    "res_pjsip_session res_pjsip_sdp_rtp res_pjsip_authenticator_digest res_pjsip_outbound_authenticator_digest "
    "res_pjsip_endpoint_identifier_ip res_pjsip_endpoint_identifier_user res_pjsip_outbound_registration "
    "res_pjsip_registrar res_pjsip_caller_id res_pjsip_nat res_pjsip_refer res_pjsip_rfc3326 res_pjsip_diversion "
    "res_pjsip_header_funcs res_pjsip_dtmf_info res_pjsip_dlg_options res_rtp_asterisk res_srtp res_crypto "
    "res_musiconhold res_pjsip_pubsub chan_pjsip pbx_config bridge_simple bridge_native_rtp bridge_softmix "
    "bridge_builtin_features app_dial app_echo app_playback app_read app_record app_senddtmf app_stack app_verbose "
    "app_system app_transfer app_bridgewait app_queue app_directed_pickup app_voicemail res_clioriginate app_milliwatt "
    "app_mixmonitor func_callerid func_channel func_strings func_hangupcause func_logic codec_ulaw codec_alaw "
    "codec_g722 codec_gsm codec_resample codec_opus_open_source format_wav format_pcm format_sln format_gsm"
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="Asterisk runs in a folder of its own, which needs root")


@functools.cache
def _root() -> Path:
    printed = subprocess.run([str(_SCRIPT)], check=True, capture_output=True, text=True).stdout
    return Path(printed.splitlines()[-1])


class Asterisk(Process):
    """Asterisk with these configuration files, in which `{port}`, `{folder}` and the names of `values` are replaced.
    `port` is its SIP port. Its folder is `inside` for Asterisk, which runs in a chroot, and `spool` for the test."""

    def __init__(self, files: Mapping[str, str], **values: object) -> None:
        super().__init__()
        self.port = free_port()
        self._root = _root()
        self._own = Path(tempfile.mkdtemp(prefix="trunkline-", dir=self._root / "var/tmp"))
        self.inside = f"/{self._own.relative_to(self._root)}"
        """Its folder as a path in the chroot."""
        self._files = files
        self._values = {"port": self.port, "folder": self.inside, **values}

    @property
    def spool(self) -> Path:
        """The same folder as a path of the system: recordings, sounds, call files."""
        return self._own

    async def __aenter__(self) -> Asterisk:
        rtp = free_port()
        (self._own / "asterisk.conf").write_text(self._directories())
        modules = "".join(f"load => {name}.so\n" for name in _MODULES.split())
        (self._own / "modules.conf").write_text(f"[modules]\nautoload=no\n{modules}")
        (self._own / "logger.conf").write_text("[logfiles]\nconsole => notice,warning,error,verbose(3)\n")
        (self._own / "rtp.conf").write_text(f"[general]\nrtpstart={rtp}\nrtpend={rtp + 200}\nstrictrtp=yes\n")
        (self._own / "pjproject.conf").write_text("")
        (self._own / "musiconhold.conf").write_text("")
        for name, text in self._files.items():
            for key, value in self._values.items():
                text = text.replace(f"{{{key}}}", str(value))
            (self._own / name).write_text(text)
        await self.start("chroot", str(self._root), "asterisk", "-C", f"{self.inside}/asterisk.conf", "-f", "-vvv")
        await self._booted()
        return self

    async def close(self) -> None:
        await super().close()
        shutil.rmtree(self._own)

    async def cli(self, command: str) -> str:
        """Runs a console command. Returns its output."""
        child = await asyncio.create_subprocess_exec(
            "chroot", str(self._root), "asterisk", "-C", f"{self.inside}/asterisk.conf", "-rx", command,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        printed, _ = await asyncio.wait_for(child.communicate(), 10)
        return printed.decode(errors="replace")

    async def originate(self, extension: str, *, context: str = "from-tests") -> None:
        """Originates a call that dials `extension` in `context` and connects it to `context`'s extension `talk`."""
        printed = await self.cli(f"channel originate Local/{extension}@{context} extension talk@{context}")
        assert "fail" not in printed.lower(), printed

    async def _booted(self) -> None:
        async with asyncio.timeout(20):
            while "fully booted" not in await self.cli("core waitfullybooted"):
                if self.child.returncode is not None:
                    raise AssertionError(f"Asterisk: exit {self.child.returncode}\n{self.output()}")
                await asyncio.sleep(0.05)  # the control socket does not exist yet

    def _directories(self) -> str:
        modules = next(self._root.glob("usr/lib/*/asterisk/modules"))
        own = ("astetcdir", "astdbdir", "astrundir", "astspooldir", "astlogdir")
        lines = [f"{name} => {self.inside}" for name in own]
        lines += [
            f"astmoddir => /{modules.relative_to(self._root)}",
            "astvarlibdir => /usr/share/asterisk",
            "astdatadir => /usr/share/asterisk",
            "astagidir => /usr/share/asterisk/agi-bin",
            "astkeydir => /var/lib/asterisk",
        ]
        return "\n".join(("[directories]", *lines, "[options]", "nocolor = yes", ""))
