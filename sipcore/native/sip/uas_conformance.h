/* What PJSIP leaves open in the requests of a call (RFC 3261 8.2), and what we say about ourselves. */
#ifndef TRUNKLINE_SIP_UAS_CONFORMANCE_H
#define TRUNKLINE_SIP_UAS_CONFORMANCE_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* Let Allow, Accept and Supported name what is really taken; PJSIP's modules announce more. */
int uas_install(void);
void uas_remove(void);
/* Add Allow, Accept and Supported to the headers of a response (RFC 3261 11.2). */
void uas_add_capabilities(pj_pool_t *pool, pjsip_hdr *headers);
/* Two faults that PJSIP overlooks or misnames (RFC 3261 8.1.1.5, 18.3): a CSeq of another method, less body than announced. */
bool uas_is_malformed(const pjsip_rx_data *rdata);
/* A CANCEL of an INVITE that came from somebody else: PJSIP compares the branch alone (RFC 3261 9.2, 17.2.3). */
bool uas_is_forged_cancel(pjsip_rx_data *rdata);
/* Answer a request of a call that goes on when it asks for what nobody here does, or for nothing but an answer. */
bool uas_handle_request(pjsip_rx_data *rdata);

#endif
