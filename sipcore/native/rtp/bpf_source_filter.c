#define _GNU_SOURCE
#include "rtp/bpf_source_filter.h"

#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <sys/socket.h>

#define IPV4_SOURCE 12
#define IPV6_SOURCE 8
#define ACCEPT 0xFFFFFFFFu
#define DROP 0
#define MAX_ADDRESS_WORDS 4        /* of an address */

typedef struct program {
    struct sock_filter code[2 * 2 * MAX_ADDRESS_WORDS + 4];
    unsigned short length;
} program_t;

static void put(program_t *program, struct sock_filter step)
{
    program->code[program->length++] = step;
}

/* Accepts the packet if all words of its source address are this host's; a word that differs skips the rest. */
static void accept_host(program_t *program, const pj_sockaddr *host)
{
    const uint8_t *address = pj_sockaddr_get_addr(host);
    const unsigned words = pj_sockaddr_get_addr_len(host) / 4;
    const uint32_t at = (uint32_t)SKF_NET_OFF + (words == 1 ? IPV4_SOURCE : IPV6_SOURCE);
    for (unsigned i = 0; i < words; i++) {
        uint32_t word;
        memcpy(&word, address + i * 4, 4);
        uint8_t skip = (uint8_t)(2 * (words - 1 - i) + 1);
        put(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at + i * 4));
        put(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, pj_ntohl(word), 0, skip));
    }
    put(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, ACCEPT));
}

static int family_of(pj_sock_t sock)
{
    int family = 0;
    socklen_t length = sizeof family;
    return getsockopt((int)sock, SOL_SOCKET, SO_DOMAIN, &family, &length) == 0 ? family : 0;
}

void bpf_source_filter_attach(pj_sock_t sock, const pj_sockaddr *first, const pj_sockaddr *second)
{
    program_t program = {.length = 0};
    const int family = sock == PJ_INVALID_SOCKET ? 0 : family_of(sock);
    if (family && first->addr.sa_family == family && pj_sockaddr_has_addr(first))
        accept_host(&program, first);
    if (family && second->addr.sa_family == family && pj_sockaddr_has_addr(second))
        accept_host(&program, second);
    if (!program.length)
        return;
    put(&program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, DROP));
    struct sock_fprog filter = {program.length, program.code};
    if (setsockopt((int)sock, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0)
        PJ_LOG(1, ("rtp", "Cannot filter RTP by its source"));
}

uint32_t bpf_source_filter_drops(pj_sock_t sock)
{
    uint32_t memory[SK_MEMINFO_VARS] = {0};
    socklen_t length = sizeof memory;
    if (sock == PJ_INVALID_SOCKET || getsockopt((int)sock, SOL_SOCKET, SO_MEMINFO, memory, &length) != 0)
        return 0;
    return memory[SK_MEMINFO_DROPS];
}
