/* UAS conformance: rules for requests that PJSIP leaves open (RFC 3261 8.2), and this endpoint's capabilities. */
#ifndef TRUNKLINE_SIP_UAS_CONFORMANCE_H
#define TRUNKLINE_SIP_UAS_CONFORMANCE_H

#include <stdbool.h>

#include <pjsua-lib/pjsua.h>

/* Reduces Allow, Accept and Supported to what is really supported; PJSIP's modules announce more. */
int uas_install(void);
void uas_remove(void);
/* Adds Allow, Accept and Supported to the headers of a response (RFC 3261 11.2). */
void uas_add_capabilities(pj_pool_t *pool, pjsip_hdr *headers);
/* True for two faults that PJSIP overlooks or misreports (RFC 3261 8.1.1.5, 18.3): a CSeq of another method, and a body
 * shorter than its Content-Length. */
bool uas_is_malformed(const pjsip_rx_data *rdata);
/* True for a CANCEL of another sender's INVITE: PJSIP compares the branch alone (RFC 3261 9.2, 17.2.3). */
bool uas_is_forged_cancel(pjsip_rx_data *rdata);
/* Responds to a request within a call if it needs no call: unsupported methods and extensions, OPTIONS, INFO without DTMF,
 * REFER, requests of ended calls. False if PJSIP is to handle it. */
bool uas_handle_request(pjsip_rx_data *rdata);

#endif
