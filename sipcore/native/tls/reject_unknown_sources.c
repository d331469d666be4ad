#define _GNU_SOURCE
#include "tls/reject_unknown_sources.h"

#include "net/drop_counters.h"
#include "net/source_acl.h"
#include "tls/bpf_accept_filter.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_BACKLOG 64 /* connections between two checks: the limit in a flood */

int tls_unknown_sources_close(int fd)
{
    if (fd != TLS_NO_SOCKET)
        close(fd);
    return TLS_NO_SOCKET;
}

static bool enable_option(int fd, int level, int option)
{
    int on = 1;
    return setsockopt(fd, level, option, &on, sizeof on) == 0;
}

/* The socket drops all connections until the split: the kernel would distribute them at random. */
static int open_socket(int listening, const pj_sockaddr *bound)
{
    const bool ipv6 = bound->addr.sa_family == pj_AF_INET6();
    int fd = socket(bound->addr.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return TLS_NO_SOCKET;
    bpf_accept_filter_drop_all(fd);
    bool open = enable_option(listening, SOL_SOCKET, SO_REUSEPORT) && enable_option(fd, SOL_SOCKET, SO_REUSEPORT) &&
                enable_option(fd, SOL_SOCKET, SO_REUSEADDR) && (!ipv6 || enable_option(fd, IPPROTO_IPV6, IPV6_V6ONLY)) &&
                bind(fd, (const struct sockaddr *)bound, (socklen_t)pj_sockaddr_get_len(bound)) == 0 &&
                listen(fd, MAX_BACKLOG) == 0;
    return open ? fd : tls_unknown_sources_close(fd);
}

int tls_unknown_sources_split(int listening, const pj_sockaddr *bound, int unknown_socket)
{
    const bool ipv6 = bound->addr.sa_family == pj_AF_INET6();
    int none = 0;
    if (!bpf_accept_filter_is_selective())
        return tls_unknown_sources_close(unknown_socket);
    int fd = unknown_socket == TLS_NO_SOCKET ? open_socket(listening, bound) : unknown_socket;
    if (fd == TLS_NO_SOCKET)
        return fd;
    if (!bpf_accept_filter_split(listening, ipv6))
        return tls_unknown_sources_close(fd);
    setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none);
    return fd;
}

void tls_unknown_sources_reject(int unknown_socket)
{
    const struct linger at_once = {.l_onoff = 1};
    pj_sockaddr peer;
    socklen_t length = sizeof peer;
    int fd;
    while (unknown_socket != TLS_NO_SOCKET &&
           (fd = accept4(unknown_socket, (struct sockaddr *)&peer, &length, SOCK_CLOEXEC)) >= 0) {
        char name[PJ_INET6_ADDRSTRLEN];
        if (!source_acl_has(&peer)) /* else it has become known since */
            drop_count(DROP_UNKNOWN_SOURCE, pj_sockaddr_print(&peer, name, sizeof name, 0));
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(fd);
        length = sizeof peer;
    }
}
