/* RTCP of streams that only receive: PJMEDIA sends it for received packets alone, but a receiver sends its reports all the time
 * (RFC 3550, 6.2). So ICMP messages tell that the peer listens no more while it holds the call. The interval is shorter than the
 * minimum of 5 s that RFC 3550, 6.2 recommends: `calls.session.vanished_peer` needs two of the messages within 5 s. */
#ifndef TRUNKLINE_PUMP_RECEIVER_REPORT_H
#define TRUNKLINE_PUMP_RECEIVER_REPORT_H

#include <pjmedia.h>
#include <stdint.h>

/* Sends a receiver report if nothing has come since `last_packet_ns`, every 2 s. `sent_ns`: when the last one was sent; 0 for a
 * new stream. */
void receiver_report_send(pjmedia_stream *stream, int64_t last_packet_ns, int64_t now_ns, int64_t *sent_ns);

#endif
