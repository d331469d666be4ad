#define _GNU_SOURCE
#include "rtp/icmp_errors.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define MAX_TAKEN 64    /* the rest waits for the next error */
#define CONTROL_SIZE (CMSG_SPACE(sizeof(struct sock_extended_err) + sizeof(struct sockaddr_in6)) + \
                      CMSG_SPACE(sizeof(struct timespec)))

void icmp_errors_enable(pj_sock_t socket, int family)
{
    const int on = 1;
    if (family == AF_INET6)
        setsockopt((int)socket, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on);
    else
        setsockopt((int)socket, IPPROTO_IP, IP_RECVERR, &on, sizeof on);
}

static bool is_error(const struct cmsghdr *control)
{
    return (control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_RECVERR) ||
           (control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == IPV6_RECVERR);
}

/* The system makes ECONNREFUSED of "port unreachable" alone (RFC 1122, 3.2.2.1; RFC 4443, 3.1). */
static bool says_port_unreachable(struct msghdr *message)
{
    for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control; control = CMSG_NXTHDR(message, control)) {
        struct sock_extended_err error;
        if (!is_error(control))
            continue;
        memcpy(&error, CMSG_DATA(control), sizeof error);
        return error.ee_errno == ECONNREFUSED &&
               (error.ee_origin == SO_EE_ORIGIN_ICMP || error.ee_origin == SO_EE_ORIGIN_ICMP6);
    }
    return false;
}

bool icmp_errors_take(pj_sock_t socket, const pj_sockaddr *target, bool *unreachable)
{
    int taken = 0;
    for (; taken < MAX_TAKEN; taken++) {
        union {
            char bytes[CONTROL_SIZE];
            struct cmsghdr aligned;
        } control;
        pj_sockaddr to = {.addr = {0}}; /* of the packet that the error is about */
        struct msghdr message = {
            .msg_name = &to, .msg_namelen = sizeof to, .msg_control = &control, .msg_controllen = sizeof control,
        };
        if (recvmsg((int)socket, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
            break;
        if (says_port_unreachable(&message) && pj_sockaddr_has_addr(target) && pj_sockaddr_cmp(&to, target) == 0)
            *unreachable = true;
    }
    return taken > 0;
}
