/* ICMP errors of a UDP socket (ip(7), IP_RECVERR): the system queues them beside the packets. */
#ifndef TRUNKLINE_RTP_ICMP_ERRORS_H
#define TRUNKLINE_RTP_ICMP_ERRORS_H

#include <pjlib.h>
#include <stdbool.h>

/* From now on the next call that sends or receives reports an ICMP error, instead of doing so. */
void icmp_errors_enable(pj_sock_t socket, int family);
/* Takes all errors that wait. Returns true if there was one. Sets `*unreachable` to true if one said "port unreachable" about a
 * packet to `target`: who sends ICMP messages need not tell the truth. */
bool icmp_errors_take(pj_sock_t socket, const pj_sockaddr *target, bool *unreachable);

#endif
