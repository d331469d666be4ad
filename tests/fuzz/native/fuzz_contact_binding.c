/* Headers of a registrar's 200 to our REGISTER: the granted expiry is that of our Contact, of the only Contact, or of the
 * Expires header. */
#include "stack.h"

#include <string.h>

#include "trunks/contact_binding.h"

#define REQUESTED_S 300

static pjsip_msg *read_message(pj_pool_t *pool, const char *first, const uint8_t *headers, size_t size)
{
    static const char last[] = "\r\n\r\n";
    const size_t before = strlen(first);
    char *text = pj_pool_alloc(pool, before + size + sizeof last);
    memcpy(text, first, before);
    memcpy(text + before, headers, size);
    memcpy(text + before + size, last, sizeof last);
    pjsip_parser_err_report errors;
    pj_list_init(&errors);
    return pjsip_parse_msg(pool, text, before + size + sizeof last - 1, &errors);
}

static bool has_expiry(const pjsip_msg *msg, unsigned granted_s)
{
    for (const pjsip_hdr *header = msg->hdr.next; header != &msg->hdr; header = header->next)
        if ((header->type == PJSIP_H_CONTACT && ((const pjsip_contact_hdr *)header)->expires == granted_s) ||
            (header->type == PJSIP_H_EXPIRES && (unsigned)((const pjsip_expires_hdr *)header)->ivalue == granted_s))
            return true;
    return granted_s == REQUESTED_S || granted_s == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char request[] = "REGISTER sip:h SIP/2.0\r\n", contact[] = "Contact: <sip:me@127.0.0.1:5060>";
    pj_pool_t *pool = stack_pool();
    const pjsip_msg *sent = read_message(pool, request, (const uint8_t *)contact, sizeof contact - 1);
    const pjsip_msg *answer = read_message(pool, "SIP/2.0 200 OK\r\n", data, size);
    char printed[64] = "";
    must(sent && contact_binding_port(sent) == 5060, "our own Contact can be read");
    contact_binding_print(sent, printed, sizeof printed);
    must(strcmp(printed, "<sip:me@127.0.0.1:5060>") == 0, "it is printed as it was");
    if (answer)
        must(has_expiry(answer, contact_binding_granted_s(NULL, REQUESTED_S, sent, answer)), "the granted expiry is in the response");
    return 0;
}
