#define _GNU_SOURCE
#include "rtp/dtls_worker.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include <pjlib.h>

#define WORKERS 16  /* handshakes that complete at the same time; they sleep for most of it */

static struct {
    pthread_mutex_t lock;   /* guards what follows */
    pthread_cond_t changed;
    dtls_job_t *first, **last;
    bool running;
    pthread_t threads[WORKERS];
    int count;
} workers = {.changed = PTHREAD_COND_INITIALIZER, .last = &workers.first};

/* The thread that posts has a real-time priority; these have none. */
static void init_lock(void)
{
    pthread_mutexattr_t inheriting;
    pthread_mutexattr_init(&inheriting);
    pthread_mutexattr_setprotocol(&inheriting, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&workers.lock, &inheriting);
    pthread_mutexattr_destroy(&inheriting);
}

/* NULL at the end. */
static dtls_job_t *next_job(void)
{
    pthread_mutex_lock(&workers.lock);
    while (workers.running && !workers.first)
        pthread_cond_wait(&workers.changed, &workers.lock);
    dtls_job_t *job = workers.first;
    if (job) {
        workers.first = job->next;
        if (!workers.first)
            workers.last = &workers.first;
    }
    pthread_mutex_unlock(&workers.lock);
    return job;
}

static void *run(void *arg)
{
    static __thread pj_thread_desc descriptor;
    pj_thread_t *thread;
    dtls_job_t *job;
    PJ_UNUSED_ARG(arg);
    pthread_setname_np(pthread_self(), "dtls");
    pj_thread_register("dtls", descriptor, &thread);
    while ((job = next_job()))
        job->run(job);
    return NULL;
}

int dtls_worker_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_lock);
    workers.running = true;
    for (workers.count = 0; workers.count < WORKERS; workers.count++)
        if (pthread_create(&workers.threads[workers.count], NULL, run, NULL) != 0) {
            dtls_worker_stop();
            return -1;
        }
    return 0;
}

void dtls_worker_stop(void)
{
    pthread_mutex_lock(&workers.lock);
    workers.running = false;
    pthread_cond_broadcast(&workers.changed);
    pthread_mutex_unlock(&workers.lock);
    while (workers.count > 0)
        pthread_join(workers.threads[--workers.count], NULL);
}

void dtls_worker_post(dtls_job_t *job)
{
    pthread_mutex_lock(&workers.lock);
    job->next = NULL;
    *workers.last = job;
    workers.last = &job->next;
    pthread_cond_signal(&workers.changed);
    pthread_mutex_unlock(&workers.lock);
}
