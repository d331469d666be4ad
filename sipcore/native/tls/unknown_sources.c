#define _GNU_SOURCE
#include "tls/unknown_sources.h"

#include "net/drop_counters.h"
#include "net/source_acl.h"
#include "tls/accept_filter.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAITING 64 /* connections between two looks: a flood gets no further */

int tls_strangers_close(int fd)
{
    if (fd != TLS_NO_SOCKET)
        close(fd);
    return TLS_NO_SOCKET;
}

static bool switch_on(int fd, int level, int option)
{
    int on = 1;
    return setsockopt(fd, level, option, &on, sizeof on) == 0;
}

/* Nobody gets in before the two are parted: the kernel would draw lots among them. */
static int opened(int listening, const pj_sockaddr *bound)
{
    const bool ipv6 = bound->addr.sa_family == pj_AF_INET6();
    int fd = socket(bound->addr.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return TLS_NO_SOCKET;
    tls_filter_close(fd);
    bool open = switch_on(listening, SOL_SOCKET, SO_REUSEPORT) && switch_on(fd, SOL_SOCKET, SO_REUSEPORT) &&
                switch_on(fd, SOL_SOCKET, SO_REUSEADDR) && (!ipv6 || switch_on(fd, IPPROTO_IPV6, IPV6_V6ONLY)) &&
                bind(fd, (const struct sockaddr *)bound, (socklen_t)pj_sockaddr_get_len(bound)) == 0 &&
                listen(fd, WAITING) == 0;
    return open ? fd : tls_strangers_close(fd);
}

int tls_strangers_part(int listening, const pj_sockaddr *bound, int strangers)
{
    const bool ipv6 = bound->addr.sa_family == pj_AF_INET6();
    int none = 0;
    if (!tls_filter_keeps_out())
        return tls_strangers_close(strangers);
    int fd = strangers == TLS_NO_SOCKET ? opened(listening, bound) : strangers;
    if (fd == TLS_NO_SOCKET)
        return fd;
    if (!tls_filter_part(listening, ipv6))
        return tls_strangers_close(fd);
    setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none);
    return fd;
}

void tls_strangers_turn_away(int strangers)
{
    const struct linger at_once = {.l_onoff = 1};
    pj_sockaddr peer;
    socklen_t length = sizeof peer;
    int fd;
    while (strangers != TLS_NO_SOCKET &&
           (fd = accept4(strangers, (struct sockaddr *)&peer, &length, SOCK_CLOEXEC)) >= 0) {
        char name[PJ_INET6_ADDRSTRLEN];
        if (!source_acl_has(&peer)) /* else it was one a moment ago */
            turned_away(AWAY_UNKNOWN_SOURCE, pj_sockaddr_print(&peer, name, sizeof name, 0));
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(fd);
        length = sizeof peer;
    }
}
