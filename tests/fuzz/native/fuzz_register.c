/* A registrar's responses to our REGISTER, each a status and its headers, with an empty line behind it: challenges are
 * answered a few times at most, one outcome is reported, and the password is never sent. */
#define _GNU_SOURCE
#include "stack.h"

#include <string.h>

#define SECRET "the-password"
#define MAX_SIZE 4000
#define MAX_RESPONSES 8

static register_outcome_t outcome;
static int outcomes;

static void on_outcome(const register_outcome_t *reported)
{
    outcome = *reported;
    outcomes++;
}

/* The headers of our last request that a response repeats. */
static size_t repeat(char *text, size_t room)
{
    static const char *const matches[] = {"Via:", "From:", "To:", "Call-ID:", "CSeq:"};
    size_t length = 0;
    for (const char *line = stack_last_sent(); (line = strstr(line, "\r\n"));) {
        line += 2;
        for (unsigned i = 0; i < PJ_ARRAY_SIZE(matches); i++)
            if (strncmp(line, matches[i], strlen(matches[i])) == 0)
                length += (size_t)pj_ansi_snprintf(text + length, room - length, "%.*s\r\n", (int)strcspn(line, "\r"), line);
    }
    return length;
}

static int receive(const char *status, const char *headers)
{
    static char text[2 * MAX_SIZE];
    size_t length = (size_t)pj_ansi_snprintf(text, sizeof text, "SIP/2.0 %s\r\n", status);
    length += repeat(text + length, sizeof text - length);
    length += (size_t)pj_ansi_snprintf(text + length, sizeof text - length, "%s\r\nContent-Length: 0\r\n\r\n", headers);
    return stack_receive((const uint8_t *)text, length, PEER_ADDRESS, false).sent;
}

static void check(int sent)
{
    must(sent <= REGISTER_MAX_CHALLENGES, "challenges are answered a few times at most");
    must(!strstr(stack_last_sent(), SECRET), "the password is not sent");
    must(outcomes <= 1, "one outcome is reported");
    if (!outcomes)
        return;
    must(outcome.token == 7 && memchr(outcome.reason, 0, sizeof outcome.reason), "the outcome has our token and a reason");
    must(outcome.kind != REGISTER_ANSWERED || (outcome.code >= 200 && strcmp(outcome.source, PEER_ADDRESS) == 0),
         "the source of the response is reported");
    must(!outcome.expires_s || outcome.code / 100 == 2, "only a 2xx grants an expiry");
    must(outcome.retry_after_s >= -1 && outcome.min_expires_s >= -1, "a time is -1 or more");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const register_params_t params = {.token = 7, .registrar = "sip:" PEER_ADDRESS, .aor = "sip:me@" PEER_ADDRESS,
                                    .contact = "", .former = "<sip:me@127.0.0.1:1>", .call_id = "registration", .cseq = 1,
                                    .expires_s = 300, .user = "me", .password = SECRET};
    char contact[256], text[MAX_SIZE + 1], *at = text, *answer;
    int sent = 0;
    if (memmem(data, size, SECRET, strlen(SECRET))) /* else the registrar would have sent it */
        return 0;
    stack_start();
    stack_admit_responses();
    stack_on_outcome = on_outcome;
    outcomes = 0;
    size = size < MAX_SIZE ? size : MAX_SIZE;
    memcpy(text, data, size);
    text[size] = 0;
    must(register_send(&params, contact, sizeof contact) == PJ_SUCCESS, "a request is sent");
    for (int i = 0; i < MAX_RESPONSES && (answer = at); i++) {
        char *end = strstr(at, "\n\n");
        at = end ? end + 2 : NULL;
        if (end)
            *end = 0;
        const char *status = strsep(&answer, "\n");
        sent += receive(status, answer ? answer : "");
        check(sent);
    }
    register_abandon(params.account);
    stack_end_transactions();
    must(outcomes == 1, "one outcome is reported");
    register_drop(params.account);
    return 0;
}
