/* Functions of sipcore._native: calls without RTP. `sipcore.audio.pcm_channel` wraps them. The GIL makes one thread of all that
 * write and read a channel; a channel lives as long as Python or a slot refers to it. */
#define _GNU_SOURCE
#include "python/methods.h"

#include "pump/pcm_channel.h"
#include "pump/pump.h"

#define CHANNEL "sipcore.pcm_channel"

static void free_channel(PyObject *capsule)
{
    pcm_channel_release(PyCapsule_GetPointer(capsule, CHANNEL));
}

static pcm_channel_t *channel_argument(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, CHANNEL);
}

static PyObject *py_pcm_channel(PyObject *self, PyObject *args)
{
    int telephone;
    (void)self;
    if (!PyArg_ParseTuple(args, "p", &telephone))
        return NULL;
    pcm_channel_t *channel = pcm_channel_create(telephone);
    return channel ? PyCapsule_New(channel, CHANNEL, free_channel) : PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *py_pcm_open(PyObject *self, PyObject *capsule)
{
    pcm_channel_t *channel = channel_argument(capsule);
    slot_t *slot;
    (void)self;
    if (!channel)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    slot = pump_open_pcm(channel);
    Py_END_ALLOW_THREADS
    if (!slot)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(pump_handle_of(slot));
}

static PyObject *py_pcm_event_fd(PyObject *self, PyObject *capsule)
{
    pcm_channel_t *channel = channel_argument(capsule);
    (void)self;
    return channel ? PyLong_FromLong(channel->event_fd) : NULL;
}

static PyObject *py_pcm_write(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    Py_buffer samples;
    (void)self;
    if (!PyArg_ParseTuple(args, "Oy*", &capsule, &samples))
        return NULL;
    pcm_channel_t *channel = channel_argument(capsule);
    const size_t count = (size_t)samples.len / sizeof(int16_t);
    if (channel && count <= PCM_CHANNEL_LIMIT)
        pcm_channel_write(channel, samples.buf, (uint32_t)count);
    else if (channel)
        PyErr_Format(PyExc_ValueError, "at most %u samples at once", PCM_CHANNEL_LIMIT);
    PyBuffer_Release(&samples);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *py_pcm_read(PyObject *self, PyObject *capsule)
{
    int16_t samples[PCM_CHANNEL_LIMIT];
    int32_t clear;
    pcm_channel_t *channel = channel_argument(capsule);
    (void)self;
    if (!channel)
        return NULL;
    const uint32_t count = pcm_channel_read(channel, samples, PCM_CHANNEL_LIMIT, &clear);
    return Py_BuildValue("y#i", (const char *)samples, (Py_ssize_t)(count * sizeof *samples), (int)clear);
}

static PyObject *py_pcm_stats(PyObject *self, PyObject *capsule)
{
    pcm_channel_t *channel = channel_argument(capsule);
    (void)self;
    if (!channel)
        return NULL;
    return Py_BuildValue("{s:K,s:K,s:K,s:K}", "frames_received", atomic_load(&channel->frames), "ticks_without_audio",
                         atomic_load(&channel->missing), "received_samples_dropped",
                         atomic_load(&channel->from_peer.dropped), "sent_samples_dropped",
                         atomic_load(&channel->to_peer.dropped));
}

PyMethodDef pcm_methods[] = {
    METHOD(pcm_channel, METH_VARARGS, "pcm_channel(telephone) -> channel."),
    METHOD(pcm_open, METH_O, "pcm_open(channel) -> handle of a slot with this channel, or None. On a thread of PJLIB."),
    METHOD(pcm_event_fd, METH_O, "pcm_event_fd(channel) -> descriptor that is readable when there is audio to read."),
    METHOD(pcm_write, METH_VARARGS, "pcm_write(channel, int16 samples): audio of the peer, at 16 kHz."),
    METHOD(pcm_read, METH_O, "pcm_read(channel) -> (audio for the peer, samples before an interruption or -1)."),
    METHOD(pcm_stats, METH_O, "pcm_stats(channel) -> counters."),
    {NULL, NULL, 0, NULL},
};
