/* Requests whose CSeq number is 2^31 or more (RFC 3261 8.1.1.5), which PJSIP cannot hold. */
#ifndef TRUNKLINE_SIP_CSEQ_H
#define TRUNKLINE_SIP_CSEQ_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

/* 400 with the CSeq as it came, but nothing to an ACK, nor to a request that has a CSeq, lacks something else that an answer
 * needs, or has no number there. */
void cseq_reject_out_of_range(pjsip_rx_data *request);

#endif
