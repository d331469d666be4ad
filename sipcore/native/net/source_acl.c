#include "net/source_acl.h"

#include "net/ip_set.h"

#include <pthread.h>

static struct {
    pthread_mutex_t lock;
    sources_t *trunks, *probes;
} acl = {.lock = PTHREAD_MUTEX_INITIALIZER};

void source_acl_set(const char *const *trunks, int trunk_count, const char *const *probes, int probe_count)
{
    sources_t *new_trunks = sources_make(trunks, trunk_count), *new_probes = sources_make(probes, probe_count);
    pthread_mutex_lock(&acl.lock);
    sources_t *old_trunks = acl.trunks, *old_probes = acl.probes;
    acl.trunks = new_trunks;
    acl.probes = new_probes;
    pthread_mutex_unlock(&acl.lock);
    sources_free(old_trunks);
    sources_free(old_probes);
}

enum source_class source_acl_class(const pj_sockaddr *source)
{
    address_key_t address;
    if (!address_key(source, &address))
        return SOURCE_UNKNOWN;
    pthread_mutex_lock(&acl.lock);
    const bool trunk = sources_contain(acl.trunks, &address), probe = !trunk && sources_contain(acl.probes, &address);
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
