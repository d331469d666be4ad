"""The caller id of a transfer's second leg."""

from __future__ import annotations

from calls.call_record import sip_metadata
from sipcore.dialogs.leg import InviteFacts
from sipcore.messages.caller_identity import CallerIdentity
from sipcore.messages.captured_headers import is_phone_number
from sipcore.messages.headers import NameAddr
from storage.calls.calls import Call
from storage.phone_numbers.phone_numbers import PhoneNumber

_ANONYMOUS = NameAddr(sip_metadata.ANONYMOUS, "Anonymous")
"""RFC 3323, 4.1.1.3."""


def second_leg_identity(parent: Call, facts: InviteFacts, number: PhoneNumber) -> CallerIdentity:
    """Returns the identity of the INVITE to the target, from this number, whose `sip_transfer_caller_id` says what its
    trunk accepts. `facts` are those of the parent's INVITE. A withheld number stays withheld, and a caller without a
    phone number is not named."""
    own, diverted_by = NameAddr(number.number, number.name or ""), NameAddr(number.number, "")
    shown = number.sip_transfer_caller_id
    if shown == "own":
        return CallerIdentity(own, diverted_by=diverted_by)
    if parent.customer_number == sip_metadata.ANONYMOUS:
        return CallerIdentity(_ANONYMOUS, own, diverted_by, private=True)
    if not is_phone_number(parent.customer_number):
        return CallerIdentity(own, diverted_by=diverted_by)
    name = sip_metadata.caller_name(facts) if parent.direction == "inbound" else ""
    caller = NameAddr(parent.customer_number, name)
    return CallerIdentity(caller, own if shown == "caller_in_from" else None, diverted_by)
