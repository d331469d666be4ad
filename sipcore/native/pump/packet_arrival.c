#include "pump/packet_arrival.h"

int64_t packet_arrival_ns(rtp_stats_t *stats, int64_t now_ns)
{
    const int64_t arrival_ns = stats ? rtp_stats_arrival_ns(stats) : 0;
    return arrival_ns <= now_ns && now_ns - arrival_ns < ARRIVAL_LIMIT_NS ? arrival_ns : now_ns;
}
