#define _GNU_SOURCE
#include "rtp/port_pool.h"

#include "net/monotonic_clock.h"

#include <pjsua-lib/pjsua_internal.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define MOST_PAIRS 32768

typedef struct pair {
    bool taken;
    int64_t rests_until_ns;
} pair_t;

static struct {
    pthread_mutex_t lock;
    uint16_t first;
    int count, left, next;
    pair_t pairs[MOST_PAIRS];
} ports = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic uint64_t missed;
static __thread const pjsip_dialog *missed_by; /* only compared: it may be freed */

void port_pool_set(uint16_t first, uint16_t last, uint16_t begin)
{
    pthread_mutex_lock(&ports.lock);
    memset(ports.pairs, 0, sizeof ports.pairs);
    ports.first = first;
    ports.count = ports.left = (last - first + 1) / 2;
    ports.next = begin % ports.count;
    pthread_mutex_unlock(&ports.lock);
}

int port_pool_left(void)
{
    pthread_mutex_lock(&ports.lock);
    int left = ports.left;
    pthread_mutex_unlock(&ports.lock);
    return left;
}

/* The lock is held. The next pair in turn that has rested, else the one that has rested longest; -1 if all are in use. */
static int choose_pair(int64_t now_ns)
{
    int best = -1;
    for (int i = 0; i < ports.count; i++) {
        int at = (ports.next + i) % ports.count;
        const pair_t *pair = &ports.pairs[at];
        if (pair->taken)
            continue;
        if (pair->rests_until_ns <= now_ns)
            return at;
        if (best < 0 || pair->rests_until_ns < ports.pairs[best].rests_until_ns)
            best = at;
    }
    return best;
}

/* PJSUA tries the account's next port, and those after it when another program has that one: a pair that was chosen in
 * vain counts as having been used. */
static uint16_t choose_port(void)
{
    const int64_t now_ns = monotonic_ns();
    pthread_mutex_lock(&ports.lock);
    int at = choose_pair(now_ns);
    uint16_t port = at < 0 ? 0 : (uint16_t)(ports.first + 2 * at);
    if (at >= 0) {
        ports.next = (at + 1) % ports.count;
        ports.pairs[at].rests_until_ns = now_ns + PORT_REST_NS;
    }
    pthread_mutex_unlock(&ports.lock);
    return port;
}

pj_status_t port_pool_on_media_state(pjsua_call_id call, const pjsua_med_tp_state_info *info)
{
    if (info->state == PJSUA_MED_TP_CREATING) {
        uint16_t port = choose_port();
        if (port)
            pjsua_var.acc[pjsua_var.calls[call].acc_id].next_rtp_port = port;
    } else if (info->state == PJSUA_MED_TP_NULL && info->status != PJ_SUCCESS) {
        missed_by = pjsua_var.calls[call].async_call.dlg;
        port_pool_count_miss();
    }
    return PJ_SUCCESS;
}

bool port_pool_missed_by(const pjsip_dialog *dialog)
{
    return dialog && dialog == missed_by;
}

static void mark(uint16_t port, bool taken)
{
    const int64_t now_ns = monotonic_ns();
    pthread_mutex_lock(&ports.lock);
    int at = port < ports.first ? -1 : (port - ports.first) / 2;
    if (at >= 0 && at < ports.count && ports.pairs[at].taken != taken) {
        ports.pairs[at].taken = taken;
        ports.left += taken ? -1 : 1;
        ports.pairs[at].rests_until_ns = now_ns + PORT_REST_NS;
    }
    pthread_mutex_unlock(&ports.lock);
}

void port_pool_take(uint16_t port)
{
    mark(port, true);
}

void port_pool_release(uint16_t port)
{
    mark(port, false);
}

void port_pool_count_miss(void)
{
    atomic_fetch_add(&missed, 1);
}

uint64_t port_pool_take_misses(void)
{
    return atomic_exchange(&missed, 0);
}
