#include "rtp/reading_times.h"

#define MIN_LEAD_NS 1000000LL
#define MAX_LEAD_NS 8000000LL
#define MAX_LATE_PERIODS 2

void reading_times_init(reading_times_t *times, int64_t period_ns, int64_t now_ns)
{
    times->period_ns = period_ns;
    times->begin_ns = (now_ns / period_ns + 1) * period_ns;
    times->phase = 0;
    for (int i = 0; i < READING_PHASES; i++)
        atomic_store(&times->lead_ns[i], MIN_LEAD_NS);
}

int64_t reading_times_tick(const reading_times_t *times)
{
    return times->begin_ns + times->phase * times->period_ns / READING_PHASES;
}

int64_t reading_times_begin(reading_times_t *times, int64_t now_ns)
{
    if (now_ns - times->begin_ns > MAX_LATE_PERIODS * times->period_ns) {
        times->begin_ns = (now_ns / times->period_ns + 1) * times->period_ns;
        times->phase = 0;
    }
    return reading_times_tick(times) - atomic_load(&times->lead_ns[times->phase]);
}

/* It follows slowly: a packet that comes before one reading should come before the next ones, too, even if one of them was
 * interrupted. */
static void adapt_lead(_Atomic int64_t *lead_ns, int64_t duration_ns)
{
    const int64_t needed = MIN_LEAD_NS + duration_ns + duration_ns / 4, present = atomic_load(lead_ns);
    const int64_t wanted = needed < MAX_LEAD_NS ? needed : MAX_LEAD_NS;
    atomic_store(lead_ns, present + (wanted - present) / (wanted > present ? 4 : 16));
}

void reading_times_done(reading_times_t *times, int64_t duration_ns, unsigned phases)
{
    adapt_lead(&times->lead_ns[times->phase], duration_ns);
    do
        times->phase++;
    while (times->phase < READING_PHASES && !(phases >> times->phase & 1));
    if (times->phase == READING_PHASES) {
        times->phase = 0;
        times->begin_ns += times->period_ns;
    }
}
