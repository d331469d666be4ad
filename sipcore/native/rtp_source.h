/* Whose RTP a call listens to. */
#ifndef TRUNKLINE_RTP_SOURCE_H
#define TRUNKLINE_RTP_SOURCE_H

#include <pjsua-lib/pjsua.h>

/* Let the kernel drop what does not come from the host that the peer's SDP names or that its SIP comes from. */
void rtp_source_filter(pjsua_call_id call, const pjsua_on_stream_created_param *param);

#endif
