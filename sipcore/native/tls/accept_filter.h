/* Connections to the TLS port of those who are nobody's trunk do not get to PJSIP, before a handshake costs us anything: it
 * tells of a connection only when its handshake is done. */
#ifndef TRUNKLINE_TLS_ACCEPT_FILTER_H
#define TRUNKLINE_TLS_ACCEPT_FILTER_H

#include <stdbool.h>

/* The program for these addresses and networks, for sockets that it is attached to from now on. */
void accept_filter_build(const char *const *sources, int count, const char *const *more, int more_count);
/* Whether that was a change. */
bool accept_filter_allow_all(bool on);
/* When the program has no room for all sources, or the kernel none for it, everybody may connect: the guard still judges every message. */
void accept_filter_attach(int fd, bool ipv6);
/* Whether there are some who may not connect. */
bool accept_filter_is_selective(void);
/* Of two sockets that share the port of `fd`, the first gets those who may connect and the second the others. False when
 * the kernel cannot do that. */
bool accept_filter_split(int fd, bool ipv6);
/* Nobody gets an answer. */
void accept_filter_drop_all(int fd);

#endif
