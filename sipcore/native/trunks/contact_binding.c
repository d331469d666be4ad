#include "trunks/contact_binding.h"

#include <string.h>

/* The former Contact named a connection that is closed. */
void contact_binding_remove_former(pjsip_tx_data *tdata, const char *former, const pj_str_t *contact)
{
    const pj_str_t name = {"Contact", 7}, given = pj_str((char *)former);
    pj_str_t copy;
    if (!*former || pj_strcmp(&given, contact) == 0)
        return;
    pj_strdup_with_null(tdata->pool, &copy, &given);
    pjsip_contact_hdr *header = pjsip_parse_hdr(tdata->pool, &name, copy.ptr, (pj_size_t)copy.slen, NULL);
    if (header) {
        header->expires = 0;
        pjsip_msg_add_hdr(tdata->msg, (pjsip_hdr *)header);
    }
}

/* As it was sent: its address depends on the receiver. */
static const pjsip_uri *contact_in(const pjsip_msg *sent, const pjsip_uri *composed)
{
    const pjsip_contact_hdr *contact = pjsip_msg_find_hdr(sent, PJSIP_H_CONTACT, NULL);
    return contact && contact->uri ? pjsip_uri_get_uri(contact->uri) : composed;
}

/* The expiry of our Contact (RFC 3261 10.2.4); if none is equal, that of the only Contact. */
unsigned contact_binding_granted_s(const pjsip_uri *composed, unsigned requested_s, const pjsip_msg *sent,
                                   const pjsip_msg *message)
{
    const pjsip_uri *own = contact_in(sent, composed);
    const pjsip_expires_hdr *general = pjsip_msg_find_hdr(message, PJSIP_H_EXPIRES, NULL);
    const pjsip_contact_hdr *contact = NULL, *only = NULL;
    int count = 0;
    while ((contact = pjsip_msg_find_hdr(message, PJSIP_H_CONTACT, contact ? contact->next : NULL)) != NULL) {
        if (contact->star || !contact->uri)
            continue;
        only = contact;
        count++;
        if (pjsip_uri_cmp(PJSIP_URI_IN_CONTACT_HDR, pjsip_uri_get_uri(contact->uri), own) == PJ_SUCCESS)
            break;
    }
    if (!contact && count == 1)
        contact = only;
    if (count && !contact)
        return 0;
    if (contact && contact->expires != PJSIP_EXPIRES_NOT_SPECIFIED)
        return contact->expires;
    return general ? (unsigned)general->ivalue : requested_s;
}

int contact_binding_port(const pjsip_msg *sent)
{
    const pjsip_uri *own = contact_in(sent, NULL);
    return own && PJSIP_URI_SCHEME_IS_SIP(own) ? ((const pjsip_sip_uri *)own)->port : 0;
}

void contact_binding_print(const pjsip_msg *sent, char *contact, size_t size)
{
    const pjsip_uri *own = contact_in(sent, NULL);
    int length = own ? pjsip_uri_print(PJSIP_URI_IN_CONTACT_HDR, own, contact + 1, size - 3) : -1;
    if (length < 0)
        return;
    contact[0] = '<';
    contact[length + 1] = '>';
    contact[length + 2] = 0;
}
