#include "pump/packet_arrival.h"

#include "pump/tick.h"

#define RECENT_NS 60000000LL        /* age of the newest packet above which none is coming */
#define MIN_PACKETS 8
#define MEAN_PACKETS 32
#define MAX_SILENCE_NS 1000000000LL /* after a longer one, the peer may have another clock */

static int64_t offset_of(int64_t ns)
{
    return (ns % TICK_NS + TICK_NS) % TICK_NS;
}

void packet_arrival_add(packet_arrival_t *arrival, int64_t newest_ns)
{
    if (!newest_ns || newest_ns == arrival->newest_ns)
        return;
    if (newest_ns - arrival->newest_ns > MAX_SILENCE_NS)
        *arrival = (packet_arrival_t){.offset_ns = offset_of(newest_ns)};
    arrival->newest_ns = newest_ns;
    arrival->packets += arrival->packets < MEAN_PACKETS;
    const int64_t later_ns = offset_of(newest_ns - arrival->offset_ns + TICK_NS / 2) - TICK_NS / 2;
    arrival->offset_ns = offset_of(arrival->offset_ns + later_ns / arrival->packets);
}

int64_t packet_arrival_newest_ns(const packet_arrival_t *arrival, int64_t now_ns)
{
    return arrival->newest_ns <= now_ns && now_ns - arrival->newest_ns < RECENT_NS ? arrival->newest_ns : now_ns;
}

int64_t packet_arrival_offset_ns(const packet_arrival_t *arrival, int64_t now_ns)
{
    return arrival->packets >= MIN_PACKETS && now_ns - arrival->newest_ns < MAX_SILENCE_NS ? arrival->offset_ns : ARRIVAL_UNKNOWN;
}
