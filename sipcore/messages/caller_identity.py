"""The identity headers of an outbound INVITE: From, P-Asserted-Identity (RFC 3325), Privacy (RFC 3323), Diversion (RFC
5806)."""

from __future__ import annotations

from dataclasses import dataclass

from sipcore.messages.headers import HeaderLines, NameAddr, format_name_addr


@dataclass(frozen=True)
class CallerIdentity:
    """The identity of an INVITE; its users need no escapes. `caller`: From. `asserted`: P-Asserted-Identity; None: as
    From. `diverted_by`: the number that the call was diverted from. `private`: the identity is not for the callee."""

    caller: NameAddr
    asserted: NameAddr | None = None
    diverted_by: NameAddr | None = None
    private: bool = False

    def header_lines(self, host: str) -> HeaderLines:
        """The headers beside From; `host` is the one of their URIs."""
        lines = [("P-Asserted-Identity", format_name_addr(self.asserted or self.caller, host))]
        if self.private:
            lines.append(("Privacy", "id"))
        if self.diverted_by is not None:
            lines.append(("Diversion", f"{format_name_addr(self.diverted_by, host)};reason=unconditional;counter=1"))
        return lines
