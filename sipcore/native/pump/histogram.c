#include "pump/histogram.h"

static void add(_Atomic uint64_t *number, uint64_t more)
{
    atomic_fetch_add_explicit(number, more, memory_order_relaxed);
}

static void update_max(_Atomic int64_t *max, int64_t ns)
{
    if (ns > atomic_load_explicit(max, memory_order_relaxed))
        atomic_store_explicit(max, ns, memory_order_relaxed);
}

void histogram_add(histogram_t *histogram, int64_t ns)
{
    int64_t bucket = ns / 100000;
    add(&histogram->bucket[bucket < 0 ? 0 : bucket >= HISTOGRAM_BUCKETS ? HISTOGRAM_BUCKETS - 1 : bucket], 1);
    add(&histogram->count, 1);
    update_max(&histogram->max_ns, ns);
}

void histogram_merge(histogram_t *sum, const histogram_t *part)
{
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++)
        add(&sum->bucket[i], atomic_load_explicit(&part->bucket[i], memory_order_relaxed));
    add(&sum->count, atomic_load_explicit(&part->count, memory_order_relaxed));
    update_max(&sum->max_ns, atomic_load_explicit(&part->max_ns, memory_order_relaxed));
}

void histogram_reset(histogram_t *histogram)
{
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++)
        atomic_store_explicit(&histogram->bucket[i], 0, memory_order_relaxed);
    atomic_store_explicit(&histogram->count, 0, memory_order_relaxed);
    atomic_store_explicit(&histogram->max_ns, 0, memory_order_relaxed);
}

double histogram_quantile_ms(const histogram_t *histogram, double quantile)
{
    uint64_t seen = 0;
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->bucket[i];
        if (histogram->count && seen >= quantile * histogram->count) {
            double upper = (i + 1) / 10.0, max = histogram->max_ns / 1e6;
            return upper < max ? upper : max;
        }
    }
    return 0;
}
