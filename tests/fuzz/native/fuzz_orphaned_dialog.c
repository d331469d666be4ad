/* The end of an orphaned dialog from its record, and what the peer makes of it. The input is a series of steps with the byte
 * 0x1E between them, each named by its first letter: B is a record of an answered dialog, C one of an unanswered INVITE, a text
 * in each line; A is a response to our latest request (status, headers), I one to the cancelled INVITE, M a whole message. Each
 * dialog has one outcome, and no step leads to more than an ACK and a BYE. */
#define _GNU_SOURCE
#include "stack.h"

#include <stdlib.h>
#include <string.h>

#include "trunks/orphaned_dialog.h"

#define MAX_SIZE 4000
#define MAX_STEPS 16
#define SEPARATOR "\x1e"
#define SECRET "the-password"

static int outcomes[MAX_STEPS + 1], tokens;

static void on_result(long long token, int status, const char *reason)
{
    must(token > 0 && token <= tokens, "an outcome is of a dialog");
    must(++outcomes[token] == 1, "a dialog has one outcome");
    must(status == 0 || (status >= 200 && status < 700), "a response is final");
    must(memchr(reason, 0, 1000) != NULL, "a reason is a text");
}

/* ---- records ---- */

/* As `DialogRecord.of_json` does, which reads no control characters. */
static bool is_text(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 32 || *text == 127)
            return false;
    return true;
}

static bool read_text(char **lines, char *text, size_t room)
{
    const char *line = strsep(lines, "\n");
    if (!line || strlen(line) >= room || !is_text(line))
        return false;
    strcpy(text, line);
    return true;
}

#define READ(lines, field) read_text(lines, field, sizeof(field))

static bool read_record(char *lines, bool answered, dialog_record_t *record)
{
    char cseq[16];
    if (!READ(&lines, record->target) || !READ(&lines, record->local) || !READ(&lines, record->local_tag) ||
        !READ(&lines, record->remote) || !READ(&lines, record->remote_tag) || !READ(&lines, record->call_id) ||
        !READ(&lines, cseq))
        return false;
    record->cseq = (unsigned)strtoul(cseq, NULL, 10) & 0x7fffffffu;
    if (!answered &&
        (!READ(&lines, record->invite.branch) || !*record->invite.branch || !READ(&lines, record->invite.sent_by) ||
         !READ(&lines, record->invite.transport) || !READ(&lines, record->invite.address) ||
         !READ(&lines, record->invite.server_name)))
        return false;
    while (record->route_count < DIALOG_RECORD_MAX_ROUTES && READ(&lines, record->route[record->route_count]))
        record->route_count++;
    return true;
}

static void end_dialog(char *lines, bool answered)
{
    static orphaned_dialog_params_t params;
    params = (orphaned_dialog_params_t){.token = tokens + 1, .reason = "Q.850;cause=41", .user = "me", .password = SECRET};
    if (!read_record(lines, answered, &params.record))
        return;
    tokens++;
    if (orphaned_dialog_end(&params) != PJ_SUCCESS)
        must(++outcomes[tokens] == 1, "an end that could not be sent has no outcome");
}

/* ---- responses ---- */

static void receive(const char *text, size_t length)
{
    const seen_t seen = stack_receive((const uint8_t *)text, length, PEER_ADDRESS, false);
    must(seen.sent <= 2, "a response leads to an ACK and a BYE at most");
    must(!strstr(stack_last_sent(), SECRET), "the password is not sent");
}

/* Headers of our last request that a response repeats. */
static size_t repeat(char *text, size_t room, bool to_invite)
{
    static const char *const matches[] = {"Via:", "From:", "Call-ID:", "CSeq:", "To:"};
    size_t length = 0;
    for (const char *line = stack_last_sent(); (line = strstr(line, "\r\n"));) {
        line += 2;
        if (to_invite && strncmp(line, "CSeq:", 5) == 0)
            length += (size_t)pj_ansi_snprintf(text + length, room - length, "CSeq: %d INVITE\r\n", atoi(line + 5));
        else
            for (unsigned i = 0; i < PJ_ARRAY_SIZE(matches) - to_invite; i++)
                if (strncmp(line, matches[i], strlen(matches[i])) == 0)
                    length += (size_t)pj_ansi_snprintf(text + length, room - length, "%.*s\r\n", (int)strcspn(line, "\r"), line);
    }
    return length;
}

/* One to the INVITE has the To header of the step. */
static void respond(char *step, bool to_invite)
{
    static char text[4 * MAX_SIZE];
    char *headers = step;
    const char *status = strsep(&headers, "\n");
    size_t length = (size_t)pj_ansi_snprintf(text, sizeof text, "SIP/2.0 %s\r\n", status);
    length += repeat(text + length, sizeof text - length, to_invite);
    length += (size_t)pj_ansi_snprintf(text + length, sizeof text - length, "%s\r\nContent-Length: 0\r\n\r\n",
                                       headers ? headers : "");
    receive(text, length);
}

static void take_step(char *step)
{
    switch (*step) {
    case 'B': end_dialog(step + 1, true); break;
    case 'C': end_dialog(step + 1, false); break;
    case 'A': respond(step + 1, false); break;
    case 'I': respond(step + 1, true); break;
    case 'M': receive(step + 1, strlen(step + 1)); break;
    default: break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const pj_time_val at_once = {0, 0};
    char text[MAX_SIZE + 1], *rest = text, *step;
    if (memmem(data, size, SECRET, strlen(SECRET))) /* else the record would have sent it */
        return 0;
    stack_start();
    stack_admit_responses();
    must(orphaned_dialog_install(on_result) == 0, "the module is registered");
    tokens = 0;
    memset(outcomes, 0, sizeof outcomes);
    size = size < MAX_SIZE ? size : MAX_SIZE;
    memcpy(text, data, size);
    text[size] = 0;
    for (int i = 0; i < MAX_STEPS && (step = strsep(&rest, SEPARATOR)); i++) {
        take_step(step);
        pjsip_endpt_handle_events(pjsua_get_pjsip_endpt(), &at_once); /* ends transactions that could not send */
    }
    stack_end_transactions();
    for (int token = 1; token <= tokens; token++)
        must(outcomes[token] == 1, "every dialog has an outcome");
    orphaned_dialog_remove();
    return 0;
}
