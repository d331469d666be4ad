#include "pump/tick_pair.h"

#include "pump/packet_arrival.h"

#define NOWHERE (-TICK_PHASES)       /* the place of a slot that has not had a tick: no thread's */
#define MIN_IN_STEP 3               /* one thread has ticked both slots by then, each time */
#define MAX_WAIT_TICKS 50           /* for packets of both peers; then those of one are enough */
#define SAFE_NS 4000000LL           /* distance of packets from the time of their reading: jitter is less */
#define CLOSE_NS 1500000LL          /* distance at which drift of the peers' clocks makes another phase necessary, */
#define MIN_GAIN_NS 1000000LL       /* if that one is better by so much */
#define MIN_STAY_NS 10000000000LL

void tick_pair_init(tick_pair_t *pair)
{
    for (int i = 0; i < 2; i++) {
        atomic_init(&pair->place[i], NOWHERE);
        atomic_init(&pair->arrival_ns[i], ARRIVAL_UNKNOWN);
    }
    atomic_init(&pair->phase, ANY_PHASE);
}

/* From a packet's arrival until the next reading for this phase begins. */
static int64_t wait_ns(int phase, int64_t lead_ns, int64_t arrival_ns)
{
    return (phase * TICK_NS / TICK_PHASES - lead_ns - arrival_ns + 2 * TICK_NS) % TICK_NS;
}

/* The least time between the arrival of a peer's packets and the reading for this phase, from its beginning to its tick. */
static int64_t distance_ns(const int64_t *arrival_ns, int phase, int64_t lead_ns)
{
    int64_t least = TICK_NS;
    for (int i = 0; i < 2; i++) {
        if (arrival_ns[i] == ARRIVAL_UNKNOWN)
            continue;
        const int64_t before = wait_ns(phase, lead_ns, arrival_ns[i]), after = TICK_NS - lead_ns - before;
        least = before < least ? before : least;
        least = after < least ? after : least;
    }
    return least;
}

static int64_t longest_wait_ns(const int64_t *arrival_ns, int phase, int64_t lead_ns)
{
    int64_t longest = 0;
    for (int i = 0; i < 2; i++) {
        const int64_t wait = arrival_ns[i] == ARRIVAL_UNKNOWN ? 0 : lead_ns + wait_ns(phase, lead_ns, arrival_ns[i]);
        longest = wait > longest ? wait : longest;
    }
    return longest;
}

/* The shortest wait at a safe distance; without a safe phase, the greatest distance. */
static int best_phase(const int64_t *arrival_ns, const int64_t *lead_ns)
{
    int best = 0;
    int64_t best_distance = -1, best_wait = 0;
    for (int phase = 0; phase < TICK_PHASES; phase++) {
        const int64_t exact = distance_ns(arrival_ns, phase, lead_ns[phase]), distance = exact < SAFE_NS ? exact : SAFE_NS;
        const int64_t wait = longest_wait_ns(arrival_ns, phase, lead_ns[phase]);
        if (distance < best_distance || (distance == best_distance && wait >= best_wait))
            continue;
        best = phase;
        best_distance = distance;
        best_wait = wait;
    }
    return best;
}

static void choose(tick_pair_t *pair, const tick_t *tick, const int64_t *arrival_ns)
{
    const int best = best_phase(arrival_ns, tick->lead_ns), present = tick->phase;
    if (pair->chosen_ns) {
        const int64_t distance = distance_ns(arrival_ns, present, tick->lead_ns[present]);
        if (distance >= CLOSE_NS || tick->due_ns - pair->chosen_ns < MIN_STAY_NS ||
            distance_ns(arrival_ns, best, tick->lead_ns[best]) < distance + MIN_GAIN_NS)
            return;
    }
    pair->chosen_ns = tick->due_ns;
    atomic_store(&pair->phase, best);
}

/* The second slot takes the phase that the first one has from an earlier bridge. */
static void fall_into_step(tick_pair_t *pair, const tick_t *tick, int other_place)
{
    if (other_place / TICK_PHASES == tick->shard && other_place % TICK_PHASES != tick->phase && !pair->chosen_ns)
        atomic_store(&pair->phase, tick->phase);
}

void tick_pair_report(tick_pair_t *pair, int slot, const tick_t *tick, int64_t arrival_ns)
{
    const int place = tick->shard * TICK_PHASES + tick->phase;
    atomic_store(&pair->place[slot], place);
    atomic_store(&pair->arrival_ns[slot], arrival_ns);
    if (slot != 0)
        return;
    const int other_place = atomic_load(&pair->place[1]);
    pair->in_step = other_place == place ? pair->in_step + 1 : 0;
    fall_into_step(pair, tick, other_place);
    const int64_t arrivals[2] = {arrival_ns, atomic_load(&pair->arrival_ns[1])};
    const int known = (arrivals[0] != ARRIVAL_UNKNOWN) + (arrivals[1] != ARRIVAL_UNKNOWN);
    if (pair->in_step >= MIN_IN_STEP && (known == 2 || (known && pair->in_step >= MAX_WAIT_TICKS)))
        choose(pair, tick, arrivals);
}
