/* A bridge without a pump: test_bridge_ring.py moves the frames of both sides in the order that it wants. */
#include "pump/bridge.h"

#include <stdlib.h>

typedef struct pair {
    bridge_port_t port[2];
    uint32_t rate[2];
} pair_t;

pair_t *create(uint32_t one_rate, uint32_t other_rate)
{
    pair_t *pair = calloc(1, sizeof *pair);
    pair->rate[0] = one_rate;
    pair->rate[1] = other_rate;
    for (int i = 0; i < 2; i++)
        bridge_reset(&pair->port[i], i);
    return pair;
}

int connect_pair(pair_t *pair)
{
    return bridge_connect(&pair->port[0], pair->rate[0], &pair->port[1], pair->rate[1]);
}

void put(pair_t *pair, int side, const int16_t *in, uint32_t count)
{
    bridge_put(&pair->port[side], in, count);
}

void mix(pair_t *pair, int side, int16_t *out, uint32_t count)
{
    bridge_mix(&pair->port[side], pair->rate[side], out, count);
}

void disconnect_side(pair_t *pair, int side)
{
    bridge_disconnect(&pair->port[side]);
}

void drop(pair_t *pair)
{
    for (int i = 0; i < 2; i++)
        bridge_drop(&pair->port[i]);
    free(pair);
}
