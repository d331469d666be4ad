#define _GNU_SOURCE
#include "tls/close_reasons.h"

#include "net/monotonic_clock.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define MAX_REASONS 16
#define REASON_LIFETIME_MS 2000

typedef struct {
    pj_sockaddr peer;
    int64_t at_ms; /* 0: a free entry */
    char reason[TLS_REASON_SIZE];
} close_reason_t;

static struct {
    pthread_mutex_t lock;
    close_reason_t all[MAX_REASONS];
} reasons = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock is held. The peer's entry, else the oldest. */
static close_reason_t *entry_of(const pj_sockaddr *peer)
{
    close_reason_t *oldest = &reasons.all[0];
    for (int i = 0; i < MAX_REASONS; i++) {
        close_reason_t *one = &reasons.all[i];
        if (one->at_ms && pj_sockaddr_cmp(peer, &one->peer) == 0)
            return one;
        if (one->at_ms < oldest->at_ms)
            oldest = one;
    }
    return oldest;
}

void tls_close_reason_set(const pj_sockaddr *peer, const char *reason)
{
    pthread_mutex_lock(&reasons.lock);
    close_reason_t *one = entry_of(peer);
    one->peer = *peer;
    one->at_ms = monotonic_ms();
    strncpy(one->reason, reason, sizeof one->reason - 1);
    pthread_mutex_unlock(&reasons.lock);
}

bool tls_close_reason_get(const pj_sockaddr *peer, char reason[TLS_REASON_SIZE])
{
    pthread_mutex_lock(&reasons.lock);
    const close_reason_t *one = entry_of(peer);
    bool found = one->at_ms && monotonic_ms() - one->at_ms <= REASON_LIFETIME_MS && pj_sockaddr_cmp(peer, &one->peer) == 0;
    if (found)
        memcpy(reason, one->reason, TLS_REASON_SIZE);
    pthread_mutex_unlock(&reasons.lock);
    return found;
}
