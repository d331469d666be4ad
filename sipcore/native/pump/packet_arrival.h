/* When the packets of an RTP stream come. Times are CLOCK_MONOTONIC, in ns. */
#ifndef TRUNKLINE_PUMP_PACKET_ARRIVAL_H
#define TRUNKLINE_PUMP_PACKET_ARRIVAL_H

#include <stdint.h>

#define ARRIVAL_UNKNOWN (-1)

typedef struct packet_arrival {
    int64_t newest_ns;
    int64_t offset_ns;  /* mean time from the beginning of a tick's period */
    int packets;        /* that `offset_ns` is the mean of */
} packet_arrival_t;

/* The newest packet came then; 0: none has come yet. It may be one that was added before. */
void packet_arrival_add(packet_arrival_t *arrival, int64_t newest_ns);
/* Arrival of the newest packet; the present time if there is no recent one. */
int64_t packet_arrival_newest_ns(const packet_arrival_t *arrival, int64_t now_ns);
/* Mean time, from 0 to less than TICK_NS, from the beginning of a tick's period; ARRIVAL_UNKNOWN if too few come. */
int64_t packet_arrival_offset_ns(const packet_arrival_t *arrival, int64_t now_ns);

#endif
