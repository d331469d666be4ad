#include "net/source_acl.h"

#include "net/ip_set.h"

#include <pthread.h>

static struct {
    pthread_mutex_t lock;
    ip_set_t *trunks, *probes;
} acl = {.lock = PTHREAD_MUTEX_INITIALIZER};

void source_acl_set(const char *const *trunks, int trunk_count, const char *const *probes, int probe_count)
{
    ip_set_t *new_trunks = ip_set_create(trunks, trunk_count), *new_probes = ip_set_create(probes, probe_count);
    pthread_mutex_lock(&acl.lock);
    ip_set_t *old_trunks = acl.trunks, *old_probes = acl.probes;
    acl.trunks = new_trunks;
    acl.probes = new_probes;
    pthread_mutex_unlock(&acl.lock);
    ip_set_free(old_trunks);
    ip_set_free(old_probes);
}

enum source_class source_acl_class(const pj_sockaddr *source)
{
    ip_key_t address;
    if (!ip_key_of(source, &address))
        return SOURCE_UNKNOWN;
    pthread_mutex_lock(&acl.lock);
    const bool trunk = ip_set_contains(acl.trunks, &address), probe = !trunk && ip_set_contains(acl.probes, &address);
    pthread_mutex_unlock(&acl.lock);
    return trunk ? SOURCE_TRUNK : probe ? SOURCE_PROBE : SOURCE_UNKNOWN;
}

bool source_acl_is_trunk(const pj_sockaddr *source)
{
    return source_acl_class(source) == SOURCE_TRUNK;
}

bool source_acl_has(const pj_sockaddr *source)
{
    return source_acl_class(source) != SOURCE_UNKNOWN;
}
