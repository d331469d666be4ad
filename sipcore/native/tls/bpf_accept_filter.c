#define _GNU_SOURCE
#include "tls/bpf_accept_filter.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <pj/log.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define ACCEPT 0xFFFFFFFFu
#define DROP 0
#define MAX_INSTRUCTIONS 4096 /* BPF_MAXINSNS */
#define MAX_ENTRY_INSTRUCTIONS 13     /* the longest: three instructions for each of four words, and the verdict */

typedef struct {
    struct sock_filter code[MAX_INSTRUCTIONS];
    int length;
    bool full;  /* not all sources fit: it must admit every source */
} program_t;

static struct {
    pthread_mutex_t lock;
    program_t v4, v6;
    bool allow_all;
} filter = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void emit(program_t *program, uint16_t code, uint32_t k, uint8_t if_not)
{
    program->code[program->length++] = (struct sock_filter){code, 0, if_not, k};
}

/* Compares each masked word of the source address; if one differs, the rest of the entry is skipped. */
static void emit_entry(program_t *program, const uint32_t *words, int count, int first, int bits)
{
    int size = 1;
    for (int left = bits; left > 0; left -= 32)
        size += left < 32 ? 3 : 2;
    int end = program->length + size;
    for (int i = 0; i < count && bits > 0; i++, bits -= 32) {
        uint32_t mask = bits >= 32 ? 0xFFFFFFFFu : ~(0xFFFFFFFFu >> bits);
        emit(program, BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_NET_OFF + first + 4 * i), 0);
        if (bits < 32)
            emit(program, BPF_ALU | BPF_AND | BPF_K, mask, 0);
        emit(program, BPF_JMP | BPF_JEQ | BPF_K, words[i] & mask, (uint8_t)(end - program->length - 1));
    }
    emit(program, BPF_RET | BPF_K, ACCEPT, 0);
}

/* `address` or `address/bits`. Other texts are skipped. */
static void add_source(const char *source)
{
    char address[INET6_ADDRSTRLEN + 1];
    uint32_t words[4];
    int bits = -1;
    if (sscanf(source, "%46[^/]/%d", address, &bits) < 1)
        return;
    bool v6 = strchr(address, ':') != NULL;
    program_t *program = v6 ? &filter.v6 : &filter.v4;
    int all = v6 ? 128 : 32;
    if (inet_pton(v6 ? AF_INET6 : AF_INET, address, words) != 1)
        return;
    program->full = program->full || program->length + MAX_ENTRY_INSTRUCTIONS + 1 > MAX_INSTRUCTIONS;
    if (program->full)
        return;
    for (int i = 0; i < all / 32; i++)
        words[i] = ntohl(words[i]);
    emit_entry(program, words, all / 32, v6 ? 8 : 12, bits < 0 || bits > all ? all : bits);
}

void bpf_accept_filter_build(const char *const *sources, int count, const char *const *more, int more_count)
{
    pthread_mutex_lock(&filter.lock);
    filter.v4.length = filter.v6.length = 0;
    filter.v4.full = filter.v6.full = false;
    for (int i = 0; i < count; i++)
        add_source(sources[i]);
    for (int i = 0; i < more_count; i++)
        add_source(more[i]);
    emit(&filter.v4, BPF_RET | BPF_K, DROP, 0);
    emit(&filter.v6, BPF_RET | BPF_K, DROP, 0);
    pthread_mutex_unlock(&filter.lock);
}

bool bpf_accept_filter_allow_all(bool on)
{
    pthread_mutex_lock(&filter.lock);
    bool changed = filter.allow_all != on;
    filter.allow_all = on;
    pthread_mutex_unlock(&filter.lock);
    return changed;
}

static bool attach(int fd, struct sock_filter *code, int length)
{
    struct sock_fprog program = {(unsigned short)length, code};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
}

void bpf_accept_filter_attach(int fd, bool ipv6)
{
    int none = 0;
    pthread_mutex_lock(&filter.lock);
    program_t *program = ipv6 ? &filter.v6 : &filter.v4;
    if (filter.allow_all || program->full || !attach(fd, program->code, program->length)) {
        setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none);
        if (!filter.allow_all)
            PJ_LOG(1, ("tls", "TLS connections are not filtered by their source before the handshake: %s",
                       program->full ? "too many sources" : "the kernel does not take the filter"));
    }
    pthread_mutex_unlock(&filter.lock);
}

bool bpf_accept_filter_is_selective(void)
{
    pthread_mutex_lock(&filter.lock);
    bool selective = !filter.allow_all;
    pthread_mutex_unlock(&filter.lock);
    return selective;
}

/* Of sockets that share a port, the program names one by its number, in the order in which they came. */
bool bpf_accept_filter_split(int fd, bool ipv6)
{
    static program_t splitter;
    pthread_mutex_lock(&filter.lock);
    const program_t *program = ipv6 ? &filter.v6 : &filter.v4;
    bool parts = !filter.allow_all && !program->full && program->length > 0;
    for (int i = 0; parts && i < program->length; i++) {
        splitter.code[i] = program->code[i];
        if (program->code[i].code == (BPF_RET | BPF_K))
            splitter.code[i].k = program->code[i].k == DROP;
    }
    struct sock_fprog bpf = {(unsigned short)(parts ? program->length : 0), splitter.code};
    parts = parts && setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &bpf, sizeof bpf) == 0;
    pthread_mutex_unlock(&filter.lock);
    return parts;
}

void bpf_accept_filter_drop_all(int fd)
{
    struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, DROP);
    if (!attach(fd, &drop, 1))
        PJ_LOG(1, ("tls", "Cannot drop connections to the TLS socket"));
}
