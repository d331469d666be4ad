#define _GNU_SOURCE
#include "rtp/port_pool.h"

#include "net/monotonic_clock.h"

#include <pjsua-lib/pjsua_internal.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define MAX_PAIRS 32768

typedef struct pair {
    bool in_use;
    int64_t quarantined_until_ns;
} pair_t;

static struct {
    pthread_mutex_t lock;
    uint16_t first;
    int count, left, next;
    pair_t pairs[MAX_PAIRS];
} ports = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic uint64_t exhaustions;
static __thread const pjsip_dialog *last_exhausted_dialog; /* only compared: it may be freed */

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

/* The lock is held. The next pair in turn that is not quarantined, else the one whose quarantine ends first; -1 if all are
 * in use. */
static int choose_pair(int64_t now_ns)
{
    int best = -1;
    for (int i = 0; i < ports.count; i++) {
        int at = (ports.next + i) % ports.count;
        const pair_t *pair = &ports.pairs[at];
        if (pair->in_use)
            continue;
        if (pair->quarantined_until_ns <= now_ns)
            return at;
        if (best < 0 || pair->quarantined_until_ns < ports.pairs[best].quarantined_until_ns)
            best = at;
    }
    return best;
}

/* PJSUA tries the account's next port, and those after it when another program has that one: a pair that was chosen in
 * vain is quarantined, too. */
static uint16_t choose_port(void)
{
    const int64_t now_ns = monotonic_ns();
    pthread_mutex_lock(&ports.lock);
    int at = choose_pair(now_ns);
    uint16_t port = at < 0 ? 0 : (uint16_t)(ports.first + 2 * at);
    if (at >= 0) {
        ports.next = (at + 1) % ports.count;
        ports.pairs[at].quarantined_until_ns = now_ns + PORT_QUARANTINE_NS;
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
        last_exhausted_dialog = pjsua_var.calls[call].async_call.dlg;
        port_pool_count_exhaustion();
    }
    return PJ_SUCCESS;
}

bool port_pool_exhausted_for(const pjsip_dialog *dialog)
{
    return dialog && dialog == last_exhausted_dialog;
}

static void set_in_use(uint16_t port, bool in_use)
{
    const int64_t now_ns = monotonic_ns();
    pthread_mutex_lock(&ports.lock);
    int at = port < ports.first ? -1 : (port - ports.first) / 2;
    if (at >= 0 && at < ports.count && ports.pairs[at].in_use != in_use) {
        ports.pairs[at].in_use = in_use;
        ports.left += in_use ? -1 : 1;
        ports.pairs[at].quarantined_until_ns = now_ns + PORT_QUARANTINE_NS;
    }
    pthread_mutex_unlock(&ports.lock);
}

void port_pool_acquire(uint16_t port)
{
    set_in_use(port, true);
}

void port_pool_release(uint16_t port)
{
    set_in_use(port, false);
}

void port_pool_count_exhaustion(void)
{
    atomic_fetch_add(&exhaustions, 1);
}

uint64_t port_pool_take_exhaustions(void)
{
    return atomic_exchange(&exhaustions, 0);
}
