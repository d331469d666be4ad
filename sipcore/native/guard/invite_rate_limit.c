#define _GNU_SOURCE
#include "guard/invite_rate_limit.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#define SETS 1024   /* a power of two */
#define WAYS 8      /* entries of a set */

typedef struct bucket {
    ip_key_t source;
    int64_t seen_ms;
    int64_t used;       /* thousandths of a token; 0: a full bucket, as of a new source */
} bucket_t;

static struct {
    pthread_mutex_t lock;
    unsigned per_second;
    uint64_t seed;      /* without it an attacker could choose addresses that evict each other */
    bucket_t bucket[SETS][WAYS];
} limits = {.lock = PTHREAD_MUTEX_INITIALIZER};

void invite_rate_limit_set(unsigned per_second)
{
    pthread_mutex_lock(&limits.lock);
    limits.per_second = per_second;
    if (getrandom(&limits.seed, sizeof limits.seed, GRND_NONBLOCK) != sizeof limits.seed)
        limits.seed ^= (uint64_t)(uintptr_t)&limits;
    memset(limits.bucket, 0, sizeof limits.bucket);
    pthread_mutex_unlock(&limits.lock);
}

/* The finalizer of MurmurHash3 over both halves: every bit of the address affects every bit of the index. */
static unsigned set_of(const ip_key_t *source)
{
    uint64_t half[2], hash = limits.seed;
    memcpy(half, source->byte, sizeof half);
    for (int i = 0; i < 2; i++) {
        hash ^= half[i];
        hash = (hash ^ (hash >> 33)) * 0xFF51AFD7ED558CCDu;
        hash = (hash ^ (hash >> 33)) * 0xC4CEB9FE1A85EC53u;
        hash ^= hash >> 33;
    }
    return (unsigned)(hash & (SETS - 1));
}

static bucket_t *bucket_of(const ip_key_t *source)
{
    bucket_t *set = limits.bucket[set_of(source)], *oldest = &set[0];
    for (int i = 0; i < WAYS; i++) {
        if (memcmp(&set[i].source, source, sizeof *source) == 0)
            return &set[i];
        if (set[i].seen_ms < oldest->seen_ms)
            oldest = &set[i];
    }
    *oldest = (bucket_t){.source = *source};
    return oldest;
}

static void refill(bucket_t *bucket, int64_t now_ms)
{
    int64_t gone_ms = now_ms - bucket->seen_ms;
    int64_t back = gone_ms > INVITE_BURST_S * 1000 ? bucket->used : gone_ms * (int64_t)limits.per_second;
    bucket->used = back < bucket->used ? bucket->used - back : 0;
    bucket->seen_ms = now_ms;
}

bool invite_rate_limit_take(const ip_key_t *source, int64_t now_ms)
{
    bool allowed = true;
    pthread_mutex_lock(&limits.lock);
    if (limits.per_second) {
        bucket_t *bucket = bucket_of(source);
        refill(bucket, now_ms);
        allowed = bucket->used + 1000 <= (int64_t)limits.per_second * INVITE_BURST_S * 1000;
        if (allowed)
            bucket->used += 1000;
    }
    pthread_mutex_unlock(&limits.lock);
    return allowed;
}
