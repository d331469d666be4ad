#define _GNU_SOURCE
#include "net/realtime_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

bool realtime_thread_become(int priority)
{
    struct sched_param parameter = {.sched_priority = priority};
    if (pthread_setschedparam(pthread_self(), SCHED_RR, &parameter) == 0)
        return true;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), -15);
    return false;
}
