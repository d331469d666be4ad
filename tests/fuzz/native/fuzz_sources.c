/* Networks as text, one a line, and after an empty line the address that is asked for, in its bytes: whether it lies in
 * one of them, as a look at each says. */
#include "stack.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "net/ip_set.h"

#define MOST 64

static bool lies_in(const char *text, const address_key_t *address)
{
    sources_t *one = sources_make(&text, 1);
    bool found = sources_contain(one, address);
    sources_free(one);
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *texts[MOST];
    address_key_t address = {{0}};
    int count = 0;
    char *copy = malloc(size + 1), *at = copy;
    memcpy(copy, data, size);
    copy[size] = 0;
    for (char *line; count < MOST && (line = strsep(&at, "\n")) && *line;)
        texts[count++] = line;
    if (at) {
        size_t rest = size - (size_t)(at - copy);
        memcpy(address.byte, at, rest < sizeof address.byte ? rest : sizeof address.byte);
    }
    sources_t *sources = sources_make(texts, count);
    bool expected = false;
    for (int i = 0; i < count; i++)
        expected = expected || lies_in(texts[i], &address);
    must(sources_contain(sources, &address) == expected, "all together hold what one of them holds");
    address_key_t site = address_key_site(&address), again = address_key_site(&site);
    must(memcmp(&site, &again, sizeof site) == 0, "the site of a site is itself");
    sources_free(sources);
    free(copy);
    return 0;
}
