#include "net/drop_counters.h"

#include <pthread.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    away_event_t events[AWAY_EVENTS];
    int count;
    uint64_t more, totals[AWAY_KINDS];
} away = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *away_name(enum away_kind kind)
{
    static const char *const names[] = {"unknown_source", "garbage", "too_many_invites", "too_many_connections",
                                        "slow_connection", "own_challenge", "media_refused", "media_elsewhere"};
    return names[kind];
}

/* The lock is held. */
static away_event_t *event_of(enum away_kind kind, const char *source)
{
    for (int i = 0; i < away.count; i++)
        if (away.events[i].kind == kind && strcmp(away.events[i].source, source) == 0)
            return &away.events[i];
    if (away.count == AWAY_EVENTS)
        return NULL;
    away_event_t *event = &away.events[away.count++];
    event->kind = kind;
    event->count = event->size = 0;
    memset(event->source, 0, sizeof event->source);
    event->header[0] = 0;
    strncpy(event->source, source, sizeof event->source - 1);
    return event;
}

/* The lock is held. */
static void keep_message(away_event_t *event, const pj_str_t *header, const char *data, pj_size_t size)
{
    event->size = size < AWAY_SAMPLE ? size : AWAY_SAMPLE;
    memcpy(event->sample, data, event->size);
    pj_ansi_snprintf(event->header, sizeof event->header, "%.*s", (int)header->slen, header->slen ? header->ptr : "");
}

void turned_away_message(enum away_kind kind, const char *source, const pj_str_t *header, const char *data, pj_size_t size)
{
    pthread_mutex_lock(&away.lock);
    away_event_t *event = event_of(kind, source);
    away.totals[kind]++;
    if (event)
        event->count++;
    else
        away.more++;
    if (event && data && !event->size)
        keep_message(event, header, data, size);
    pthread_mutex_unlock(&away.lock);
}

void turned_away(enum away_kind kind, const char *source)
{
    turned_away_message(kind, source, NULL, NULL, 0);
}

int away_take(away_event_t *out, uint64_t *more)
{
    pthread_mutex_lock(&away.lock);
    int count = away.count;
    memcpy(out, away.events, (size_t)count * sizeof *out);
    *more = away.more;
    away.count = 0;
    away.more = 0;
    pthread_mutex_unlock(&away.lock);
    return count;
}

void away_totals(uint64_t *totals)
{
    pthread_mutex_lock(&away.lock);
    memcpy(totals, away.totals, sizeof away.totals);
    pthread_mutex_unlock(&away.lock);
}
