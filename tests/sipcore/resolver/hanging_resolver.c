/* Loaded before the C library: every look-up of a name is noted in the file $ASKED, and those in .example hang. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note(const char *name)
{
    unsigned char address[16];
    if (!name || inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1)
        return;
    FILE *asked = fopen(getenv("ASKED"), "a");
    if (asked) {
        fprintf(asked, "%s\n", name);
        fclose(asked);
    }
    if (strstr(name, ".example"))
        sleep(60);
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
    note(node);
    return next(node, service, hints, result);
}

struct hostent *gethostbyname(const char *name)
{
    struct hostent *(*next)(const char *) = dlsym(RTLD_NEXT, "gethostbyname");
    note(name);
    return next(name);
}
