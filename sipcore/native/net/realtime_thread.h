/* The scheduling of threads that audio depends on. */
#ifndef TRUNKLINE_NET_REALTIME_THREAD_H
#define TRUNKLINE_NET_REALTIME_THREAD_H

#include <stdbool.h>

/* Gives the calling thread a real-time priority. Where the system refuses it, a negative nice value, and returns false. */
bool realtime_thread_become(int priority);

#endif
