/* The headers of RTP and RTCP packets (RFC 3550, 5.1 and 6.4). */
#ifndef TRUNKLINE_RTP_RTP_PACKET_H
#define TRUNKLINE_RTP_RTP_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RTP_HEADER 12
#define RTCP_HEADER 8
#define EXTENSION_HEADER 4

static inline uint16_t rtp_16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t rtp_32(const uint8_t *at)
{
    return (uint32_t)rtp_16(at) << 16 | rtp_16(at + 2);
}

static inline uint32_t rtp_ssrc(const uint8_t *packet)
{
    return rtp_32(packet + 8);
}

/* RFC 3550, A.1: contributing sources, extension and padding must lie within the packet. */
static inline bool rtp_is_rtp(const uint8_t *packet, ptrdiff_t size)
{
    if (size < RTP_HEADER || packet[0] >> 6 != 2)
        return false;
    ptrdiff_t begin = RTP_HEADER + 4 * (packet[0] & 0x0F);
    if (packet[0] & 0x10) {
        if (begin + EXTENSION_HEADER > size)
            return false;
        begin += EXTENSION_HEADER + 4 * rtp_16(packet + begin + 2);
    }
    if (begin > size)
        return false;
    return !(packet[0] & 0x20) || (packet[size - 1] && begin + packet[size - 1] <= size);
}

/* RFC 5761, 4: RTCP's packet types where RTP and RTCP share a port. */
static inline bool rtp_is_rtcp(const uint8_t *packet, ptrdiff_t size)
{
    return size >= RTCP_HEADER && packet[0] >> 6 == 2 && packet[1] >= 192 && packet[1] <= 223;
}

#endif
