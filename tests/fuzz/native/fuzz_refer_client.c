/* A REFER of ours and what the peer makes of it. The input is a series of steps with the byte 0x1E between them, each named by
 * its first letter: R sends a REFER, E follows it no longer, A is a response to it (status, headers), N a NOTIFY in the dialog
 * (headers, an empty line, body), M a whole message. Only the REFER that is followed is reported about, each NOTIFY has one
 * response at most, and no REFER leaves a transaction behind. */
#define _GNU_SOURCE
#include "stack.h"

#include <pjsua-lib/pjsua_internal.h>
#include <string.h>

#include "sip/refer_client.h"

#define MAX_SIZE 4000
#define MAX_STEPS 16
#define SEPARATOR "\x1e"
#define FIRST_CSEQ 2
#define SECRET "the-password"

static long long last_token, followed;
static int responses;
static const char *packet;
static size_t packet_size;

static void on_response(long long token, int status)
{
    must(token == followed && token > 0, "only the REFER that is followed has a response");
    must(status == 0 || (status >= 200 && status < 700), "a response is final");
    must(++responses == 1, "a REFER has one response");
}

static void on_notify(const refer_client_notify_t *notify)
{
    must(notify->token == followed && notify->token > 0, "only the REFER that is followed is notified about");
    must(notify->body.slen >= 0 && notify->type.slen >= 0 && notify->subtype.slen >= 0, "lengths are valid");
    must(!notify->body.slen || (size_t)notify->body.slen < packet_size, "a body is within its message");
    must(!memchr("\r\n", notify->type.slen ? notify->type.ptr[0] : 'x', 2), "a type is a token");
}

static void refer(void)
{
    refer_client_params_t params = {.call = 0, .token = last_token + 1, .header_count = 1,
                                    .headers = {{"Refer-To", "<sip:200@127.0.0.4>"}}, .user = "me", .password = SECRET};
    const long long before = followed;
    const int before_responses = responses;
    followed = params.token;
    responses = 0;
    if (refer_client_send(&params) == PJ_SUCCESS) {
        must(!before, "one REFER of a dialog is followed at a time");
        last_token = params.token;
    } else {
        followed = before;
        responses = before_responses;
    }
}

static void end_refer(void)
{
    const long long token = followed;
    followed = token ? token : -1; /* its transaction may be reported about until it has ended */
    refer_client_end(0, token ? token : last_token);
    followed = 0;
}

static int receive(const char *text, size_t length)
{
    packet = text;
    packet_size = length;
    return stack_receive((const uint8_t *)text, length, PEER_ADDRESS, false).sent;
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

static void answer(char *step)
{
    static char text[3 * MAX_SIZE];
    char *headers = step;
    const char *status = strsep(&headers, "\n");
    if (strncmp(stack_last_sent(), "REFER ", 6) != 0)
        return;
    size_t length = (size_t)pj_ansi_snprintf(text, sizeof text, "SIP/2.0 %s\r\n", status);
    length += repeat(text + length, sizeof text - length);
    length += (size_t)pj_ansi_snprintf(text + length, sizeof text - length, "%s\r\nContent-Length: 0\r\n\r\n",
                                       headers ? headers : "");
    must(receive(text, length) <= 1, "a response leads to one request at most");
    must(!strstr(stack_last_sent(), SECRET), "the password is not sent");
}

static void notify(const char *step)
{
    static char text[3 * MAX_SIZE];
    static unsigned branch;
    const char *end = strstr(step, "\n\n"), *body = end ? end + 2 : "";
    const int headers = (int)(end ? end - step : (long)strlen(step));
    int length = pj_ansi_snprintf(text, sizeof text,
        "NOTIFY sip:trunkline@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP " PEER_ADDRESS ":5060;branch=z9hG4bK-%u\r\n"
        "Max-Forwards: 70\r\nFrom: <sip:them@" PEER_ADDRESS ">;tag=" REMOTE_TAG "\r\n"
        "To: <sip:trunkline@127.0.0.1>;tag=" LOCAL_TAG "\r\nCall-ID: " CALL_ID "\r\n"
        "Contact: <sip:them@" PEER_ADDRESS ">\r\n%.*s\r\nContent-Length: %d\r\n\r\n%s",
        ++branch, headers, step, (int)strlen(body), body);
    must(receive(text, (size_t)length) <= 1, "a NOTIFY has one response");
}

static void take_step(char *step)
{
    switch (*step) {
    case 'R': refer(); break;
    case 'E': end_refer(); break;
    case 'A': answer(step + 1); break;
    case 'N': notify(step + 1); break;
    case 'M': receive(step + 1, strlen(step + 1)); break;
    default: break;
    }
}

/* The dialog has had no REFER, as at the start of the process: inputs do not depend on those before. */
static void reset_dialog(void)
{
    static bool installed;
    static void *before[PJSIP_MAX_MODULE];
    pjsip_dialog *dialog = pjsua_var.calls[0].inv->dlg;
    if (!installed) {
        must(refer_client_install(on_response, on_notify) == 0, "REFER is installed");
        memcpy(before, dialog->mod_data, sizeof before);
    }
    installed = true;
    memcpy(dialog->mod_data, before, sizeof before);
    dialog->local.cseq = FIRST_CSEQ;
    dialog->remote.cseq = 1;
    last_token = followed = 0;
    responses = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[MAX_SIZE + 1], *rest = text, *step;
    if (memmem(data, size, SECRET, strlen(SECRET))) /* else the peer would have sent it */
        return 0;
    stack_start();
    stack_admit_responses();
    reset_dialog();
    size = size < MAX_SIZE ? size : MAX_SIZE;
    memcpy(text, data, size);
    text[size] = 0;
    for (int i = 0; i < MAX_STEPS && (step = strsep(&rest, SEPARATOR)); i++)
        take_step(step);
    if (followed)
        end_refer();
    stack_end_transactions();
    return 0;
}
