/* CSeq validation: requests whose CSeq number is 2^31 or more (RFC 3261 8.1.1.5), which PJSIP cannot hold. */
#ifndef TRUNKLINE_SIP_CSEQ_VALIDATION_H
#define TRUNKLINE_SIP_CSEQ_VALIDATION_H

#include <pjsua-lib/pjsua.h>
#include <stdbool.h>

/* Responds with 400 and the CSeq as received. No response to an ACK, nor to a request whose CSeq PJSIP has read, that lacks
 * another header which a response needs, or whose CSeq has no number. */
void cseq_reject_out_of_range(pjsip_rx_data *request);

#endif
