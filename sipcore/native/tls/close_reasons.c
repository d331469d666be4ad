#define _GNU_SOURCE
#include "tls/close_reasons.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define KEPT 16
#define KEPT_MS 2000

typedef struct {
    pj_sockaddr peer;
    int64_t at_ms; /* 0: nothing is here */
    char why[TLS_WHY];
} ended_t;

static struct {
    pthread_mutex_t lock;
    ended_t all[KEPT];
} ended = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The lock is held. The peer's own place, else the oldest. */
static ended_t *place_of(const pj_sockaddr *peer)
{
    ended_t *oldest = &ended.all[0];
    for (int i = 0; i < KEPT; i++) {
        ended_t *one = &ended.all[i];
        if (one->at_ms && pj_sockaddr_cmp(peer, &one->peer) == 0)
            return one;
        if (one->at_ms < oldest->at_ms)
            oldest = one;
    }
    return oldest;
}

void tls_ended_note(const pj_sockaddr *peer, const char *why)
{
    pthread_mutex_lock(&ended.lock);
    ended_t *one = place_of(peer);
    one->peer = *peer;
    one->at_ms = now_ms();
    strncpy(one->why, why, sizeof one->why - 1);
    pthread_mutex_unlock(&ended.lock);
}

bool tls_ended_why(const pj_sockaddr *peer, char why[TLS_WHY])
{
    pthread_mutex_lock(&ended.lock);
    const ended_t *one = place_of(peer);
    bool found = one->at_ms && now_ms() - one->at_ms <= KEPT_MS && pj_sockaddr_cmp(peer, &one->peer) == 0;
    if (found)
        memcpy(why, one->why, TLS_WHY);
    pthread_mutex_unlock(&ended.lock);
    return found;
}
