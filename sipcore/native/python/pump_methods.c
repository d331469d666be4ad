/* Functions of sipcore._native: the pump and its slots. `sipcore.audio.pump` wraps them. Longer than other files, because it
 * is a list: one short function for each of Python's. */
#define _GNU_SOURCE
#include "python/methods.h"

#include "pump/pump.h"

#include <pjsua-lib/pjsua_internal.h>
#include <poll.h>
#include <unistd.h>

#define BACKGROUND "sipcore.background"
#define INFO_COLUMNS 10

/* ---- slots by handle ---- */

static slot_t *slot_by_handle(long long handle)
{
    int index = (int)(handle & 0xFFFF);
    if (handle >= 0 && index < pump.max_slots && pump.slots) {
        slot_t *slot = &pump.slots[index];
        if (atomic_load(&slot->state) == SLOT_OPEN && pump_handle_of(slot) == handle)
            return slot;
    }
    PyErr_Format(PyExc_KeyError, "no open slot with handle %lld", handle);
    return NULL;
}

static slot_t *slot_argument(PyObject *argument)
{
    long long handle = PyLong_AsLongLong(argument);
    return handle == -1 && PyErr_Occurred() ? NULL : slot_by_handle(handle);
}

/* ---- the pump ---- */

static PyObject *py_start(PyObject *self, PyObject *args)
{
    int max_slots;
    (void)self;
    if (!PyArg_ParseTuple(args, "i", &max_slots))
        return NULL;
    if (pump_start(max_slots) != 0)
        return PyErr_Format(PyExc_RuntimeError, "the audio pump did not start (1..%d slots, not running yet)", MAX_SLOTS);
    Py_RETURN_NONE;
}

static PyObject *py_stop(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Py_BEGIN_ALLOW_THREADS
    pump_stop();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_wait(PyObject *self, PyObject *args)
{
    int timeout_ms, rest_ticks, ready;
    uint64_t ticks;
    (void)self;
    if (!PyArg_ParseTuple(args, "ii", &timeout_ms, &rest_ticks))
        return NULL;
    pump_rest(rest_ticks);
    struct pollfd fd = {.fd = pump.event_fd, .events = POLLIN};
    Py_BEGIN_ALLOW_THREADS
    ready = poll(&fd, 1, timeout_ms);
    if (ready > 0 && read(fd.fd, &ticks, sizeof ticks) != sizeof ticks)
        ready = 0;
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(ready > 0);
}

static PyObject *py_wake(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    pump_wake();
    Py_RETURN_NONE;
}

static void fill_info(slot_t *slot, int64_t *info, uint64_t position)
{
    uint64_t sent = atomic_load(&slot->tx_read);
    info[0] = (int64_t)position;
    info[1] = atomic_load(&slot->rx_ns);
    info[2] = (int64_t)(atomic_load(&slot->tx_written) - sent);
    info[3] = (int64_t)sent;
    info[4] = (slot->port != NULL ? 1 : 0) | (atomic_load(&slot->paused) ? 2 : 0);
    info[5] = atomic_load(&slot->jitter_ms);
    info[6] = atomic_load(&slot->tick_ns);
    info[7] = pump_handle_of(slot);
    info[8] = (int64_t)atomic_load(&slot->live_end);
    info[9] = atomic_load(&slot->origin_ns);
}

/* Keeps the GIL: it copies some 100 KB at 250 calls, and no slot can be released meanwhile. */
static PyObject *py_read(PyObject *self, PyObject *args)
{
    Py_buffer rx_audio, tx_audio, counts, info, least;
    (void)self;
    if (!PyArg_ParseTuple(args, "w*w*w*w*y*", &rx_audio, &tx_audio, &counts, &info, &least))
        return NULL;
    Py_ssize_t rows = counts.len / (Py_ssize_t)sizeof(int32_t);
    Py_ssize_t capacity = rows ? rx_audio.len / (Py_ssize_t)sizeof(int16_t) / rows : 0;
    int high = atomic_load(&pump.high);
    bool fits = rows >= high && tx_audio.len >= rx_audio.len && least.len >= counts.len &&
                info.len >= rows * INFO_COLUMNS * (Py_ssize_t)sizeof(int64_t);
    for (int i = 0; fits && i < high; i++) {
        slot_t *slot = &pump.slots[i];
        uint64_t position = 0;
        uint32_t count = 0;
        if (atomic_load_explicit(&slot->state, memory_order_acquire) == SLOT_OPEN) {
            count = slot_read(slot, (int16_t *)rx_audio.buf + i * capacity, (int16_t *)tx_audio.buf + i * capacity,
                              (uint32_t)capacity, (uint32_t)((const int32_t *)least.buf)[i], &position);
            fill_info(slot, (int64_t *)info.buf + i * INFO_COLUMNS, position);
        }
        ((int32_t *)counts.buf)[i] = (int32_t)count;
    }
    PyBuffer_Release(&rx_audio);
    PyBuffer_Release(&tx_audio);
    PyBuffer_Release(&counts);
    PyBuffer_Release(&info);
    PyBuffer_Release(&least);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "the arrays of read() have fewer rows than the pump has slots");
    return PyLong_FromLong(high);
}

static PyObject *py_slot_of(PyObject *self, PyObject *argument)
{
    long call = PyLong_AsLong(argument);
    (void)self;
    if (call == -1 && PyErr_Occurred())
        return NULL;
    slot_t *slot = pump_slot_of((pjsua_call_id)call);
    if (!slot)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(pump_handle_of(slot));
}

/* With the lock of the call that has the stream: PJSUA may be replacing the one of its early media by that of its answer. */
static bool take_over_stream(slot_t *to, slot_t *from)
{
    pjsua_call *call = NULL;
    pjsip_dialog *dialog = NULL;
    const pjsua_call_id number = from->call;
    if (number < 0 || number >= PJSUA_MAX_CALLS || acquire_call("take over", number, &call, &dialog) != PJ_SUCCESS)
        return false;
    const bool moved = pump_take_over_stream(to, from);
    if (dialog)
        pjsip_dlg_dec_lock(dialog);
    return moved;
}

static PyObject *py_take_over_stream(PyObject *self, PyObject *args)
{
    long long handle, other;
    bool moved;
    (void)self;
    if (!PyArg_ParseTuple(args, "LL", &handle, &other))
        return NULL;
    slot_t *to = slot_by_handle(handle), *from = to ? slot_by_handle(other) : NULL;
    if (!from)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    moved = take_over_stream(to, from);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(moved);
}

static PyObject *py_release_slot(PyObject *self, PyObject *argument)
{
    slot_t *slot = slot_argument(argument);
    (void)self;
    if (!slot)
        return NULL;
    atomic_store(&slot->state, SLOT_CLOSING);
    Py_RETURN_NONE;
}

static PyObject *py_rate(PyObject *self, PyObject *argument)
{
    slot_t *slot = slot_argument(argument);
    (void)self;
    return slot ? PyLong_FromUnsignedLong(atomic_load(&slot->rate)) : NULL;
}

static PyObject *py_write(PyObject *self, PyObject *args)
{
    long long handle;
    Py_buffer samples;
    (void)self;
    if (!PyArg_ParseTuple(args, "Ly*", &handle, &samples))
        return NULL;
    slot_t *slot = slot_by_handle(handle);
    uint32_t fits = slot ? slot_write(slot, samples.buf, (uint32_t)(samples.len / 2)) : 0;
    PyBuffer_Release(&samples);
    return slot ? PyLong_FromUnsignedLong(fits) : NULL;
}

static PyObject *py_expect_more(PyObject *self, PyObject *args)
{
    long long handle;
    int more;
    (void)self;
    if (!PyArg_ParseTuple(args, "Lp", &handle, &more))
        return NULL;
    slot_t *slot = slot_by_handle(handle);
    if (!slot)
        return NULL;
    atomic_store(&slot->open, more);
    Py_RETURN_NONE;
}

static PyObject *py_written_position(PyObject *self, PyObject *argument)
{
    slot_t *slot = slot_argument(argument);
    (void)self;
    return slot ? PyLong_FromUnsignedLongLong(atomic_load(&slot->tx_written)) : NULL;
}

static PyObject *py_sent_position(PyObject *self, PyObject *argument)
{
    slot_t *slot = slot_argument(argument);
    (void)self;
    return slot ? PyLong_FromUnsignedLongLong(atomic_load(&slot->tx_read)) : NULL;
}

static PyObject *py_flush(PyObject *self, PyObject *argument)
{
    slot_t *slot = slot_argument(argument);
    (void)self;
    return slot ? PyLong_FromUnsignedLongLong(slot_flush(slot)) : NULL;
}

static PyObject *py_pause(PyObject *self, PyObject *args)
{
    long long handle;
    int on;
    (void)self;
    if (!PyArg_ParseTuple(args, "Lp", &handle, &on))
        return NULL;
    slot_t *slot = slot_by_handle(handle);
    if (!slot)
        return NULL;
    atomic_store(&slot->paused, on);
    Py_RETURN_NONE;
}

/* ---- background sounds ---- */

static void free_background(PyObject *capsule)
{
    background_release(PyCapsule_GetPointer(capsule, BACKGROUND));
}

static PyObject *py_load_background(PyObject *self, PyObject *args)
{
    Py_buffer samples;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*", &samples))
        return NULL;
    background_t *sound = samples.len >= 2 ? malloc(sizeof *sound + (size_t)samples.len) : NULL;
    if (sound) {
        atomic_init(&sound->refs, 1);
        sound->length = (uint32_t)(samples.len / 2);
        memcpy(sound->samples, samples.buf, sound->length * sizeof(int16_t));
    }
    PyBuffer_Release(&samples);
    if (!sound)
        return PyErr_Format(PyExc_ValueError, "a background sound needs at least one sample");
    return PyCapsule_New(sound, BACKGROUND, free_background);
}

static PyObject *py_set_background(PyObject *self, PyObject *args)
{
    long long handle;
    PyObject *capsule;
    double volume, ducked;
    (void)self;
    if (!PyArg_ParseTuple(args, "LOdd", &handle, &capsule, &volume, &ducked))
        return NULL;
    slot_t *slot = slot_by_handle(handle);
    background_t *sound = capsule == Py_None ? NULL : PyCapsule_GetPointer(capsule, BACKGROUND);
    if (!slot || (!sound && capsule != Py_None))
        return NULL;
    if (!(volume >= 0 && volume <= 1 && ducked >= 0 && ducked <= 1))
        return PyErr_Format(PyExc_ValueError, "a gain must lie between 0 and 1");
    background_set(&slot->background, sound, (float)volume, (float)ducked);
    Py_RETURN_NONE;
}

/* ---- bridges ---- */

static PyObject *py_bridge(PyObject *self, PyObject *args)
{
    long long handle, other_handle;
    (void)self;
    if (!PyArg_ParseTuple(args, "LL", &handle, &other_handle))
        return NULL;
    slot_t *one = slot_by_handle(handle), *other = one ? slot_by_handle(other_handle) : NULL;
    if (!other)
        return NULL;
    const uint32_t one_rate = atomic_load(&one->rate), other_rate = atomic_load(&other->rate);
    if (one == other || bridge_connect(&one->bridge, one_rate, &other->bridge, other_rate) != 0)
        return PyErr_Format(PyExc_ValueError, "only two slots of 8000 or 16000 Hz can be bridged");
    pump_pair_slots(one, other);
    Py_RETURN_NONE;
}

static PyObject *py_unbridge(PyObject *self, PyObject *argument)
{
    slot_t *slot = slot_argument(argument);
    (void)self;
    if (!slot)
        return NULL;
    bridge_disconnect(&slot->bridge);
    Py_RETURN_NONE;
}

/* ---- DTMF ---- */

static PyObject *py_send_dtmf(PyObject *self, PyObject *args)
{
    long long handle;
    const char *keys;
    (void)self;
    if (!PyArg_ParseTuple(args, "Ls", &handle, &keys))
        return NULL;
    slot_t *slot = slot_by_handle(handle);
    if (!slot)
        return NULL;
    if (strlen(keys) > DTMF_MAX_KEYS || keys[strspn(keys, "0123456789*#ABCDw,")])
        return PyErr_Format(PyExc_ValueError, "keys are at most %d of 0-9 * # A-D w and ,", DTMF_MAX_KEYS);
    const uint64_t after = atomic_load(&slot->tx_written);
    return dtmf_send(&slot->dtmf, atomic_load(&slot->rate), after, keys) == 0 ? Py_NewRef(Py_None) : PyErr_NoMemory();
}

static PyObject *py_dtmf_left(PyObject *self, PyObject *argument)
{
    slot_t *slot = slot_argument(argument);
    (void)self;
    return slot ? PyLong_FromUnsignedLong(dtmf_left(&slot->dtmf)) : NULL;
}

/* ---- counters ---- */

static PyObject *py_slot_stats(PyObject *self, PyObject *argument)
{
    slot_t *slot = slot_argument(argument);
    (void)self;
    if (!slot)
        return NULL;
    rtp_stats_t *rtp = slot_rtp_stats(slot);
    const int64_t unreachable_ns = rtp ? rtp_stats_unreachable_ns(rtp) : 0;
    rtp_stats_release(rtp);
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:L,s:L}", "frames_sent", atomic_load(&slot->frames_sent), "frames_received",
                         atomic_load(&slot->frames_received), "frames_missing", atomic_load(&slot->frames_missing),
                         "under_runs", atomic_load(&slot->under_runs), "over_runs", atomic_load(&slot->over_runs),
                         "last_packet_ns", (long long)atomic_load(&slot->last_packet_ns), "unreachable_ns",
                         (long long)unreachable_ns);
}

/* A reference of its own keeps the statistics while they are read: the pump may be stopped, without the GIL, meanwhile. */
static PyObject *py_rtp_totals(PyObject *self, PyObject *argument)
{
    slot_t *slot = slot_argument(argument);
    (void)self;
    if (!slot)
        return NULL;
    rtp_stats_t *stats = slot_rtp_stats(slot);
    rtp_totals_t t = {0};
    if (stats)
        t = rtp_stats_totals(stats);
    rtp_stats_release(stats);
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:d,s:d,s:d,s:d,s:d,s:d,s:K,s:L,s:K,s:d,s:d,s:K,s:d,s:d}", "received",
        t.received, "received_octets", t.received_octets, "lost", t.lost, "loss_runs", t.loss_runs, "duplicate", t.duplicate,
        "reordered", t.reordered, "foreign", t.foreign, "malformed", t.malformed, "sent", t.sent, "jitter_ms", t.jitter_ms,
        "jitter_mean_ms", t.jitter_mean_ms, "jitter_max_ms", t.jitter_max_ms, "packet_ms", t.packet_ms, "buffer_ms",
        t.buffer_ms, "discarded_ms", t.discarded_ms, "reports", t.reports, "remote_lost", (long long)t.remote_lost,
        "remote_expected", t.remote_expected, "remote_jitter_mean_ms", t.remote_jitter_mean_ms, "remote_jitter_max_ms",
        t.remote_jitter_max_ms, "round_trips", t.round_trips, "round_trip_mean_ms", t.round_trip_mean_ms,
        "round_trip_max_ms", t.round_trip_max_ms);
}

static PyObject *quantiles(const histogram_t *histogram)
{
    return Py_BuildValue("(ddd)", histogram_quantile_ms(histogram, 0.5), histogram_quantile_ms(histogram, 0.99),
                         (double)atomic_load(&histogram->max_ns) / 1e6);
}

/* Counters of all shards; with `reset` the histograms begin anew. */
static PyObject *py_stats(PyObject *self, PyObject *args)
{
    int reset;
    static histogram_t lateness, deviation;
    uint64_t ticks = 0, skipped = 0, cpu_ns = 0;
    int calls = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "p", &reset))
        return NULL;
    histogram_reset(&lateness);
    histogram_reset(&deviation);
    for (int i = 0; i < pump.shards; i++) {
        shard_t *shard = &pump.shard[i];
        ticks += atomic_load(&shard->ticks);
        skipped += atomic_load(&shard->skipped_ticks);
        cpu_ns += atomic_load(&shard->cpu_ns);
        calls += atomic_load(&shard->calls);
        histogram_merge(&lateness, &shard->lateness);
        histogram_merge(&deviation, &shard->deviation);
        if (reset) {
            histogram_reset(&shard->lateness);
            histogram_reset(&shard->deviation);
        }
    }
    return Py_BuildValue("{s:K,s:K,s:K,s:i,s:i,s:O,s:N,s:N}", "ticks", ticks, "skipped_ticks", skipped, "cpu_ns", cpu_ns,
                         "calls", calls, "shards", pump.shards, "realtime", atomic_load(&pump.realtime) ? Py_True : Py_False,
                         "lateness_ms", quantiles(&lateness), "deviation_ms", quantiles(&deviation));
}

PyMethodDef pump_methods[] = {
    METHOD(start, METH_VARARGS, "start(max_slots): start the pump's threads; PJSUA is initialized already."),
    METHOD(stop, METH_NOARGS, "Stop the pump's threads."),
    METHOD(wait, METH_VARARGS, "wait(timeout_ms, ticks) -> bool: block without the GIL until ticks have passed."),
    METHOD(wake, METH_NOARGS, "End the wait with the next tick."),
    METHOD(read, METH_VARARGS, "read(rx_audio, tx_audio, counts, info, least) -> rows: drain the slots that hold enough."),
    METHOD(slot_of, METH_O, "slot_of(pjsua_call_id) -> handle or None."),
    METHOD(take_over_stream, METH_VARARGS, "take_over_stream(handle, other) -> bool: continue with the other slot's stream."),
    METHOD(release_slot, METH_O, "release_slot(handle): close the slot."),
    METHOD(rate, METH_O, "rate(handle) -> sampling rate in Hz."),
    METHOD(write, METH_VARARGS, "write(handle, int16 samples) -> samples that fitted."),
    METHOD(expect_more, METH_VARARGS, "expect_more(handle, more): if more speech follows, a gap is an under-run."),
    METHOD(written_position, METH_O, "written_position(handle) -> samples written since the slot opened."),
    METHOD(sent_position, METH_O, "sent_position(handle) -> samples sent since the slot opened."),
    METHOD(flush, METH_O, "flush(handle) -> position up to which samples were sent."),
    METHOD(pause, METH_VARARGS, "pause(handle, on)."),
    METHOD(load_background, METH_VARARGS, "load_background(int16 samples) -> sound to loop."),
    METHOD(set_background, METH_VARARGS, "set_background(handle, sound or None, volume, ducked volume)."),
    METHOD(bridge, METH_VARARGS, "bridge(handle, other): each slot sends what the other one receives."),
    METHOD(unbridge, METH_O, "unbridge(handle): end the slot's bridge for both slots."),
    METHOD(send_dtmf, METH_VARARGS, "send_dtmf(handle, keys)."),
    METHOD(dtmf_left, METH_O, "dtmf_left(handle) -> samples until the keys have been sent."),
    METHOD(slot_stats, METH_O, "slot_stats(handle) -> counters."),
    METHOD(rtp_totals, METH_O, "rtp_totals(handle) -> RTP and RTCP statistics of the call."),
    METHOD(stats, METH_VARARGS, "stats(reset) -> counters of all shards."),
    {NULL, NULL, 0, NULL},
};
