#define _GNU_SOURCE
#include "net/ip_set.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define BITS 128
#define SITE 64
#define MAPPED 96   /* length of the prefix ::ffff:0:0/96 */

typedef struct network {
    ip_key_t address;
    int bits;
} network_t;

struct ip_set {
    int lengths;
    struct {
        int bits, first, count;
    } length[BITS + 1]; /* the networks by length of their prefix, the longest first */
    network_t network[];
};

static void map(const void *v4, ip_key_t *key)
{
    memset(key->byte, 0, 10);
    memset(key->byte + 10, 0xFF, 2);
    memcpy(key->byte + 12, v4, 4);
}

bool ip_key_of(const pj_sockaddr *address, ip_key_t *key)
{
    if (address->addr.sa_family == pj_AF_INET())
        map(&address->ipv4.sin_addr, key);
    else if (address->addr.sa_family == pj_AF_INET6())
        memcpy(key->byte, &address->ipv6.sin6_addr, sizeof key->byte);
    else
        return false;
    return true;
}

bool ip_same_host(const pj_sockaddr *one, const pj_sockaddr *other)
{
    ip_key_t keys[2];
    return ip_key_of(one, &keys[0]) && ip_key_of(other, &keys[1]) && memcmp(&keys[0], &keys[1], sizeof keys[0]) == 0;
}

static void cut(ip_key_t *key, int bits)
{
    for (int i = 0; i < 16; i++, bits -= 8)
        if (bits < 8)
            key->byte[i] &= bits <= 0 ? 0 : (uint8_t)(0xFF << (8 - bits));
}

static bool parse(const char *text, network_t *network)
{
    char address[INET6_ADDRSTRLEN + 1] = {0};
    uint8_t v4[4];
    const char *slash = strchr(text, '/');
    size_t length = slash ? (size_t)(slash - text) : strlen(text);
    if (length >= sizeof address)
        return false;
    memcpy(address, text, length);
    int max_bits = BITS;
    if (inet_pton(AF_INET, address, v4) == 1) {
        map(v4, &network->address);
        max_bits = 32;
    } else if (inet_pton(AF_INET6, address, network->address.byte) != 1) {
        return false;
    }
    char *end = NULL;
    long bits = slash ? strtol(slash + 1, &end, 10) : max_bits;
    if ((slash && (end == slash + 1 || *end)) || bits < 0 || bits > max_bits)
        return false;
    network->bits = (int)bits + (max_bits == 32 ? MAPPED : 0);
    cut(&network->address, network->bits);
    return true;
}

static int compare(const void *a, const void *b)
{
    const network_t *one = a, *other = b;
    int longer = other->bits - one->bits;
    return longer ? longer : memcmp(one->address.byte, other->address.byte, sizeof one->address.byte);
}

static void find_lengths(ip_set_t *set, int count)
{
    for (int i = 0; i < count; i++) {
        if (i == 0 || set->network[i].bits != set->network[i - 1].bits) {
            set->length[set->lengths].bits = set->network[i].bits;
            set->length[set->lengths++].first = i;
        }
        set->length[set->lengths - 1].count++;
    }
}

ip_set_t *ip_set_create(const char *const *texts, int count)
{
    ip_set_t *set = calloc(1, sizeof *set + (size_t)count * sizeof *set->network);
    int used = 0;
    for (int i = 0; set && i < count; i++)
        if (parse(texts[i], &set->network[used]))
            used++;
    if (set && used) {
        qsort(set->network, (size_t)used, sizeof *set->network, compare);
        find_lengths(set, used);
    }
    return set;
}

void ip_set_free(ip_set_t *set)
{
    free(set);
}

static bool is_mapped(const ip_key_t *address)
{
    static const uint8_t before[MAPPED / 8] = {[10] = 0xFF, [11] = 0xFF};
    return memcmp(address->byte, before, sizeof before) == 0;
}

ip_key_t ip_key_prefix64(const ip_key_t *address)
{
    ip_key_t site = *address;
    if (!is_mapped(address))
        cut(&site, SITE);
    return site;
}

bool ip_set_contains(const ip_set_t *set, const ip_key_t *address)
{
    const int shortest = is_mapped(address) ? MAPPED : 0; /* ::/0 holds no IPv4 address */
    for (int i = 0; set && i < set->lengths && set->length[i].bits >= shortest; i++) {
        network_t key = {.address = *address, .bits = set->length[i].bits};
        cut(&key.address, key.bits);
        const network_t *from = &set->network[set->length[i].first];
        if (bsearch(&key, from, (size_t)set->length[i].count, sizeof key, compare))
            return true;
    }
    return false;
}
