/* When the newest packet of an RTP stream came. */
#ifndef TRUNKLINE_PUMP_PACKET_ARRIVAL_H
#define TRUNKLINE_PUMP_PACKET_ARRIVAL_H

#include <stdint.h>

#include <pjmedia.h>

#define ARRIVAL_LIMIT_NS 60000000LL /* age of the newest packet above which none is coming */

/* Arrival of the newest packet: the RTCP session has its relative transit time (RFC 3550 A.8), in units of the RTP clock. An
 * implausible one (no recent packet, a clock that was set) gives the present time. */
int64_t packet_arrival_ns(pjmedia_stream *stream, int64_t now_ns);

#endif
