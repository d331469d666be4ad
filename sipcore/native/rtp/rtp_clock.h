/* How fast the RTP timestamps of a stream go. */
#ifndef TRUNKLINE_RTP_RTP_CLOCK_H
#define TRUNKLINE_RTP_RTP_CLOCK_H

#include <pjmedia.h>
#include <stdint.h>

/* Hz. */
uint32_t rtp_clock_of(const pjmedia_stream_info *info);
/* PJMEDIA takes Opus's sampling rate for it: the jitter that it reports to the peer would be wrong. */
void rtp_clock_for_rtcp(pjmedia_stream *stream, uint32_t clock_rate);

#endif
