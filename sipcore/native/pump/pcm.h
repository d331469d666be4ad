/* Samples of linear PCM, 16 bits, one channel. */
#ifndef TRUNKLINE_PUMP_PCM_H
#define TRUNKLINE_PUMP_PCM_H

#include <stdint.h>

#define MAX_RATE 48000      /* Hz */

static inline int16_t pcm_saturate(int32_t sample)
{
    return (int16_t)(sample > 32767 ? 32767 : sample < -32768 ? -32768 : sample);
}

#endif
