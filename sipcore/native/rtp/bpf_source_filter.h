/* BPF socket filter of RTP and RTCP: the kernel drops packets from other hosts before they wake a thread. */
#ifndef TRUNKLINE_RTP_BPF_SOURCE_FILTER_H
#define TRUNKLINE_RTP_BPF_SOURCE_FILTER_H

#include <pjlib.h>
#include <stdint.h>

/* Admits packets from these two hosts only; ports are not compared. A host without a family, or of another family than the
 * socket's, is ignored; without any host, all packets are admitted. */
void bpf_source_filter_attach(pj_sock_t sock, const pj_sockaddr *first, const pj_sockaddr *second);
/* Packets that the kernel dropped at this socket: those of other hosts, and those for which its buffer had no room. */
uint32_t bpf_source_filter_drops(pj_sock_t sock);

#endif
