/* The RTP source lock for a test: addresses as text, times in ms. */
#include "rtp/source_lock.h"

#include <stdlib.h>

static pj_sockaddr socket_address(const char *host, int port)
{
    pj_sockaddr address;
    pj_str_t text = pj_str((char *)host);
    pj_sockaddr_init(pj_AF_INET(), &address, &text, (pj_uint16_t)port);
    return address;
}

source_lock_t *create(const char *signalling)
{
    source_lock_t *lock = calloc(1, sizeof *lock);
    lock->signalling = socket_address(signalling, 5060);
    return lock;
}

void open_by_sdp(source_lock_t *lock, const char *host, int port, int held, int ms)
{
    pj_sockaddr rtp = socket_address(host, port), rtcp = socket_address(host, port + 1);
    source_lock_open(lock, &rtp, &rtcp, held, ms * 1000000LL);
}

int on_rtp(source_lock_t *lock, const char *host, int port, unsigned ssrc, int sequence, double ms)
{
    const rtp_arrival_t packet = {ssrc, (uint16_t)sequence, (int64_t)(ms * 1e6)};
    const pj_sockaddr from = socket_address(host, port);
    return source_lock_on_rtp(lock, &from, &packet) != RTP_DROP;
}

int on_rtcp(source_lock_t *lock, const char *host, int port, unsigned ssrc)
{
    const pj_sockaddr from = socket_address(host, port);
    return source_lock_on_rtcp(lock, &from, ssrc) != RTP_DROP;
}

int rtp_target(const source_lock_t *lock)
{
    pj_sockaddr rtp, rtcp;
    source_lock_targets(lock, &rtp, &rtcp);
    return pj_sockaddr_get_port(&rtp);
}

int rtcp_target(const source_lock_t *lock)
{
    pj_sockaddr rtp, rtcp;
    source_lock_targets(lock, &rtp, &rtcp);
    return pj_sockaddr_get_port(&rtcp);
}
