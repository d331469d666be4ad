"""The callee of outbound calls: a raw phone that responds to an INVITE as the test says."""

from __future__ import annotations

import re

from tests.sipcore.raw.raw_phone import Dialog, Message, RawPhone


class RawCallee:
    """One call to a `RawPhone`, from its INVITE on: `await RawCallee.wait_for_invite(phone)`."""

    def __init__(self, phone: RawPhone, invite: Message) -> None:
        self.phone = phone
        self.invite = invite
        self.dialog = Dialog(
            call_id=invite.header("Call-ID"),
            tag="callee",
            to=invite.header("From"),
            target=invite.header("Contact").split("<")[1].split(">")[0],
            routes=invite.routes,
        )

    @classmethod
    async def wait_for_invite(cls, phone: RawPhone, timeout_s: float = 20) -> RawCallee:
        """Wait for an INVITE, without a response."""
        while not (message := await phone.next_message(timeout_s)).first_line.startswith("INVITE "):
            pass
        return cls(phone, message)

    @property
    def number(self) -> str:
        """The user of the request URI."""
        return self.invite.first_line.split("sip:")[1].split("@")[0]

    def send_trying(self) -> None:
        """Send 100, which has no tag."""
        self._send("100 Trying", self.invite, tag="")

    def ring(self, sdp: str = "", status: str = "180 Ringing", *headers: str, tag: str | None = None) -> None:
        """Send a provisional response, with early media when there is an SDP answer; `tag` is that of a fork."""
        self._send(status, self.invite, sdp, tag=tag, headers=headers)

    def reject(self, status: str, *headers: str) -> None:
        """Send a final status that is no 2xx; its ACK stays in the queue."""
        self._send(status, self.invite, headers=headers)

    def answer(self, sdp: str | None = None, *headers: str, tag: str | None = None) -> None:
        """Send 200 with an SDP answer; our RTP goes to the offer's address. Its ACK stays in the queue."""
        self.learn_rtp_target()
        self._send("200 OK", self.invite, self.phone.offer("0") if sdp is None else sdp, tag=tag, headers=headers)

    def learn_rtp_target(self) -> None:
        """Send our RTP to the offer's address from now on."""
        port = re.search(r"m=audio (\d+)", self.invite.body)
        host = re.search(r"c=IN IP[46] (\S+)", self.invite.body)
        assert port and host
        self.phone._rtp_target = (host[1], int(port[1]))

    def accept(self, request: Message, sdp: str = "") -> None:
        """Send 200 to a CANCEL or a BYE."""
        self._send("200 OK", request, sdp)

    async def next_request(self, method: str) -> Message:
        """The next request with this method; others are skipped."""
        while not (message := await self.phone.next_message()).first_line.startswith(f"{method} "):
            pass
        return message

    async def expect_cancel(self) -> None:
        """Wait for the CANCEL, and end the INVITE with 487."""
        self.accept(await self.next_request("CANCEL"))
        self.reject("487 Request Terminated")

    async def expect_bye(self) -> None:
        """Wait for the BYE and accept it."""
        self.accept(await self.next_request("BYE"))

    async def hang_up(self) -> None:
        """Send BYE, which must be accepted."""
        self.phone.send(self.request("BYE"))
        assert (await self.phone.final_response("BYE")).status == 200

    async def reinvite(self, sdp: str, answer: str = "") -> Message:
        """Send a re-INVITE; returns its final response, which is acknowledged, with an answer if it has the offer."""
        branch = self.phone.branch()
        self.phone.send(self.request("INVITE", sdp, branch=branch))
        response = await self.phone.final_response("INVITE")
        self.phone.send(self.request("ACK", answer, branch=branch if response.status >= 300 else ""))
        return response

    def request(self, method: str, body: str = "", headers: tuple[str, ...] = (), branch: str = "") -> bytes:
        """A request of the callee within the call. ACK has the CSeq number of the request before it."""
        self.dialog.cseq += method != "ACK"
        spelled = self.phone.request(method, self.dialog, body=body, headers=headers, branch=branch).decode()
        ours = f"From: {self.invite.header('To')};tag={self.dialog.tag}"
        return re.sub(r"^From: .*?(?=\r)", lambda _: ours, spelled, count=1, flags=re.MULTILINE).encode()

    def _send(
        self, status: str, request: Message, sdp: str = "", *, tag: str | None = None, headers: tuple[str, ...] = ()
    ) -> None:
        tag = self.dialog.tag if tag is None else tag
        to = request.header("To")
        lines = [
            f"SIP/2.0 {status}",
            *(line for name in ("Via", "Record-Route", "From", "Call-ID", "CSeq") for line in request.headers(name)),
            f"To: {to}" if not tag or "tag=" in to else f"To: {to};tag={tag}",
            *([] if status.startswith("3") else [f"Contact: {self.phone.contact}"]),
            *headers,
            *(["Content-Type: application/sdp"] if sdp else []),
            f"Content-Length: {len(sdp.encode())}",
        ]
        self.phone.send(("\r\n".join(lines) + "\r\n\r\n" + sdp).encode())
