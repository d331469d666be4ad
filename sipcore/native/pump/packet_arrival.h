/* When the newest packet of an RTP stream came. */
#ifndef TRUNKLINE_PUMP_PACKET_ARRIVAL_H
#define TRUNKLINE_PUMP_PACKET_ARRIVAL_H

#include <stdint.h>

#include "rtp/rtp_stats.h"

#define ARRIVAL_LIMIT_NS 60000000LL /* age of the newest packet above which none is coming */

/* Arrival of the newest packet; the present time if there is no recent one. */
int64_t packet_arrival_ns(rtp_stats_t *stats, int64_t now_ns);

#endif
