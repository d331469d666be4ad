/* An IP set: networks as text, one a line, and after an empty line an address in bytes. The set has it if one of the
 * networks has it. */
#include "stack.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "net/ip_set.h"

#define MAX_ENTRIES 64

static bool is_in_network(const char *text, const ip_key_t *address)
{
    ip_set_t *one = ip_set_create(&text, 1);
    bool found = ip_set_contains(one, address);
    ip_set_free(one);
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *texts[MAX_ENTRIES];
    ip_key_t address = {{0}};
    int count = 0;
    char *copy = malloc(size + 1), *at = copy;
    memcpy(copy, data, size);
    copy[size] = 0;
    for (char *line; count < MAX_ENTRIES && (line = strsep(&at, "\n")) && *line;)
        texts[count++] = line;
    if (at) {
        size_t rest = size - (size_t)(at - copy);
        memcpy(address.byte, at, rest < sizeof address.byte ? rest : sizeof address.byte);
    }
    ip_set_t *sources = ip_set_create(texts, count);
    bool expected = false;
    for (int i = 0; i < count; i++)
        expected = expected || is_in_network(texts[i], &address);
    must(ip_set_contains(sources, &address) == expected, "a set contains what one of its networks contains");
    ip_key_t prefix = ip_key_prefix64(&address), again = ip_key_prefix64(&prefix);
    must(memcmp(&prefix, &again, sizeof prefix) == 0, "the prefix of a prefix is itself");
    ip_set_free(sources);
    free(copy);
    return 0;
}
