/* Threads without a real-time priority that process DTLS packets. PJMEDIA blocks the thread that delivers the last packet of
 * a handshake until the timer thread of its retransmissions has ended, up to 0.25 s: no thread that audio depends on may
 * deliver it. */
#ifndef TRUNKLINE_RTP_DTLS_WORKER_H
#define TRUNKLINE_RTP_DTLS_WORKER_H

typedef struct dtls_job {
    struct dtls_job *next;
    void (*run)(struct dtls_job *job);
} dtls_job_t;

/* Returns -1 if the system lacks resources. */
int dtls_worker_start(void);
/* Runs the jobs that wait, and ends the threads. */
void dtls_worker_stop(void);
/* One of the threads runs the job, which may be posted again from the beginning of its run on. */
void dtls_worker_post(dtls_job_t *job);

#endif
