/* Conversion between 8 and 16 kHz by a half-band FIR filter: 47 taps, flat to 3.4 kHz, 46 dB down at 4.6 kHz, 75 dB from 5 kHz, 1.5 ms of
 * delay. A stream keeps its filter state from block to block. */
#ifndef TRUNKLINE_PUMP_RATE_CONVERSION_H
#define TRUNKLINE_PUMP_RATE_CONVERSION_H

#include <stdbool.h>
#include <stdint.h>

#include "pump/pcm.h"

#define RATE_CONVERSION_HISTORY 46
#define RATE_CONVERSION_MAX_BLOCK (MAX_RATE * 60 / 1000)    /* samples of one call, before the conversion */

typedef struct rate_conversion {
    uint32_t from, to;                              /* Hz */
    int16_t history[RATE_CONVERSION_HISTORY];       /* the samples before the next block, oldest first */
    uint32_t history_count;                         /* those that the filter needs; 0: the samples are copied */
} rate_conversion_t;

/* Returns false unless the rates are equal, or 8000 and 16000 Hz. */
bool rate_conversion_init(rate_conversion_t *conversion, uint32_t from, uint32_t to);
/* Converts a block; `out` has room for twice its samples. Returns the number of samples in `out`. Before a conversion from
 * 16 to 8 kHz, `count` is even. */
uint32_t rate_conversion_apply(rate_conversion_t *conversion, const int16_t *in, uint32_t count, int16_t *out);

#endif
