/* BPF accept filter of the TLS port: the kernel drops connections to the TLS port from sources that are not allowed, before
 * a handshake costs anything. PJSIP reports a connection only when its handshake is done. */
#ifndef TRUNKLINE_TLS_BPF_ACCEPT_FILTER_H
#define TRUNKLINE_TLS_BPF_ACCEPT_FILTER_H

#include <stdbool.h>

/* Builds the program for these addresses and networks, for the sockets that it will be attached to. */
void bpf_accept_filter_build(const char *const *sources, int count, const char *const *more, int more_count);
/* True if that is a change. */
bool bpf_accept_filter_allow_all(bool on);
/* If the program has no room for all sources, or the kernel rejects it, every source may connect: the guard still judges
 * each message. */
void bpf_accept_filter_attach(int fd, bool ipv6);
/* True if some sources may not connect. */
bool bpf_accept_filter_is_selective(void);
/* Of two sockets that share the port of `fd`, the first gets the allowed sources' connections, the second all others. False
 * if the kernel cannot do that. */
bool bpf_accept_filter_split(int fd, bool ipv6);
/* Drops all connections to the socket. */
void bpf_accept_filter_drop_all(int fd);

#endif
