/* The first line against strangers' RTP: the kernel drops what comes from other hosts, before it wakes anybody. */
#ifndef TRUNKLINE_RTP_KERNEL_FILTER_H
#define TRUNKLINE_RTP_KERNEL_FILTER_H

#include <pjlib.h>
#include <stdint.h>

/* Let in what comes from these two hosts, of the socket's family; ports are not compared. A host of another family, or
 * none, counts for nothing; with neither, everything is let in. */
void kernel_filter_hosts(pj_sock_t sock, const pj_sockaddr *first, const pj_sockaddr *second);
/* What the kernel has dropped at this socket: strangers' packets, and what its buffer had no room for. */
uint32_t kernel_filter_drops(pj_sock_t sock);

#endif
