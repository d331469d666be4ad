#include "pump/jitter_delay.h"

#include <stdbool.h>

#define READ_MS 20
#define MARGIN_NS 3000000LL     /* a packet that comes so much later than any observed one is still in time */

void jitter_delay_reset(jitter_delay_t *delay)
{
    *delay = (jitter_delay_t){.least_left_ms = UINT32_MAX, .least_wait_ns = INT64_MAX};
}

/* Of what is always left, a read's worth can be taken out while some remains. The rest only if every packet comes early enough
 * for the read that follows it. */
static uint32_t surplus_of(const jitter_delay_t *delay)
{
    const bool early = delay->least_wait_ns >= MARGIN_NS;
    if (delay->least_left_ms > READ_MS || (early && delay->least_left_ms == READ_MS))
        return READ_MS;
    return early ? delay->least_left_ms : 0;
}

uint32_t jitter_delay_observe(jitter_delay_t *delay, uint32_t left_ms, int64_t wait_ns)
{
    delay->least_left_ms = left_ms < delay->least_left_ms ? left_ms : delay->least_left_ms;
    delay->least_wait_ns = wait_ns < delay->least_wait_ns ? wait_ns : delay->least_wait_ns;
    if (++delay->ticks >= JITTER_DELAY_TICKS) {
        const uint32_t surplus = surplus_of(delay);
        jitter_delay_reset(delay);
        delay->surplus_ms = surplus;
    }
    /* A read takes 20 ms: of more than the surplus it would take audio that is needed. */
    const uint32_t now = delay->surplus_ms == READ_MS || left_ms == delay->surplus_ms ? delay->surplus_ms : 0;
    if (now && left_ms >= now)
        jitter_delay_reset(delay);
    return left_ms >= now ? now : 0;
}

void jitter_delay_splice(int16_t *frame, uint32_t count, const int16_t *next, uint32_t dropped, uint32_t ramp)
{
    for (uint32_t i = 0; i < dropped; i++) {
        int16_t *sample = &frame[count - dropped + i];
        *sample = i < ramp ? (int16_t)((*sample * (int32_t)(ramp - i) + next[i] * (int32_t)i) / (int32_t)ramp) : next[i];
    }
}
