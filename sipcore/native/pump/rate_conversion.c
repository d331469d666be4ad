#include "pump/rate_conversion.h"

#include <math.h>
#include <string.h>

/* The taps at the odd offsets 1, 3, ... 23 from the centre, on either side; those at even offsets are 0, and the centre's is
 * 0.5. An ideal half-band filter with a Kaiser window (beta 6.31), scaled to a gain of 1 at 0 Hz. */
#define SIDE_TAPS 12
static const float side_tap[SIDE_TAPS] = {0.31678943f, -0.10141854f, 0.05608749f,  -0.03537964f, 0.02322097f, -0.01525815f,
                                          0.00980890f, -0.00605509f, 0.00351744f,  -0.00186939f, 0.00086458f, -0.00030800f};
#define UP_HISTORY 23   /* samples at 8 kHz: the filter spans 24 of them */
#define DOWN_HISTORY 46 /* samples at 16 kHz: the filter spans 47 of them */

bool rate_conversion_init(rate_conversion_t *conversion, uint32_t from, uint32_t to)
{
    *conversion = (rate_conversion_t){.from = from, .to = to};
    if (from == to)
        return true;
    if (from == 8000 && to == 16000)
        conversion->history_count = UP_HISTORY;
    else if (from == 16000 && to == 8000)
        conversion->history_count = DOWN_HISTORY;
    return conversion->history_count > 0;
}

static int16_t rounded(float sample)
{
    return pcm_saturate((int32_t)lrintf(sample));
}

/* Two samples for each: the one in the middle of the filter, and the one half a sample later. */
static void upsample(const int16_t *x, uint32_t count, int16_t *out)
{
    for (uint32_t i = 0; i < count; i++, x++) {
        float sum = 0;
        for (int k = 0; k < SIDE_TAPS; k++)
            sum += side_tap[k] * (float)(x[11 - k] + x[12 + k]);
        out[2 * i] = x[11];
        out[2 * i + 1] = rounded(2 * sum);
    }
}

static void downsample(const int16_t *x, uint32_t count, int16_t *out)
{
    for (uint32_t i = 0; i < count / 2; i++, x += 2) {
        float sum = 0.5f * (float)x[23];
        for (int k = 0; k < SIDE_TAPS; k++)
            sum += side_tap[k] * (float)(x[22 - 2 * k] + x[24 + 2 * k]);
        out[i] = rounded(sum);
    }
}

uint32_t rate_conversion_apply(rate_conversion_t *conversion, const int16_t *in, uint32_t count, int16_t *out)
{
    const uint32_t history = conversion->history_count;
    int16_t x[RATE_CONVERSION_HISTORY + RATE_CONVERSION_MAX_BLOCK];
    if (!history) {
        memcpy(out, in, count * sizeof *in);
        return count;
    }
    memcpy(x, conversion->history, history * sizeof *x);
    memcpy(x + history, in, count * sizeof *x);
    memcpy(conversion->history, x + count, history * sizeof *x);
    if (conversion->from < conversion->to) {
        upsample(x, count, out);
        return 2 * count;
    }
    downsample(x, count, out);
    return count / 2;
}
