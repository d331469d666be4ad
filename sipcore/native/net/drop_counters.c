#include "net/drop_counters.h"

#include <pthread.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    drop_event_t events[DROP_MAX_EVENTS];
    int count;
    uint64_t more, totals[DROP_KINDS];
} drops = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *drop_kind_name(enum drop_kind kind)
{
    static const char *const names[] = {"unknown_source", "garbage", "too_many_invites", "too_many_connections",
                                        "slow_connection", "own_challenge", "media_refused", "media_elsewhere"};
    return names[kind];
}

/* The lock is held. */
static drop_event_t *event_of(enum drop_kind kind, const char *source)
{
    for (int i = 0; i < drops.count; i++)
        if (drops.events[i].kind == kind && strcmp(drops.events[i].source, source) == 0)
            return &drops.events[i];
    if (drops.count == DROP_MAX_EVENTS)
        return NULL;
    drop_event_t *event = &drops.events[drops.count++];
    event->kind = kind;
    event->count = event->size = 0;
    memset(event->source, 0, sizeof event->source);
    event->header[0] = 0;
    strncpy(event->source, source, sizeof event->source - 1);
    return event;
}

/* The lock is held. */
static void store_sample(drop_event_t *event, const pj_str_t *header, const char *data, pj_size_t size)
{
    event->size = size < DROP_SAMPLE_SIZE ? size : DROP_SAMPLE_SIZE;
    memcpy(event->sample, data, event->size);
    pj_ansi_snprintf(event->header, sizeof event->header, "%.*s", (int)header->slen, header->slen ? header->ptr : "");
}

void drop_count_message(enum drop_kind kind, const char *source, const pj_str_t *header, const char *data, pj_size_t size)
{
    pthread_mutex_lock(&drops.lock);
    drop_event_t *event = event_of(kind, source);
    drops.totals[kind]++;
    if (event)
        event->count++;
    else
        drops.more++;
    if (event && data && !event->size)
        store_sample(event, header, data, size);
    pthread_mutex_unlock(&drops.lock);
}

void drop_count(enum drop_kind kind, const char *source)
{
    drop_count_message(kind, source, NULL, NULL, 0);
}

int drop_take_events(drop_event_t *out, uint64_t *more)
{
    pthread_mutex_lock(&drops.lock);
    int count = drops.count;
    memcpy(out, drops.events, (size_t)count * sizeof *out);
    *more = drops.more;
    drops.count = 0;
    drops.more = 0;
    pthread_mutex_unlock(&drops.lock);
    return count;
}

void drop_totals(uint64_t *totals)
{
    pthread_mutex_lock(&drops.lock);
    memcpy(totals, drops.totals, sizeof drops.totals);
    pthread_mutex_unlock(&drops.lock);
}
