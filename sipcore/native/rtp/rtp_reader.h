/* Reads the RTP and RTCP sockets of all calls, in place of PJMEDIA's thread: RTP shortly before each tick of the pump, which
 * takes no packet between its ticks; RTCP and DTLS as they come. The kernel tells when a packet has come.
 *
 * The thread that reads also delivers the packets, except those of DTLS (RFC 7983, 7), which other threads deliver. No two
 * threads deliver packets of one transport at the same time: while a DTLS packet is processed, the transport's other packets
 * wait in its sockets. A detached transport delivers none: detaching it waits for one whose delivery has begun. */
#ifndef TRUNKLINE_RTP_RTP_READER_H
#define TRUNKLINE_RTP_RTP_READER_H

#include "rtp/rtp_stats.h"

#include <pjmedia.h>
#include <stdbool.h>
#include <stdint.h>

#include "rtp/reading_times.h"

/* Starts the thread, which has read the sockets of phase 0 by each multiple of `period_ns` of CLOCK_MONOTONIC, and those of
 * phase n (below READING_PHASES) as many eighths of it later. Returns -1 if the system lacks resources. */
int rtp_reader_start(int64_t period_ns);
void rtp_reader_stop(void);

/* Waits until the sockets that are to be read before a tick have been read, if they have not, but no longer than until
 * `deadline_ns` (CLOCK_MONOTONIC): a thread that the system has held up makes no packet too late. */
void rtp_reader_wait(int64_t tick_ns, int64_t deadline_ns);

/* Reads the sockets of this UDP transport from its next start on, until it is detached or destroyed, and reports to `stats`
 * when the peer's port is closed. False without memory. */
bool rtp_reader_install(pjmedia_transport *udp, rtp_stats_t *stats);
/* Reads no more until the transport's next start, and waits for a packet whose delivery has begun. PJMEDIA stops and destroys
 * SRTP under a lock that the delivery of a packet needs, and may hold it for 0.25 s: pause the transport before. */
void rtp_reader_pause(pjmedia_transport *udp);
/* The phase before whose ticks the transport's RTP is read; 0 at first. A tick that is a period away, or more, has its reading. */
void rtp_reader_set_phase(pjmedia_transport *udp, int phase);
/* How long before a tick of this phase the reading of its sockets begins, ns. */
int64_t rtp_reader_lead_ns(int phase);
/* CLOCK_MONOTONIC, ns: the arrival of the packet that this thread is delivering. The present time on other threads. */
int64_t rtp_reader_arrival_ns(void);

#endif
