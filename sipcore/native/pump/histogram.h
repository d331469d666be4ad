/* Histogram of durations. */
#ifndef TRUNKLINE_PUMP_HISTOGRAM_H
#define TRUNKLINE_PUMP_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#define HISTOGRAM_BUCKETS 1000      /* buckets of 0.1 ms */

/* One thread adds while another reads or resets: each number is right, but together they are not a consistent snapshot. */
typedef struct histogram {
    _Atomic uint64_t bucket[HISTOGRAM_BUCKETS];
    _Atomic uint64_t count;
    _Atomic int64_t max_ns;
} histogram_t;

void histogram_add(histogram_t *histogram, int64_t ns);
void histogram_merge(histogram_t *sum, const histogram_t *part);
void histogram_reset(histogram_t *histogram);
double histogram_quantile_ms(const histogram_t *histogram, double quantile);

#endif
